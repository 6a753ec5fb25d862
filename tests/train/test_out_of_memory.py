"""`is_out_of_memory`: every form in which an error says so, and those that only look like it."""

from __future__ import annotations

import pytest
import torch

from dryfit.train.out_of_memory import is_out_of_memory

TAIL = (
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation."
)
# What each is: the versions, and the form.
FORMS = {
    "0.4, THC": "cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
    "1.0, cached": "CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 15.75 GiB total capacity; 14.64 GiB "
    "already allocated; 36.88 MiB free; 20.85 MiB cached)",
    "1.4, reserved in total": "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 "
    "MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)",
    "2.1, misspelt": "CUDA out of memory. Tried to allocate 48.00 MiB. GPU 0 has a total capacty of 23.64 GiB of "
    "which 9.69 MiB is free. Process 20296 has 23.63 GiB memory in use.",
    "2.5, private pools": "CUDA out of memory. Tried to allocate 546.00 MiB. GPU 0 has a total capacity of 15.77 GiB "
    f"of which 514.19 MiB is free. 13.73 GiB is allocated by PyTorch, with 46.00 MiB in private pools. {TAIL}",
    "2.14, fraction": "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
    "per_process_memory_fraction limit. Requested size: 1024",
    "HIP": "HIP out of memory. Tried to allocate 3.31 GiB. GPU 0 has a total capacity of 128.00 GiB of which 780.24 "
    "MiB is free.",
    "MPS": "MPS backend out of memory (MPS allocated: 5.50 GB, other allocations: 14.76 GB, max allowed: 20.40 GB). "
    "Tried to allocate 147.24 MB on private pool.",
    "XPU, extension": "XPU out of memory. Tried to allocate 1.00 GiB (GPU 0; 15.56 GiB total capacity; 990.00 MiB "
    "already allocated; 990.00 MiB reserved in total by PyTorch)",
    "XPU driver": "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "XPU resources": "UR backend failed. UR backend returns:40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
    "cudaMallocAsync": "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : "
    "16.66 GiB\nRequested               : 31.27 MiB",
    "runtime": "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call,"
    "so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
    "DataParallel, old": "Caught RuntimeError in replica 0 on device 1.\nOriginal Traceback (most recent call last):\n"
    '  File "train.py", line 1\nRuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB)',
    "DataParallel, cut": "Caught OutOfMemoryError in replica 0 on device 0.\nOriginal Traceback (most recent",
    "cuBLAS": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN handle": "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "cuDNN workspace": "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN algorithm": "Unable to find a valid cuDNN algorithm to run convolution (try_all at Conv.cpp:693)",
    "2.14, cuDNN": "CUDA ran out of memory outside PyTorch's allocator. If this workload uses many dynamic shapes, "
    "cuDNN may need additional device memory to JIT-compile shape-specialized kernels.",
    "NCCL": "NCCL error in: ProcessGroupNCCL.cpp:2074, unhandled cuda error\nLast error:\n"
    "Cuda failure 2 'out of memory'",
    "NCCL, older": "NCCL error: Failed to CUDA calloc 6291456 bytes",
    "host": "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate 237949750272 bytes. Error code 12 (Cannot allocate memory)",
    "host, Windows": "DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.",
    "under pressure": '!handles_.at(i) INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":430, '
    "please report a bug to PyTorch.",
    "under pressure, driver": "CUDA driver error: device not ready",
    "expandable segments": "expandable_segments: memory mapping failed with OOM on device 0",
    "Triton": "Triton Error [CUDA]: out of memory",
}
OTHERS = {
    "threads": "CUDA error: too many resources requested for launch",
    "driver": "CUDA driver version is insufficient for CUDA runtime version",
    "after a timeout": "CUDA out of memory. Tried to allocate more than 1EB memory.",
    "no such size": "CUDA out of memory. Tried to allocate 16.00 EiB (GPU 0; 15.75 GiB total capacity)",
    "a finder's end": "No executable batch size found, reached zero.",
    "on-chip memory": "out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
    "cuBLAS, another": "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
}
# A RuntimeError of its own, which older versions of PyTorch lack.
AcceleratorError = getattr(torch, "AcceleratorError", type("AcceleratorError", (RuntimeError,), {}))


@pytest.mark.parametrize("message", FORMS.values(), ids=FORMS)
def test_every_form_is_recognised(message: str) -> None:
    assert is_out_of_memory(RuntimeError(message))


@pytest.mark.parametrize("message", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("kind", [RuntimeError, AcceleratorError])
def test_what_only_looks_like_it_is_not(message: str, kind: type[RuntimeError]) -> None:
    assert not is_out_of_memory(kind(message))


def test_classes_count_whatever_they_say() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("nothing to read here"))
    assert is_out_of_memory(type("OutOfMemoryError", (Exception,), {})("a library's own, as CuPy's"))
    assert is_out_of_memory(AcceleratorError("CUDA error: out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(torch.OutOfMemoryError(OTHERS["after a timeout"]))


def test_an_error_raised_from_one_counts_and_one_raised_while_it_was_handled_does_not() -> None:
    def compiled(from_it: bool) -> BaseException:
        try:
            try:
                raise torch.OutOfMemoryError(FORMS["2.5, private pools"])
            except RuntimeError as error:
                if from_it:
                    raise ValueError("the backend failed") from error
                raise ValueError("a mistake in the handler") from None
        except ValueError as error:
            return error

    assert is_out_of_memory(compiled(from_it=True))
    assert not is_out_of_memory(compiled(from_it=False))


def test_a_word_about_memory_is_no_error_of_memory() -> None:
    assert not is_out_of_memory(ValueError("CUDA out of memory: use a smaller batch"))
    assert not is_out_of_memory(RuntimeError("This setting can lead to CUDA out of memory errors"))


def test_a_cycle_of_causes_ends() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert not is_out_of_memory(one)


def test_a_real_one_of_the_host() -> None:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)

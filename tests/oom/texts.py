"""Out-of-memory texts as people posted them, each with its numbers and the cause that these prove.

PyTorch's own words, cut from public issues and logs; the repository and the issue stand behind each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

OLD_TAIL = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See "
    "documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
SPLIT_TAIL = (
    " If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See "
    "documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)


def tail(
    variable: str = "PYTORCH_CUDA_ALLOC_CONF", page: str = "https://pytorch.org/docs/stable/notes/cuda.html"
) -> str:
    anchor = "environment-variables" if "//pytorch" in page else "optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
    return (
        f" If reserved but unallocated memory is large try setting {variable}=expandable_segments:True to avoid "
        f"fragmentation.  See documentation for Memory Management  ({page}#{anchor})"
    )


TAIL = tail()
NEW_TAIL = tail(page="https://docs.pytorch.org/docs/stable/notes/cuda.html")
MPS_TAIL = (
    " Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system "
    "failure)."
)


def size(number: float, unit: int) -> int:
    return round(number * unit)


def gib(number: float) -> int:
    return size(number, GIB)


def mib(number: float) -> int:
    return size(number, MIB)


@dataclass(frozen=True)
class Text:
    name: str
    text: str
    format: str
    code: str
    numbers: dict[str, int] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


def _numbers(**named: int | None) -> dict[str, int]:
    """The sizes of a message by name; unused and reserved follow from each other."""
    held = {name: value for name, value in named.items() if value is not None}
    if "allocated" in held and "reserved" in held:
        held["unused"] = held["reserved"] - held["allocated"]
    elif "allocated" in held and "unused" in held:
        held["reserved"] = held["allocated"] + held["unused"]
    return {f"{name}_bytes": value for name, value in held.items()}


# All forms of the list of formats that this room is built after, in its order.
PART_C: tuple[Text, ...] = (
    Text(
        "1 THC, skorch#218",
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
        "cuda 0.4",
        "DF507",
    ),
    Text(
        "1 THC, stderr, loop#57",
        "THCudaCheck FAIL file=/pytorch/aten/src/THC/generic/THCStorage.cu line=58 error=2 : out of memory",
        "cuda 0.4",
        "DF507",
    ),
    Text(
        "2 cached, age-estimation-pytorch#3",
        "CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 15.75 GiB total capacity; 14.64 GiB already "
        "allocated; 36.88 MiB free; 20.85 MiB cached)",
        "cuda 1.0",
        "DF501",
        _numbers(requested=mib(98), total=gib(15.75), free=mib(36.88), allocated=gib(14.64), unused=mib(20.85)),
        {"device": 0},
    ),
    Text(
        "3 reserved in total, pytorch#59778: more free than wanted",
        "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already "
        "allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)",
        "cuda 1.4",
        "DF507",
        _numbers(requested=gib(2.26), total=gib(6), free=gib(3.03), allocated=mib(781.59), reserved=gib(1.24)),
        {"device": 0},
    ),
    Text(
        "4 FastFold#37: above the card",
        "RuntimeError: CUDA out of memory. Tried to allocate 77.40 GiB (GPU 0; 38.61 GiB total capacity; 13.21 GiB "
        "already allocated; 8.81 GiB free; 26.90 GiB reserved in total by PyTorch)" + OLD_TAIL,
        "cuda 1.10",
        "DF501",
        _numbers(requested=gib(77.40), total=gib(38.61), free=gib(8.81), allocated=gib(13.21), reserved=gib(26.90)),
        {"device": 0, "advice_given": ("max_split_size_mb",)},
    ),
    Text(
        "5 iPASSR#9: allocated above the card, 0 bytes",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.73 GiB (GPU 0; 8.00 GiB total "
        "capacity; 17.20 GiB already allocated; 0 bytes free; 19.15 GiB reserved in total by PyTorch)" + OLD_TAIL,
        "cuda 1.10",
        "DF501",
        _numbers(requested=gib(10.73), total=gib(8), free=0, allocated=gib(17.20), reserved=gib(19.15)),
        {"device": 0},
    ),
    Text(
        "6 capacty, diffusers#8560: the listed process is this one",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. GPU 0 has a total capacty of "
        "23.64 GiB of which 9.69 MiB is free. Process 20296 has 23.63 GiB memory in use. Of the allocated memory "
        "22.81 GiB is allocated by PyTorch, and 362.31 MiB is reserved by PyTorch but unallocated." + SPLIT_TAIL,
        "cuda 2.1",
        "DF501",
        _numbers(
            requested=mib(48),
            total=gib(23.64),
            free=mib(9.69),
            allocated=gib(22.81),
            unused=mib(362.31),
            process=gib(23.63),
        ),
        {"device": 0, "other_processes": (), "advice_given": ("max_split_size_mb",)},
    ),
    Text(
        "7 taggui#188: 2.35 GiB free and 20 MiB fail",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
        "4.00 GiB of which 2.35 GiB is free. Of the allocated memory 825.15 MiB is allocated by PyTorch, and 24.85 "
        "MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation for Memory "
        "Management",
        "cuda 2.3",
        "DF507",
        _numbers(requested=mib(20), total=gib(4), free=gib(2.35), allocated=mib(825.15), unused=mib(24.85)),
        {"device": 0, "advice_given": ("expandable_segments:True",)},
    ),
    Text(
        "8 private pools, kaito#976",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 546.00 MiB. GPU 0 has a total capacity of "
        "15.77 GiB of which 514.19 MiB is free. Process 562167 has 15.25 GiB memory in use. Of the allocated memory "
        "13.73 GiB is allocated by PyTorch, with 46.00 MiB allocated in private pools (e.g., CUDA Graphs), and 736.86 "
        "MiB is reserved by PyTorch but unallocated." + TAIL,
        "cuda 2.3",
        "DF501",
        _numbers(
            requested=mib(546),
            total=gib(15.77),
            free=mib(514.19),
            allocated=gib(13.73),
            unused=mib(736.86),
            private_pool=mib(46),
            process=gib(15.25),
        ),
        {"device": 0},
    ),
    Text(
        "9 two processes",
        "CUDA out of memory. Tried to allocate 576.00 MiB. GPU 0 has a total capacity of 31.36 GiB of which 370.69 "
        "MiB is free. Process 16335 has 25.34 GiB memory in use. Including non-PyTorch memory, this process has 5.55 "
        "GiB memory in use. Of the allocated memory 4.89 GiB is allocated by PyTorch, and 77.08 MiB is reserved by "
        "PyTorch but unallocated." + TAIL,
        "cuda 2.3",
        "DF503",
        _numbers(
            requested=mib(576),
            total=gib(31.36),
            free=mib(370.69),
            allocated=gib(4.89),
            unused=mib(77.08),
            process=gib(5.55),
        ),
        {"device": 0, "other_processes": ((16335, gib(25.34)),)},
    ),
    Text(
        "10 the page of 2.11 and later",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.00 MiB. GPU 1 has a total capacity of 11.66 "
        "GiB of which 9.81 MiB is free. Including non-PyTorch memory, this process has 11.64 GiB memory in use. Of "
        "the allocated memory 11.30 GiB is allocated by PyTorch, and 63.19 MiB is reserved by PyTorch but "
        "unallocated." + NEW_TAIL,
        "cuda 2.11",
        "DF501",
        _numbers(
            requested=mib(26),
            total=gib(11.66),
            free=mib(9.81),
            allocated=gib(11.30),
            unused=mib(63.19),
            process=gib(11.64),
        ),
        {"device": 1},
    ),
    Text(
        "11 rejected",
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction "
        "limit. Requested size: 1.50 GiB",
        "cuda 2.12 rejected",
        "DF504",
        _numbers(requested=gib(1.5)),
    ),
    Text(
        "12 HIP, unified memory, strix-halo#3",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB. GPU 0 has a total capacity of 128.00 "
        "GiB of which 780.24 MiB is free. Of the allocated memory 57.70 GiB is allocated by PyTorch, and 75.82 MiB is "
        "reserved by PyTorch but unallocated." + tail("PYTORCH_HIP_ALLOC_CONF"),
        "hip 2.3",
        "DF503",
        _numbers(requested=gib(3.31), total=gib(128), free=mib(780.24), allocated=gib(57.70), unused=mib(75.82)),
        {"device": 0, "backend": "hip"},
    ),
    Text(
        "13 HIP, a limit, TheRock#2118",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 255.98 "
        "GiB of which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated by "
        "PyTorch, with 17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is reserved by PyTorch "
        "but unallocated." + TAIL,
        "hip 2.3",
        "DF504",
        _numbers(
            requested=mib(2),
            total=gib(255.98),
            free=gib(244.65),
            allowed=gib(1.05),
            allocated=mib(1017.01),
            unused=mib(54.99),
            private_pool=mib(17),
        ),
        {"device": 0, "backend": "hip"},
    ),
    Text(
        "14 MPS, units of 2.0 to 2.6, pytorch#130112",
        "RuntimeError: MPS backend out of memory (MPS allocated: 5.50 GB, other allocations: 14.76 GB, max allowed: "
        "20.40 GB). Tried to allocate 147.24 MB on private pool." + MPS_TAIL,
        "mps 2.0",
        "DF504",
        _numbers(requested=mib(147.24), allocated=gib(5.5), allowed=gib(20.40), other=gib(14.76)),
        {"backend": "mps", "advice_given": ("PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",)},
    ),
    Text(
        "15 MPS, binary units, ComfyUI#8984",
        "MPS backend out of memory (MPS allocated: 15.72 GiB, other allocations: 2.41 MiB, max allowed: 18.13 GiB). "
        "Tried to allocate 5.81 GiB on private pool." + MPS_TAIL,
        "mps 2.7",
        "DF504",
        _numbers(requested=gib(5.81), allocated=gib(15.72), allowed=gib(18.13), other=mib(2.41)),
        {"backend": "mps"},
    ),
    Text(
        "15 MPS, shared pool",
        "MPS backend out of memory (MPS allocated: 1024.00 MiB, other allocations: 384.00 KiB, max allowed: 511.18 "
        "MiB). Tried to allocate 256.00 MiB on shared pool." + MPS_TAIL,
        "mps 2.7",
        "DF504",
        _numbers(requested=mib(256), allocated=mib(1024), allowed=mib(511.18), other=384 * KIB),
        {"backend": "mps"},
    ),
    Text(
        "16 XPU, extension, intel-extension-for-pytorch#629: no free",
        "RuntimeError: XPU out of memory. Tried to allocate 1.00 GiB (GPU 0; 15.56 GiB total capacity; 990.00 MiB "
        "already allocated; 990.00 MiB reserved in total by PyTorch)",
        "xpu extension",
        "DF507",
        _numbers(requested=gib(1), total=gib(15.56), allocated=mib(990), reserved=mib(990)),
        {"device": 0, "backend": "xpu"},
    ),
    Text(
        "17 XPU, torch-xpu-ops#3011: above what its driver gives in one piece",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.66 GiB. GPU 0 has a total capacity of 5.65 "
        "GiB of which 5.65 GiB is free. Of the allocated memory 195.50 KiB is allocated by PyTorch, and 1.81 MiB is "
        "reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.",
        "xpu 2.5",
        "DF504",
        _numbers(requested=gib(4.66), total=gib(5.65), free=gib(5.65), allocated=size(195.5, KIB), unused=mib(1.81)),
        {"device": 0, "backend": "xpu", "advice_given": ("`empty_cache`",)},
    ),
    Text(
        "18 XPU driver, physical-ai-studio#440",
        "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        "xpu driver",
        "DF507",
        others={"backend": "xpu"},
    ),
    Text(
        "18 XPU driver, torch-xpu-ops#1170",
        "RuntimeError: UR backend failed. UR backend returns:40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
        "xpu driver",
        "DF508",
        others={"backend": "xpu", "certainty": "likely"},
    ),
    Text(
        "19 cudaMallocAsync, RWKV-LM-LoRA#32",
        "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 16.66 GiB\nRequested               : 31.27 MiB\nDevice limit            : 22.13 "
        "GiB\nFree (according to CUDA): 4.62 MiB\nPyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 17179869184.00 GiB",
        "malloc-async",
        "DF507",
        _numbers(requested=mib(31.27), total=gib(22.13), free=mib(4.62), allocated=gib(16.66)),
        {"device": 0},
    ),
    Text(
        "20 no numbers, GraphGDP#1",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other "
        "API call,so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
        "runtime error",
        "DF507",
    ),
    Text("21 AcceleratorError", "torch.AcceleratorError: CUDA error: out of memory", "runtime error", "DF507"),
    Text(
        "22 DataParallel, cut",
        "torch.cuda.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.\nOriginal Traceback (most "
        'recent call last):\n  File "worker.py", line 64, in _worker\n    output = module(*input, **kwargs)\n',
        "data parallel",
        "DF507",
        others={"device": 0},
    ),
    Text(
        "22 DataParallel, nex-code#38",
        "RuntimeError: Caught RuntimeError in replica 0 on device 1.\nOriginal Traceback (most recent call last):\n"
        '  File "worker.py", line 64, in _worker\n    output = module(*input, **kwargs)\n'
        "RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 1; 6.00 GiB total capacity; 5.50 GiB "
        "already allocated; 120.00 MiB free; 5.60 GiB reserved in total by PyTorch)",
        "cuda 1.4",
        "DF501",
        _numbers(requested=gib(2.26), total=gib(6), free=mib(120), allocated=gib(5.5), reserved=gib(5.6)),
        {"device": 1},
    ),
    Text(
        "23 cuBLAS, ultralytics#3243",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cublas",
        "DF508",
        others={"certainty": "likely"},
    ),
    Text(
        "24 cuDNN handle, LLaVA#392",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "cudnn",
        "DF508",
        others={"certainty": "likely"},
    ),
    Text("24 cuDNN, ssd.pytorch#33", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cudnn", "DF505"),
    Text(
        "24 cuDNN algorithm, marqo#101",
        "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution (try_all at "
        ".../aten/src/ATen/native/cudnn/Conv.cpp:693)",
        "cudnn",
        "DF508",
        others={"certainty": "likely"},
    ),
    Text(
        "25 cuDNN, 2.14",
        "CUDA ran out of memory outside PyTorch's allocator. If this workload uses many dynamic shapes, cuDNN may "
        "need additional device memory to JIT-compile shape-specialized kernels. Consider calling "
        "torch.cuda.memory.set_per_process_memory_fraction(fraction) early in the process to leave memory available "
        "for cuDNN.",
        "cudnn outside",
        "DF505",
    ),
    Text(
        "26 absurd, nccl#1284",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
        "absurd size",
        "DF509",
        others={"certainty": "not"},
    ),
    Text(
        "26 absurd, as a number",
        "CUDA out of memory. Tried to allocate 17179869184.00 GiB (GPU 0; 15.75 GiB total capacity; 1.00 GiB already "
        "allocated; 14.00 GiB free; 1.10 GiB reserved in total by PyTorch)",
        "absurd size",
        "DF509",
        _numbers(total=gib(15.75), free=gib(14), allocated=gib(1), reserved=gib(1.1)),
        {"certainty": "not", "device": 0},
    ),
    Text("27 NCCL", "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'", "nccl", "DF505"),
    Text(
        "27 NCCL, nccl#1235",
        "ng30903:3063028:3066152 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes",
        "nccl",
        "DF505",
        _numbers(requested=6291456),
    ),
    Text(
        "28 host",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 237949750272 bytes. Error code 12 (Cannot allocate memory)",
        "host",
        "DF506",
        _numbers(requested=237949750272),
        {"backend": "host"},
    ),
    Text(
        "28 host, Windows",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.",
        "host",
        "DF506",
        _numbers(requested=1073741824),
        {"backend": "host"},
    ),
    Text(
        "29 under pressure, torch-max-mem#45",
        'RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":430, '
        "please report a bug to PyTorch.",
        "allocator under pressure",
        "DF508",
        others={"certainty": "likely"},
    ),
    Text(
        "29 under pressure, driver",
        "RuntimeError: CUDA driver error: device not ready",
        "allocator under pressure",
        "DF508",
        others={"certainty": "likely"},
    ),
    Text(
        "29 expandable segments",
        "expandable_segments: memory mapping failed with OOM on device 0 while trying to allocate 20971520 bytes",
        "expandable segment",
        "DF507",
    ),
)

NEGATIVE: tuple[Text, ...] = (
    Text("launch", "RuntimeError: CUDA error: too many resources requested for launch", "launch resources", "DF509"),
    Text(
        "driver",
        "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "driver version",
        "DF509",
    ),
    Text("a finder's end", "RuntimeError: No executable batch size found, reached zero.", "batch finder", "DF509"),
    Text(
        "an index",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "illegal access",
        "DF509",
    ),
    Text(
        "on-chip memory",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: "
        "101376. Reducing block sizes or `num_stages` may help.",
        "shared memory of a kernel",
        "DF509",
    ),
    Text("disk", "OSError: [Errno 28] No space left on device", "disk full", "DF509", others={"backend": "host"}),
)

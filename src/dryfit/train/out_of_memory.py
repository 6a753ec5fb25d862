"""Telling an out-of-memory error from any other, whatever raised it."""

from __future__ import annotations

import re
from collections.abc import Iterator

# As PyTorch 0.4 to 2.14 and its libraries word them; the message says memory, and where.
_CERTAIN = re.compile(
    r"\b(?:CUDA|HIP|XPU|MPS|NPU)\b[^\n]{0,60}?\bout of memory\b(?! error)"  # also Triton's and NCCL's, which quote CUDA
    r"|exceed allowed memory\. \(out of memory\)"  # the cudaMallocAsync backend
    r"|UR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|HOST_MEMORY|RESOURCES)"
    r"|memory mapping failed with OOM"
    r"|Caught (?:[\w.]+\.)?OutOfMemoryError in "  # DataParallel, whose text may be cut before the error itself
    r"|Failed to CUDA (?:m|c)alloc"
    r"|DefaultCPUAllocator: (?:can't allocate|not enough) memory",
    re.IGNORECASE,
)
# Libraries that found no room for a workspace or a handle, and an allocator that lost its way under pressure. Now and
# then such an error has another cause, mostly libraries of versions that do not go together.
_LIKELY = re.compile(
    r"\b(?:CU|HIP|MIOPEN)[A-Z]*_(?:STATUS_)?ALLOC_FAILED"
    r"|CUDNN_STATUS_NOT_INITIALIZED"
    r"|Unable to find a valid cuDNN algorithm"
    r"|handles_\.at\(i\) INTERNAL ASSERT FAILED"
    r"|CUDA driver error: device not ready"
)
# No card has an exbibyte: such a size is what is left of another failure, such as a collective that timed out.
_ABSURD = re.compile(r"Tried to allocate (?:more than 1EB|[\d.]+ EiB)")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a card or on the host.

        try:
            loss = step(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise

    >>> is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    True
    >>> is_out_of_memory(RuntimeError("CUDA error: too many resources requested for launch"))
    False

    Knows the classes of CUDA, HIP and XPU, the plain RuntimeErrors of MPS and of older versions, those of cuBLAS,
    cuDNN, NCCL and Triton, `torch.AcceleratorError`, errors of DataParallel's replicas, and an error raised `from` one
    of these. cuBLAS and cuDNN do not always say why they could not start: CUBLAS_STATUS_ALLOC_FAILED,
    CUDNN_STATUS_NOT_INITIALIZED and the like count, as memory is the cause of most.
    """
    return any(_says_so(each) for each in _with_causes(error))


def _says_so(error: BaseException) -> bool:
    message = str(error)
    if _ABSURD.search(message):
        return False
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    # Anything else, such as a ValueError of the program's own, only speaks of memory.
    return isinstance(error, RuntimeError) and bool(_CERTAIN.search(message) or _LIKELY.search(message))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from; not those during whose handling it came up, which may be others."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        yield at
        seen.add(id(at))
        at = at.__cause__

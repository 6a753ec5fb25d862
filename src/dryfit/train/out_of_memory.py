"""Telling an out-of-memory error from any other, whatever raised it."""

from __future__ import annotations

from collections.abc import Iterator

from dryfit.oom.forms import is_absurd, says_out_of_memory


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
    if is_absurd(message):
        return False
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    # Anything else, such as a ValueError of the program's own, only speaks of memory.
    return isinstance(error, RuntimeError) and says_out_of_memory(message)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from; not those during whose handling it came up, which may be others."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        yield at
        seen.add(id(at))
        at = at.__cause__

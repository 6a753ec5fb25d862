"""The causes that follow from what kind of message it is, whatever its numbers."""

from __future__ import annotations

from collections.abc import Callable

from dryfit.oom.by_numbers import xpu_allocation_limit
from dryfit.oom.conclusion import Conclusion, Facts, size
from dryfit.oom.next_steps import who_has_it
from dryfit.oom.settings import allocator_settings
from dryfit.units import GIB

# No machine for training has more main memory than a few of these: such a request is a mistake in a shape.
_NO_HOST_HAS_BYTES = 16 << 40


def conclusion_of_form(facts: Facts) -> Conclusion | None:
    """What the message's form says by itself; None where its numbers are to decide."""
    name = facts.message.format
    if name.endswith(" rejected"):
        return _rejected(facts)
    return _BY_FORM[name](facts) if name in _BY_FORM else None


def _rejected(facts: Facts) -> Conclusion:
    asked = ""
    if facts.message.requested_bytes is not None:
        asked = f" It asked for {size(facts.message.requested_bytes)}."
    fraction = allocator_settings(facts.settings).get("per_process_memory_fraction")
    setting = f"per_process_memory_fraction:{fraction}" if fraction else "per_process_memory_fraction"
    return Conclusion(
        "DF504",
        f"PyTorch refused the request before it asked the driver, as {setting} and throw_on_cudamalloc_oom tell it "
        f"to.{asked}",
        f"Raise the fraction, or lower the peak below it: {facts.smaller}.",
    )


def _runtime_error(facts: Facts) -> Conclusion:
    held = facts.held_bytes
    if held is None:
        known = "The text has no numbers."
    else:
        known = f"PyTorch's allocator held {size(held)}, {size(facts.message.allocated_bytes)} of it in tensors."
    blocking = "AMD_SERIALIZE_KERNEL=3" if facts.message.backend == "hip" else "CUDA_LAUNCH_BLOCKING=1"
    return Conclusion(
        "DF507",
        "The driver ran out of memory outside of PyTorch's allocator: as it made its context, loaded a kernel or "
        f"pinned host memory, or in an extension. {known} The line that is named may be a later one than the one "
        "that failed.",
        f"Run {who_has_it(facts)} before the program starts: if the card is in use, that is why; if not, run it once "
        f"with {blocking} and see which line it is.",
    )


def _without_numbers(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF507",
        f"{facts.device} ran out of memory; a message of this form gives no numbers.",
        "Take a newer PyTorch, whose error has the numbers (1.0 and later), or print torch.cuda.memory_allocated() "
        "where it is caught.",
    )


def _wrapped(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF507",
        f"{facts.device} ran out of memory in one of DataParallel's replicas, and the text ends before its error.",
        "Give the whole traceback: the error itself is its last line.",
    )


def _xpu_driver(facts: Facts) -> Conclusion:
    if facts.message.certainty == "certain":
        return _without_numbers_of_driver(facts)
    return Conclusion(
        "DF508",
        "The driver says that it is out of resources. Mostly that is the GPU's memory; kernels that need too many "
        "registers end so too.",
        "Halve the batch once: if the error goes, it was memory, and lowering the peak mends it.",
    )


def _without_numbers_of_driver(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF507",
        "Intel's driver ran out of the GPU's memory and ended the program; it gives no numbers.",
        "Watch the GPU beside a second run (`xpu-smi stats`), and lower the peak.",
    )


def _nccl(facts: Facts) -> Conclusion:
    asked = "memory for itself"
    if facts.message.requested_bytes is not None:
        asked = f"{size(facts.message.requested_bytes)} for itself"
    advice = (
        "Leave it room: call torch.cuda.set_per_process_memory_fraction(0.95) at the start, so that PyTorch gives back "
        "what it does not use before the card is full."
    )
    if "per_process_memory_fraction" in allocator_settings(facts.settings):
        advice = f"Lower the memory fraction further, or the peak: {facts.smaller}."
    return Conclusion(
        "DF505",
        f"NCCL found no room on the card: it wanted {asked}. PyTorch's allocator keeps what it has freed and does not "
        "know that NCCL asks, so a card can be full of unused segments.",
        advice,
    )


def _cudnn_outside(facts: Facts) -> Conclusion:
    advice = (
        "Call torch.cuda.memory.set_per_process_memory_fraction(0.95) at the start, so that PyTorch leaves a part of "
        "the card to libraries."
    )
    if "per_process_memory_fraction" in allocator_settings(facts.settings):
        advice = "Lower the memory fraction further, or make inputs of fewer different shapes."
    return Conclusion(
        "DF505",
        "cuDNN found no room on the card to compile a kernel for a new shape; its memory is outside of PyTorch's "
        "allocator.",
        advice,
    )


def _library(facts: Facts) -> Conclusion:
    named = {"triton": "Triton found no room to load a kernel", "cudnn": "cuDNN found no room for its workspace"}
    return Conclusion(
        "DF505",
        f"{named[facts.message.format]}: PyTorch's tensors and its cache left none.",
        f"Lower the peak: {facts.smaller}.",
    )


def _likely_library(facts: Facts) -> Conclusion:
    if facts.message.certainty == "certain":
        return _library(facts)
    name = {"cublas": "cuBLAS, or a library like it,", "cudnn": "cuDNN"}[facts.message.format]
    return Conclusion(
        "DF508",
        f"{name} could not start or found no way to compute it. It does not say why; mostly there is no memory left "
        "on the card for it, now and then libraries of versions that do not go together.",
        "Halve the batch once: if the error goes, it was memory, and lowering the peak mends it; if it stays, look at "
        "the versions (`python -m torch.utils.collect_env`).",
    )


def _under_pressure(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF508",
        "The allocator lost count of an expandable segment, or the driver could not answer. Both come up when the "
        "card is full; after it every further allocation of the process fails too.",
        f"Start the process anew and lower the peak: {facts.smaller}.",
    )


def _expandable_segment(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF507",
        f"{facts.device}: the driver had no memory for more pages of an expandable segment. This is a warning; the "
        "error that follows it has the numbers.",
        "Give the error that follows it.",
    )


def _mps_buffer(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF504",
        f"One buffer of {size(facts.message.requested_bytes)} is larger than Metal makes on this Mac, however much is "
        "free.",
        "Compute it in parts: the limit is the device's maxBufferLength.",
    )


def _host(facts: Facts) -> Conclusion:
    requested = facts.message.requested_bytes
    if requested is not None and requested >= _NO_HOST_HAS_BYTES:
        return Conclusion(
            "DF506",
            f"One tensor in the host's memory was to have {size(requested)}: no machine has that.",
            "Look at the shape there: it is rather a mistake than a need, such as (n, 1) with (n,), or a size read "
            "from the wrong place.",
        )
    asked = f" {size(requested)} were asked for." if requested is not None else ""
    small = ""
    if requested is not None and requested < GIB:
        small = " So small a request fails only when the rest is used up already, or when Windows' page file is small."
    return Conclusion(
        "DF506",
        f"The host's memory ran out, not the card's.{asked}{small}",
        "See what fills it: `free -h` beside the run, and the number of the loader's workers times their prefetched "
        "batches, pinned and offloaded tensors, and checkpoints loaded to the CPU first.",
    )


def _host_killed(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF506",
        "The host's memory ran out, and the system killed the process that used it; the card has no part in it.",
        "Use fewer workers or a smaller prefetch_factor in the DataLoader, or give the job more memory.",
    )


def _host_shared(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF506",
        "The loader's workers ran out of shared memory (/dev/shm), through which they hand over batches.",
        "Give the container more of it (docker run --shm-size=16g, or --ipc=host), or use fewer workers.",
    )


def _host_mapping(facts: Facts) -> Conclusion:
    return Conclusion(
        "DF506",
        f"The host had no room to map {size(facts.message.requested_bytes)}: its memory, or the limit of the process "
        "(ulimit -v), ran out.",
        "Load the file in parts, or raise the limit.",
    )


def _not(why: str, then: str) -> Callable[[Facts], Conclusion]:
    return lambda facts: Conclusion("DF509", why, then)


_BY_FORM: dict[str, Callable[[Facts], Conclusion]] = {
    "runtime error": _runtime_error,
    "cuda 0.4": _without_numbers,
    "data parallel": _wrapped,
    "xpu driver": _xpu_driver,
    "xpu allocation limit": xpu_allocation_limit,
    "nccl": _nccl,
    "cudnn outside": _cudnn_outside,
    "triton": _library,
    "cudnn": _likely_library,
    "cublas": _likely_library,
    "allocator under pressure": _under_pressure,
    "expandable segment": _expandable_segment,
    "mps buffer": _mps_buffer,
    "host": _host,
    "host array": _host,
    "host mapping": _host_mapping,
    "host killed": _host_killed,
    "host shared memory": _host_shared,
    "absurd size": _not(
        "The size that was asked for is an exbibyte or more: no program wants that. It is what is left of another "
        "failure, such as a collective that timed out, or a size below zero.",
        "Look for the first error in the log, before this one, on every rank.",
    ),
    "launch resources": _not(
        "A kernel was to run with more threads or registers than a multiprocessor has; memory has no part in it.",
        "Look at the kernel's block size, or at an extension built for another card.",
    ),
    "driver version": _not(
        "The driver is older than this build of PyTorch needs; memory has no part in it.",
        "Update the driver, or install a PyTorch for an older CUDA.",
    ),
    "illegal access": _not(
        "A kernel read or wrote outside of its tensors; that is a mistake in an index or in a kernel, and no lack of "
        "memory.",
        "Run it with CUDA_LAUNCH_BLOCKING=1 to see which operation it is, and check the indices there.",
    ),
    "shared memory of a kernel": _not(
        "A Triton kernel wants more of a multiprocessor's own shared memory than there is; the card's memory has no "
        "part in it.",
        "Take smaller blocks or fewer stages in the kernel.",
    ),
    "batch finder": _not(
        "This is how a search for a batch size ends when every size failed; why they failed is said before it.",
        "Look for the first error in the log, before this one.",
    ),
    "disk full": _not(
        "A disk, or /dev/shm, is full; no memory of the card or the host was refused.",
        "Make room there (`df -h`), or write elsewhere.",
    ),
}

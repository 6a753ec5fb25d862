"""The causes that the numbers of an allocator's message prove or rule out."""

from __future__ import annotations

from dataclasses import dataclass

from dryfit.oom.amounts import least, most
from dryfit.oom.conclusion import USUAL_OUTSIDE_BYTES, Conclusion, Facts, percent, size
from dryfit.oom.next_steps import is_before, joined, look_at_the_shape, raised_limit, who_has_it
from dryfit.units import GIB, MIB

# One in so many of the device's bytes is worth a change of settings; less is used up by the next requests.
_WORTH_A_CHANGE = 20
# Above it a driver for Intel's GPUs refuses a single allocation, unless it is told otherwise.
_XPU_ALLOCATION_BYTES = 4 * GIB
_RELAXED = "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS"
_WATERMARK = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause that would have made room, had it not been."""

    won_bytes: int
    conclusion: Conclusion


def metal_limit(facts: Facts) -> Conclusion | None:
    """MPS refuses by its own count, before the Mac runs out."""
    message = facts.message
    if message.backend != "mps" or message.allocated_bytes is None:
        return None
    requested, other = message.requested_bytes or 0, message.other_bytes or 0
    used = f"{size(message.allocated_bytes)} in PyTorch's buffers and {size(other)} of other Metal memory"
    if message.allowed_bytes is None:
        return Conclusion(
            "DF501",
            f"The Mac itself ran out, with the limit of MPS lifted: the program has {used}, and asked for "
            f"{size(message.requested_bytes)} more.",
            f"Set {_WATERMARK} no more, so that the program fails before the system does, and lower the peak: smaller "
            "batches, and shorter or smaller inputs, come first.",
        )
    if requested > message.allowed_bytes:
        return Conclusion(
            "DF501",
            f"One request of {size(requested)} is larger than all that MPS may take on this Mac, "
            f"{size(message.allowed_bytes)}.",
            f"{look_at_the_shape(requested, message.allowed_bytes)}Compute it in parts.",
        )
    sum_bytes = message.allocated_bytes + other + requested
    if most(sum_bytes) + 32 * MIB < message.allowed_bytes:
        return Conclusion(
            "DF507",
            f"MPS could not get {size(requested)}, though with {used} it is below its limit of "
            f"{size(message.allowed_bytes)}: the Mac's memory was taken by other programs, or lies in pieces.",
            "Close what else uses memory (Activity Monitor, Memory) and run it again.",
        )
    claim = (
        f"MPS may take {size(message.allowed_bytes)} on this Mac, and {size(requested)} more would go over it: there "
        f"are {used}."
    )
    if facts.settings.get(_WATERMARK):
        return Conclusion(
            "DF504", claim, f"Take {_WATERMARK}={facts.settings[_WATERMARK]} out: the default is 1.7, not less."
        )
    whose = ""
    if other > message.allocated_bytes:
        whose = " Most of it is not in tensors: it is this process's graphs, and room in Metal's heaps."
    return Conclusion(
        "DF504",
        claim + whose,
        "Lower the peak: smaller batches, and shorter or smaller inputs, come first. Do not lift the limit: it is 1.7 "
        "times what Metal recommends for this Mac, and above it the whole system runs out.",
    )


def request_above_total(facts: Facts) -> Conclusion | None:
    """No state of the device could have served it."""
    message = facts.message
    if message.requested_bytes is None or message.total_bytes is None:
        return None
    if least(message.requested_bytes) <= most(message.total_bytes):
        return None
    more = ""
    if message.allocated_bytes is not None and message.allocated_bytes > message.total_bytes:
        more = (
            f" PyTorch has {size(message.allocated_bytes)} already, more than the card: the driver, as Windows' does, "
            "lends it the host's memory."
        )
    return Conclusion(
        "DF501",
        f"One request of {size(message.requested_bytes)} is larger than the whole device: {facts.device} has "
        f"{size(message.total_bytes)}.{more}",
        look_at_the_shape(message.requested_bytes, message.total_bytes)
        + "Compute it in parts: no setting and no freed memory makes room for it.",
    )


def limited(facts: Facts) -> Conclusion | None:
    """A limit refused what the device could give."""
    message = facts.message
    requested, allowed, held = message.requested_bytes, message.allowed_bytes, facts.held_bytes
    if requested is None:
        return None
    # Where the driver has no room either, raising the limit mends nothing. Its own pool may have some.
    has_room = message.free_bytes is None or least(message.free_bytes) >= most(requested)
    could_be_had = has_room or message.format == "malloc-async"
    if allowed is not None and held is not None and most(held) + most(requested) > least(allowed) and could_be_had:
        free = ""
        if message.free_bytes is not None:
            free = f" The driver has {size(message.free_bytes)} free."
        return Conclusion(
            "DF504",
            f"{facts.device}: a memory fraction allows PyTorch {size(allowed)}. It holds {size(held)}, and "
            f"{size(requested)} more would go over it.{free}",
            raised_limit(facts),
        )
    if message.backend == "xpu" and requested > _XPU_ALLOCATION_BYTES and message.free_bytes is not None and has_room:
        return xpu_allocation_limit(facts)
    return None


def xpu_allocation_limit(facts: Facts) -> Conclusion:
    """Intel's driver refuses large single allocations."""
    free = ""
    if facts.message.free_bytes is not None:
        free = f" It has {size(facts.message.free_bytes)} free."
    if facts.settings.get(_RELAXED, "0") == "0":
        advice = f"Set {_RELAXED}=1, or compute it in parts."
    else:
        advice = f"Compute it in parts: {_RELAXED} is set, and this driver or device keeps to the limit."
    return Conclusion(
        "DF504",
        f"{facts.device}: one request of {size(facts.message.requested_bytes)} is above the 4 GiB that Intel's driver "
        f"gives in one piece.{free}",
        advice,
    )


def above_its_total(facts: Facts) -> Conclusion | None:
    """PyTorch has more than the device: its driver lends the host's memory."""
    message = facts.message
    if message.allocated_bytes is None or message.total_bytes is None:
        return None
    if least(message.allocated_bytes) <= most(message.total_bytes):
        return None
    return Conclusion(
        "DF501",
        f"{facts.device} has {size(message.total_bytes)}, and PyTorch {size(message.allocated_bytes)} in tensors: the "
        "driver, as Windows' does, lends it the host's memory, many times slower, and that ran out too. The program "
        f"needs {size(message.allocated_bytes + (message.requested_bytes or 0))} at this place.",
        f"Lower the peak to what the card has: {facts.smaller}.",
    )


def unexplained(facts: Facts) -> Conclusion | None:
    """The device had more free than was wanted, or the message says too little."""
    message = facts.message
    requested, free, total, held = message.requested_bytes, message.free_bytes, message.total_bytes, facts.held_bytes
    if requested is None or total is None or held is None:
        return Conclusion(
            "DF507",
            f"{facts.device} ran out of memory, and the text ends before the numbers that would say why."
            + (f" {size(requested)} were asked for." if requested is not None else "")
            + (f" PyTorch held {size(held)}." if held is not None else ""),
            "Give the whole message, up to «See documentation for Memory Management».",
        )
    if free is None:
        if held + requested + total // 5 < total:
            return Conclusion(
                "DF507",
                f"{facts.device} has {size(total)}; PyTorch holds {size(held)} of it and could not get "
                f"{size(requested)} more. The text does not say who has the rest.",
                f"See who has it: {who_has_it(facts)}.",
            )
        return None
    if least(free) < most(requested):
        return None
    if free * _WORTH_A_CHANGE < total:
        return None  # as full as a device gets: the driver gives memory by pages, and keeps some
    hidden = ""
    if message.allowed_bytes is None and is_before(message.format, (2, 3)):
        hidden = "; a memory fraction, which this version of PyTorch does not always print"
    return Conclusion(
        "DF507",
        f"{facts.device}: the driver refused {size(requested)} with {size(free)} free, so the device was not full. "
        f"PyTorch holds {size(held)} of {size(total)}. Left as causes: another process had the memory at that moment"
        f"{hidden}; on Windows, and on chips that share memory with the CPU, the host's memory or page file ran out.",
        "Run it again and watch the device and the host's memory beside it: "
        f"{who_has_it(facts)}, and on Windows Task Manager's «committed».",
    )


def another_holder(facts: Facts) -> list[Candidate]:
    """Memory of the device that PyTorch's allocator does not have: other processes', and this one's libraries'."""
    message = facts.message
    if facts.outside_bytes is None:
        return []
    others = sum(each for _, each in message.other_processes)
    own_outside = max((message.process_bytes or 0) - (facts.held_bytes or 0), 0)
    found = []
    if _would_do(facts, others):
        found.append(Candidate(others, _another_process(facts, others)))
    if message.process_bytes is not None and _would_do(facts, own_outside - USUAL_OUTSIDE_BYTES):
        found.append(Candidate(own_outside - USUAL_OUTSIDE_BYTES, _libraries(facts, own_outside)))
    return found


def somebody(facts: Facts) -> Conclusion | None:
    """Memory of the device that the message ascribes to nobody, where nothing that it does name is the cause."""
    message = facts.message
    if facts.outside_bytes is None:
        return None
    listed = sum(each for _, each in message.other_processes)
    listed += max((message.process_bytes or 0) - (facts.held_bytes or 0), 0)
    unlisted = facts.outside_bytes - listed
    return _somebody(facts, unlisted) if _would_do(facts, unlisted - USUAL_OUTSIDE_BYTES) else None


def fragmented(facts: Facts) -> list[Candidate]:
    """Enough in all, in pieces.

    At the failure PyTorch has given back every segment without a tensor in it. So what is unused lies between tensors,
    and no piece of it that the request could go to is large enough. Together with what the driver has free it is.
    """
    unused = facts.message.unused_bytes
    if unused is None or not _would_do(facts, unused):
        return []
    return [Candidate(unused, _fragmentation(facts, unused))]


def too_big(facts: Facts) -> Conclusion:
    """What is left: the device is full of this program's tensors."""
    message = facts.message
    total, free, held = message.total_bytes or 0, message.free_bytes or 0, facts.held_bytes or 0
    allocated = held if message.allocated_bytes is None else message.allocated_bytes
    requested = message.requested_bytes or 0
    missing = max(requested - free, 0)
    claim = (
        f"{facts.device} is full: of its {size(total)} this program has {size(allocated)} in tensors "
        f"({percent(allocated, total)}), {_and_asked(facts)}, and {size(free)} are free."
    )
    if message.free_bytes is None:
        claim = (
            f"{facts.device} has {size(total)}; this program has {size(allocated)} of it in tensors and asked for "
            f"{size(requested)} more."
        )
    if message.unused_bytes and least(message.unused_bytes) + least(free) >= requested > free:
        claim += (
            f" {size(message.unused_bytes)} lie unused between tensors ({percent(message.unused_bytes, total)}): "
            "that can have failed this request, but joining them would soon be used up too."
        )
    others = sum(each for _, each in message.other_processes)
    if others:
        claim += f" Other processes have {size(others)}, too little to matter here."
    if message.allowed_bytes is not None and held + requested > message.allowed_bytes:
        claim += f" Raising the limit of {size(message.allowed_bytes)} would not mend it."
    if requested * 3 > total:
        advice = f"Look at this request first: it alone is {percent(requested, total)} of the device. {facts.smaller}."
    else:
        advice = f"Lower the peak, by {size(missing or requested)} at the least: {facts.smaller}."
    return Conclusion("DF501", claim, advice)


def _would_do(facts: Facts, won_bytes: int) -> bool:
    """Whether so much more would have served the request, and is worth a change."""
    message = facts.message
    assert message.total_bytes is not None
    requested, free = message.requested_bytes or 0, message.free_bytes or 0
    if won_bytes * _WORTH_A_CHANGE < message.total_bytes:
        return False
    return least(won_bytes) + least(free) >= requested


def _another_process(facts: Facts, others: int) -> Conclusion:
    message = facts.message
    each = sorted(message.other_processes, key=lambda process: -process[1])
    named = ", ".join(f"process {pid} {size(held)}" for pid, held in each[:4])
    of_ranks = ""
    if message.rank is not None:
        of_ranks = " If it is a rank of this program, give each its own: torch.cuda.set_device(local_rank)."
    more = f" and {len(each) - 4} more" if len(each) > 4 else ""
    return Conclusion(
        "DF503",
        f"{facts.device} is not this program's alone: of {size(message.total_bytes)} other processes have "
        f"{size(others)} ({named}{more}), PyTorch here {size(facts.held_bytes)}. Without them the request of "
        f"{size(message.requested_bytes)} would have been served.",
        f"See what process {each[0][0]} is and end it, or take another card: {who_has_it(facts)}.{of_ranks}",
    )


def _somebody(facts: Facts, unlisted: int) -> Conclusion:
    message = facts.message
    if message.format == "malloc-async":
        return Conclusion(
            "DF507",
            f"{facts.device}: of {size(message.total_bytes)} PyTorch has {size(message.allocated_bytes)} in tensors, "
            f"and {size(message.free_bytes)} are free. The rest, {size(unlisted)}, is another process's, or freed and "
            "still kept by cudaMallocAsync's pool; the text does not say which.",
            f"See whether another process has it: {who_has_it(facts)}. If none does, leave "
            "backend:cudaMallocAsync out, so that PyTorch's own allocator says what it keeps.",
        )
    shared = ""
    if message.backend in ("hip", "xpu"):
        shared = " On a chip that shares its memory with the CPU that includes all other programs."
    return Conclusion(
        "DF503",
        f"{facts.device}: of {size(message.total_bytes)} PyTorch here holds {size(facts.held_bytes)}, and "
        f"{size(message.free_bytes)} are free. The other {size(unlisted)} belong to somebody else: another process, or "
        f"a library of this one that takes memory by itself.{shared}",
        f"See who has it: {who_has_it(facts)}.",
    )


def _libraries(facts: Facts, own_outside: int) -> Conclusion:
    message = facts.message
    return Conclusion(
        "DF505",
        f"{facts.device}: this process has {size(message.process_bytes)}, and PyTorch's allocator only "
        f"{size(facts.held_bytes)} of it. The other {size(own_outside)} are the CUDA context's and of libraries that "
        "take memory by themselves; a context alone is below 1 GiB.",
        "Find the library: NCCL (fewer process groups, NCCL_NVLS_ENABLE=0), or one that allocates for itself, such as "
        "an extension, JAX, TensorFlow or a second framework in the same process.",
    )


def _fragmentation(facts: Facts, unused: int) -> Conclusion:
    message = facts.message
    assert message.total_bytes is not None
    claim = (
        f"{facts.device} has room, in pieces: {size(message.requested_bytes)} were asked for, "
        f"{size(message.free_bytes)} are free, and {size(unused)} ({percent(unused, message.total_bytes)} of the "
        "device) lie unused between tensors, in pieces that are too small for it."
    )
    return Conclusion("DF502", claim, joined(facts))


def _and_asked(facts: Facts) -> str:
    """What was asked for; a segment of 2 or 20 MiB stands for any smaller tensor."""
    requested = facts.message.requested_bytes
    asked = f"asked for {size(requested)}"
    if facts.message.format == "malloc-async":
        return asked
    if requested == 2 * MIB:
        return f"{asked} (a segment, for a tensor of up to 1 MiB)"
    if requested == 20 * MIB:
        return f"{asked} (a segment, for a tensor of 1 to 10 MiB)"
    return asked

"""One attempt at something that may run out of memory, after which nothing of it is held."""

from __future__ import annotations

import gc
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dryfit.train.device_memory import devices_in_use, give_back_unused, memory_of
from dryfit.train.out_of_memory import is_out_of_memory
from dryfit.units import MIB, format_bytes

Found = TypeVar("Found")

# What libraries keep from their first call on, such as cuBLAS's workspaces: 32 MiB on Hopper for each of two threads.
_WORKSPACES_BYTES = 128 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that ran out of memory.

    `allocated_bytes` is what tensors held when it did, and `left_bytes` what of that was still held once all was freed
    that could be.
    """

    error: Exception
    allocated_bytes: int
    left_bytes: int


def attempt(run: Callable[[], Found], undo: Callable[[], None]) -> Found | Failure:
    """Give what `run` returns; or, if memory ran out, undo it, free what the error holds, and give that failure.

    Any other error passes through.
    """
    held_before = _allocated_bytes()
    try:
        return run()
    except Exception as caught:
        if not is_out_of_memory(caught):
            raise
        error, allocated_bytes = caught, _allocated_bytes()
    # Only here, as the interpreter holds the error, and so the variables of all functions it left, within `except`.
    _clear_variables(error)
    undo()
    gc.collect()
    give_back_unused()
    return Failure(error=error, allocated_bytes=allocated_bytes, left_bytes=_allocated_bytes() - held_before)


def tell_smaller(failures: Sequence[tuple[int, Failure]], micro_batch: int, pieces: int) -> str:
    """Say what has failed, each with its number of samples, and with what it went on."""
    tried, failure = failures[0]
    return (
        f"Memory ran out with {_samples(tried)} at once{_numbers(failure)}. From now on at most "
        f"{_samples(micro_batch)} go through at a time, this batch in {pieces} pieces, with the gradient of the whole "
        f"batch. Give start={micro_batch}, or what `dryfit fit --output` saves, to begin with that.{_left(failures)}"
    )


def tell_end(failures: Sequence[tuple[int, Failure]]) -> str:
    """Say that not even a single sample fits."""
    first = failures[0][0]
    tried = f"it was tried with {_samples(first)} at first, and halved from there" if first > 1 else "as the batch is"
    return (
        f"dryfit: memory ran out with a single sample at once{_numbers(failures[-1][1])}; {tried}. A smaller batch "
        f"cannot help; `dryfit plan` finds what does.{_left(failures)}"
    )


def add_note(error: Exception, note: str) -> None:
    """Add a sentence to what is shown of an error."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.args = (f"{error}\n{note}", *error.args[1:])


def _clear_variables(error: BaseException) -> None:
    """Clear the variables of all functions that the error, and those before it, have left."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        at = waiting.pop()
        if at is not None and id(at) not in seen:
            seen.add(id(at))
            traceback.clear_frames(at.__traceback__)
            waiting += (at.__cause__, at.__context__)


def _allocated_bytes() -> int:
    return sum(memory_of(device).allocated_bytes for device in devices_in_use())


def _samples(count: int) -> str:
    return f"{count} sample{'s' if count > 1 else ''}"


def _numbers(failure: Failure) -> str:
    asked = re.search(r"Tried to allocate ([\d.]+ \w+)", str(failure.error))
    known = [f"{asked[1]} more were asked for"] if asked else []
    known += [f"tensors held {format_bytes(failure.allocated_bytes)}"] if failure.allocated_bytes else []
    return f" ({' when '.join(known)})" if known else ""


def _left(failures: Sequence[tuple[int, Failure]]) -> str:
    left_bytes = max(failure.left_bytes for _, failure in failures)
    if left_bytes <= _WORKSPACES_BYTES:
        return ""
    return (
        f" {format_bytes(left_bytes)} of what the attempt made are still held: something outside of the step keeps "
        f"them, such as a list, a hook, or whoever has logged the error."
    )

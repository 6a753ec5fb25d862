"""One attempt at something that may run out of memory, after which nothing of it is held."""

from __future__ import annotations

import gc
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dryfit.train.out_of_memory import is_out_of_memory
from dryfit.units import MIB, format_bytes
from dryfit.watching.device_memory import allocated_bytes, give_back_unused

Found = TypeVar("Found")

# What libraries keep from their first call on, such as cuBLAS's workspaces: 32 MiB on Hopper for each of two threads.
_WORKSPACES_BYTES = 128 * MIB


@dataclass(slots=True, kw_only=True)
class Failure:
    """An attempt that ran out of memory, with its error until that is let go.

    `allocated_bytes` is what tensors held when it did, `held_before_bytes` what they held before, and `left_bytes` what
    is held above that once all was freed that could be.
    """

    error: Exception | None
    message: str
    held_before_bytes: int
    allocated_bytes: int
    left_bytes: int = 0

    def let_go(self, undo: Callable[[], None]) -> None:
        """Undo the attempt, and free all that is held only by its error."""
        # Cleared, as someone else may keep the error, to log it; and dropped, as some take frames out of a traceback,
        # which the others still hold, and which cannot be cleared then.
        _clear_variables(self.error)
        self.error = None
        undo()
        gc.collect()
        give_back_unused()
        self.left_bytes = allocated_bytes() - self.held_before_bytes


def attempt(run: Callable[[], Found]) -> Found | Failure:
    """Give what `run` returns, or the failure if memory ran out; any other error passes through."""
    held_before_bytes = allocated_bytes()
    try:
        return run()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return Failure(
            error=error,
            message=str(error),
            held_before_bytes=held_before_bytes,
            allocated_bytes=allocated_bytes(),
        )


def tell_smaller(failures: Sequence[tuple[int, Failure]], micro_batch: int, pieces: int) -> str:
    """Say what has failed, each with its number of samples, and with what it went on."""
    tried, failure = failures[0]
    return (
        f"Memory ran out with {_samples(tried)} at once{_numbers(failure)}. From now on at most "
        f"{_samples(micro_batch)} go through at a time, this batch in {pieces} pieces, with the gradient of the whole "
        f"batch. Give start={micro_batch}, or what `dryfit fit --output` saves, to begin with that.{_left(failures)}"
    )


def tell_end(failures: Sequence[tuple[int, Failure]]) -> str:
    """Say why it is not tried with fewer samples."""
    first, (last, failure) = failures[0][0], failures[-1]
    numbers = _numbers(failure)
    if last > 1:
        return f"dryfit: memory ran out with {last} samples at once{numbers}, and halve=False keeps their number."
    tried = f"it was tried with {first} at first, and halved from there" if first > 1 else "the batch has no more"
    return (
        f"dryfit: memory ran out with a single sample at once{numbers}; {tried}. A smaller batch cannot help, and "
        f"`dryfit plan` finds what does.{_left(failures)}"
    )


def add_note(error: Exception, note: str) -> None:
    """Add a sentence to what is shown of an error."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.args = (f"{error}\n{note}", *error.args[1:])


def _clear_variables(error: BaseException | None) -> None:
    """Clear the variables of all functions that the error, and those before it, have left."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        at = waiting.pop()
        if at is not None and id(at) not in seen:
            seen.add(id(at))
            traceback.clear_frames(at.__traceback__)
            waiting += (at.__cause__, at.__context__)


def _samples(count: int) -> str:
    return f"{count} sample{'s' if count > 1 else ''}"


def _numbers(failure: Failure) -> str:
    asked = re.search(r"Tried to allocate ([\d.]+ \w+)", failure.message)
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

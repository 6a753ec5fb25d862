"""Out-of-memory messages in a text of any length."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from dryfit.oom.amounts import NO_SUCH_SIZE_BYTES, bytes_of
from dryfit.oom.device_numbers import numbers_of
from dryfit.oom.forms import DEVICES, Form, any_form, form_at
from dryfit.oom.lines import streams_of
from dryfit.oom.message import OomMessage
from dryfit.oom.traceback import line_that_failed

# A message with its tail is 1,000 characters, and 50 more for each further process on the device.
_LONGEST = 6_000
# From DataParallel's "Caught OutOfMemoryError in replica 0" to the error itself there is one traceback.
_LONGEST_TRACEBACK = 40_000
_WRAPPERS = ("data parallel", "replica")
# Forms without an allocator's numbers have a size at their beginning or none.
_HAS_SIZE = re.compile(r"[Aa]llocat|calloc|malloc|mmap|buffer size")
_SIZE_WITHIN, _LONGEST_LINE = 160, 600
_DEVICE = re.compile(DEVICES)
_REPLICA_DEVICE = re.compile(r"in replica \d{1,4} on device (\d{1,4})")


def read_messages(text: str) -> tuple[OomMessage, ...]:
    """All out-of-memory messages of a text, such as a whole log, in the order in which each first appears.

        for message in read_messages(Path("train.log").read_text()):
            print(message.format, message.rank, message.numbers)

    Knows every version of PyTorch from 0.4 to 2.14, CUDA, HIP, MPS, XPU and NPU, its allocator of cudaMallocAsync,
    cuBLAS, cuDNN, NCCL, Triton and the host's memory. What only looks like such a message (a size of an exbibyte, too
    many resources for a launch) is given too, with the certainty "not". Colours, timestamps and the prefixes of ranks
    are taken off; the same failure told several times is one message, with its count. Takes any text and raises
    nothing; the time is linear in its length.
    """
    messages = _messages_of(text)
    if not messages and "\n" in text and len(text) < _LONGEST_TRACEBACK:
        messages = _messages_of(text.replace("\r", "").replace("\n", ""))  # wrapped in the middle of its first words
    return _counted(messages)


def root_message(messages: tuple[OomMessage, ...]) -> OomMessage | None:
    """The message to explain: the first that is certain and has the most to say; None if there is none.

    After the first failure others follow from it: of other ranks, of NCCL, of what cleans up.
    """
    if not messages:
        return None
    order = {"certain": 0, "likely": 1, "not": 2}
    return min(messages, key=lambda message: (order[message.certainty], not message.numbers))


@dataclass(frozen=True, slots=True)
class _Found:
    form: Form
    start: int
    end: int


def _messages_of(text: str) -> list[OomMessage]:
    messages: list[tuple[int, OomMessage]] = []
    for stream in streams_of(text):
        whole = stream.text
        found = [
            _Found(form_at(whole, match.start()), match.start(), match.end()) for match in any_form().finditer(whole)
        ]
        if found:
            starts = list(accumulate(len(line) + 1 for line in stream.lines))
            for start, message in _read(whole, found):
                line = stream.line_numbers[bisect_right(starts, start)]
                place = line_that_failed(whole, start)
                messages.append((line, replace(message, rank=stream.rank, place=place)))
    return [message for _, message in sorted(messages, key=lambda found: found[0])]


def _read(text: str, found: list[_Found]) -> Iterator[tuple[int, OomMessage]]:
    """The messages of a stream, each with the place where it begins."""
    wrapper: _Found | None = None
    for each, following in zip(found, [*found[1:], None], strict=False):
        if each.form.name in _WRAPPERS:
            wrapper = each if following and following.start - each.end < _LONGEST_TRACEBACK else None
            if each.form.name == "data parallel" and (wrapper is None or _is_wrapper(following)):
                yield each.start, _message(each, text[each.start : each.end + 200])  # its own error is cut off
            continue
        end = min(each.start + _LONGEST, following.start if following else len(text))
        message = _message(each, text[each.start : end])
        if wrapper is not None and message.device is None:
            message = replace(message, device=_device_of(text[wrapper.start : wrapper.end + 200]))
        wrapper = None
        yield each.start, message


def _is_wrapper(found: _Found | None) -> bool:
    return found is not None and found.form.name in _WRAPPERS


def _message(found: _Found, text: str) -> OomMessage:
    form = found.form
    if form.name in ("allocator", "rejected", "mps", "malloc-async", "xpu allocation limit", "absurd size"):
        return numbers_of(form, text)
    named = _DEVICE.match(text) or _DEVICE.search(text[: found.end - found.start])
    backend = form.backend or (named[0].lower() if named else "cuda")
    beginning = text[: found.end - found.start]
    requested = bytes_of(" ".join(text[:_SIZE_WITHIN].split())) if _HAS_SIZE.search(beginning) else None
    if backend != "host" and requested is not None and requested >= NO_SUCH_SIZE_BYTES:
        requested = None
    rest = text[len(beginning) : _LONGEST_LINE].split("\n", 1)[0]
    return OomMessage(
        format=form.name,
        backend=backend,
        certainty=form.certainty,
        device=_device_of(text[:200]) if form.name in _WRAPPERS else None,
        requested_bytes=requested,
        text=" ".join(f"{beginning}{rest}".split()),
    )


def _device_of(text: str) -> int | None:
    found = _REPLICA_DEVICE.search(" ".join(text.split()))
    return int(found[1]) if found else None


def _counted(messages: list[OomMessage]) -> tuple[OomMessage, ...]:
    """Each failure once; that of a rank counts for one told without a rank, and the other way round."""
    by_numbers: dict[object, list[OomMessage]] = {}
    order: list[tuple[list[OomMessage], int]] = []
    for message in messages:
        alike = by_numbers.setdefault((message.format, message.device, tuple(message.numbers.items())), [])
        for at, other in enumerate(alike):
            if message.same_as(other):
                rank = other.rank if other.rank is not None else message.rank
                place = other.place or message.place
                alike[at] = replace(other, rank=rank, place=place, count=other.count + 1)
                break
        else:
            alike.append(message)
            order.append((alike, len(alike) - 1))
    return tuple(alike[at] for alike, at in order)

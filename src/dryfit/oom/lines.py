"""A log taken apart: its lines without colours and prefixes, each rank's together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\-_])")

# What launchers write before a line, and the rank in it where they tell one:
_RANK = re.compile(
    r"\[[Rr]ank:? ?(?P<python>\d{1,6})\](?:: ?|:? |(?=\[))"  # PyTorch 2.3 and later; Lightning writes [rank: 0]
    r"|\[[A-Za-z_]{1,20}(?P<torchrun>\d{1,4})\]: ?"  # torchrun --tee, by the role "default"
    r"|[Rr]ank ?(?P<plain>\d{1,6}) ?: ?"
    r"|\[\d{1,9},(?P<mpirun>\d{1,6})\]<std(?:out|err)>: ?"
)
_SRUN = re.compile(r" {0,4}(?P<srun>\d{1,4}): ?")  # srun --label, but so writes grep -n
_SOURCE = re.compile(
    r"(?P<source>\((?:[A-Za-z_][\w.:+-]{0,60} )?pid=\d{1,9}(?:, ip=[\w.:]{1,45})?\)"  # Ray's and vLLM's workers
    r"|[A-Za-z][\w.-]{0,60}(?<![Ee]rror)(?: {1,40}\|| ?\|)(?= ))"  # docker compose
    r" ?"
)
_NOTHING = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ,]{1,2}\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?: ?[-|:])? ?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]? {1,4}"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,8}\d{1,9} [^\s\]]{1,120}\] ?"
    r"|[>#│┃] {0,4}"
)
_PREFIXES_AT_MOST = 6

Labels = Literal["none", "ranks", "line numbers"]


@dataclass(slots=True)
class Stream:
    """What one rank, or one worker, wrote: its lines without what stands before them, and which lines they are."""

    rank: int | None
    lines: list[str] = field(default_factory=list)
    line_numbers: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def streams_of(text: str) -> list[Stream]:
    """The streams of a log, in the order in which they begin.

    Ranks that write at once share a log line by line; a message over several lines is whole only in its own stream.
    """
    lines = list(_lines_of(text))
    labels = _labels_of(lines)
    streams: dict[tuple[int | None, str], Stream] = {}
    for number, line in enumerate(lines):
        rank, source, content = _taken_apart(line, labels)
        stream = streams.get((rank, source))
        if stream is None:
            stream = streams[rank, source] = Stream(rank)
        stream.lines.append(content)
        stream.line_numbers.append(number)
    return list(streams.values())


def _lines_of(text: str) -> Iterable[str]:
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    # A lone carriage return is a progress bar that writes over itself.
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _taken_apart(line: str, labels: Labels) -> tuple[int | None, str, str]:
    """The rank, the worker and the rest of a line."""
    if not line:
        return None, "", ""
    rank: int | None = None
    source, at = "", 0
    for _ in range(_PREFIXES_AT_MOST):
        if found := _RANK.match(line, at):
            # [default1]:[rank5]: is rank 5, the second on its host.
            rank = _number(found)
        elif found := _SOURCE.match(line, at):
            source = found["source"]
        elif labels != "none" and at == 0 and (found := _SRUN.match(line)):
            rank = int(found["srun"]) if labels == "ranks" else None
        elif not (found := _NOTHING.match(line, at)):
            break
        at = found.end()
    return rank, source, line[at:]


def _number(found: re.Match[str]) -> int:
    return int(next(number for number in found.groups() if number is not None))


def _labels_of(lines: list[str]) -> Labels:
    """What `0: ` before lines is: the rank that srun writes, or the number of the line that grep does."""
    numbers = [int(found["srun"]) for found in _first_labels(lines)]
    if not numbers:
        return "none"
    counts_up = all(later == earlier + 1 for earlier, later in pairwise(numbers))
    return "line numbers" if len(numbers) > 2 and counts_up else "ranks"


def _first_labels(lines: list[str]) -> Iterator[re.Match[str]]:
    seen = 0
    for line in lines:
        if found := _SRUN.match(line):
            yield found
            seen += 1
            if seen == 200:
                return

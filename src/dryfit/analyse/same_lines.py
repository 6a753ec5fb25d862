"""Which source lines of two runs are the same, where the program was edited or copied between them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from dryfit.analyse.footprint import LineBytes

Place = tuple[str, int]
"""A file and the number of a line in it."""


def matched_lines(a: Iterable[LineBytes], b: Iterable[LineBytes]) -> dict[Place, Place]:
    """By place in b (file, line): its place in a."""
    before, after = _by_function(a), _by_function(b)
    renamed = _renamed_files({file for file, _ in before}, {file for file, _ in after})
    found = {}
    for (file, function), lines in after.items():
        old_file = renamed.get(file, file)
        for old_line, line in _matched_numbers(before.get((old_file, function), ()), lines):
            found[file, line] = old_file, old_line
    return found


def _by_function(lines: Iterable[LineBytes]) -> Mapping[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in lines:
        found[line.file, line.function].append(line.line)
    return found


def _renamed_files(before: set[str], after: set[str]) -> dict[str, str]:
    """Files that are in one of the two only, by their last part: of a program that was copied to another folder."""
    old, new = (
        {file: file.rpartition("/")[2] for file in files} for files in (sorted(before - after), sorted(after - before))
    )
    times = Counter([*old.values()]), Counter([*new.values()])
    by_name = {name: file for file, name in old.items() if times[0][name] == 1}
    return {file: by_name[name] for file, name in new.items() if name in by_name and times[1][name] == 1}


def _matched_numbers(before: Iterable[int], after: Iterable[int]) -> list[tuple[int, int]]:
    """Pairs of line numbers of one function: most have moved by the same count, the rest by others.

    >>> _matched_numbers([3, 5, 9], [4, 6, 12])
    [(3, 4), (5, 6), (9, 12)]
    """
    old, new, pairs = set(before), set(after), []
    while old and new:
        shifts = Counter(second - first for first in old for second in new)
        shift = max(shifts, key=lambda one: (shifts[one], -abs(one)))
        moved = [(first, first + shift) for first in sorted(old) if first + shift in new]
        pairs += moved
        old -= {first for first, _ in moved}
        new -= {second for _, second in moved}
    return sorted(pairs)

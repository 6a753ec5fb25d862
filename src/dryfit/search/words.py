"""A program's words with placeholders in them, and the values that take their place.

sweep = sweep_of(["train.py", "--batch", "{batch}", "--seq", "{seq}"], {"seq": "512,1024"})
sweep.searched, sweep.rows                      # 'batch', ({'seq': '512'}, {'seq': '1024'})
sweep.command(sweep.rows[0], 8)                 # ['train.py', '--batch', '8', '--seq', '512']
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dryfit.errors import UsageError

Vary = Mapping[str, str | Sequence[int] | Sequence[str]]

USUAL = "batch"
_DEFAULT_RANGE = range(1, 4097)
_MOST_ROWS = 64
_MOST_VALUES = 1 << 20
_PLACEHOLDER = re.compile(r"\{(\{?)([A-Za-z_]\w*)\}(\}?)")
_RANGE = re.compile(r"(\d{1,12})\.\.(\d{1,12})(?:\.\.(\d{1,12}))?")
_EXAMPLE = "dryfit fit --gpu l4 train.py --batch-size {batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is searched: `values`, ascending, of the placeholder `searched`, once for each of `rows`.

    A row has a word for each of the other placeholders; with none there is one row, and it is empty.
    """

    words: tuple[str, ...]
    searched: str
    values: Sequence[int]
    rows: tuple[dict[str, str], ...]

    def command(self, row: Mapping[str, str], value: int) -> list[str]:
        """The words with a value and a row's words in place of the placeholders; `{{name}}` becomes `{name}`."""
        return with_values(self.words, {**row, self.searched: str(value)})


def sweep_of(words: Sequence[str], vary: Vary) -> Sweep:
    """See which placeholders the words hold, which of them is searched, and over which values.

    It is the one that `vary` gives no values to, in 1..4096; if that gives values to all, the first that it names.

    Raises:
        UsageError: no placeholder, one without values, values without a placeholder, a range that cannot be read.
    """
    _refuse_expanded(words, vary)
    held = list(dict.fromkeys(name for word in words for name in placeholders_of(word)))
    if not held:
        raise UsageError(
            "There is nothing to search: no word of the program holds a placeholder. Write {batch} where the number "
            f"stands, as in: {_EXAMPLE}"
        )
    for name in vary:
        if name not in held:
            raise UsageError(
                f"--vary {name} has no place to go: no word of the program holds {{{name}}}; there "
                f"{'is' if len(held) == 1 else 'are'} {_listed(held)}."
            )
    searched = _searched(held, vary)
    values = _DEFAULT_RANGE if searched not in vary else numbers_of(searched, vary[searched])
    others = [name for name in vary if name != searched]
    rows = tuple(
        dict(zip(others, row, strict=True)) for row in itertools.product(*(_words_of(n, vary[n]) for n in others))
    )
    if len(rows) > _MOST_ROWS:
        raise UsageError(
            f"{_listed(others)} would make more than {_MOST_ROWS} rows, each a search of its own. "
            f"List fewer values, as in: --vary {others[0]}=512,1024,2048"
        )
    return Sweep(words=tuple(words), searched=searched, values=values, rows=rows)


def numbers_of(name: str, given: str | Sequence[int] | Sequence[str]) -> Sequence[int]:
    """The numbers to search, ascending: from "1..512", "8..512..8" (in steps of 8), "8,16,32", a range or a list.

    >>> numbers_of("batch", "1..512"), numbers_of("batch", "32,8,16"), numbers_of("batch", range(1, 4))
    (range(1, 513), [8, 16, 32], range(1, 4))

    Raises:
        UsageError: it is none of these, has no number in it, or one below 1.
    """
    shown = f"--vary {name}={given}" if isinstance(given, str) else f"vary={{{name!r}: {given!r}}}"
    if not isinstance(given, (str, Sequence)):
        raise UsageError(f"{shown} is neither a range nor a list of values; write '1..512' or [8, 16].")
    numbers: Sequence[int]
    if isinstance(given, str):
        numbers = _range_of(given, shown) or [_number(word, shown) for word in _words_of(name, given)]
    elif isinstance(given, range) and given.step > 0:
        numbers = given
    else:
        numbers = [_number(str(word), shown) for word in given]
    if not numbers:
        raise UsageError(f"{shown} has no value to try.")
    numbers = numbers if isinstance(numbers, range) else sorted(set(numbers))
    if numbers[0] < 1:
        raise UsageError(f"{shown} begins at {numbers[0]}; the smallest value that can be searched is 1.")
    if len(numbers) > _MOST_VALUES:
        raise UsageError(
            f"{shown} has {len(numbers)} values, and {_MOST_VALUES} are the most; give a step: 1..N..STEP."
        )
    return numbers


def _searched(held: Sequence[str], vary: Vary) -> str:
    without = [name for name in held if name not in vary]
    if not without:
        return next(iter(vary))
    if without == [USUAL] or (len(held) == 1 and not vary):
        return without[0]
    name = next(name for name in without if name != USUAL)
    raise UsageError(
        f"{{{name}}} stands for nothing: give it values, as in --vary {name}=1..512, or write {{{{{name}}}}} if the "
        f"program is to get {{{name}}} as it is."
    )


def _words_of(name: str, given: str | Sequence[int] | Sequence[str]) -> list[str]:
    if not isinstance(given, str):
        return [str(each) for each in given]
    shown = f"--vary {name}={given}"
    numbers = _range_of(given, shown)
    if numbers is not None:
        return [str(number) for number in numbers[: _MOST_ROWS + 1]]
    words = [word.strip() for word in given.split(",")]
    if not all(words):
        raise UsageError(f"{shown} has an empty value in it; write values with commas between: {name}=512,1024")
    return words


def _range_of(text: str, shown: str) -> range | None:
    if ".." not in text:
        return None
    if text.startswith("{"):
        raise UsageError(f"{shown}: a range is written without braces: {text.strip('{}')}")
    found = _RANGE.fullmatch(text)
    if not found:
        raise UsageError(f"{shown} is no range; write first..last, or first..last..step: 1..512, 8..512..8")
    first, last, step = (int(part) if part else 1 for part in found.groups())
    if first > last:
        raise UsageError(f"{shown} goes down; write the smaller number first: {last}..{first}")
    if step < 1:
        raise UsageError(f"{shown} has a step of 0; the smallest is 1.")
    return range(first, last + 1, step)


def _number(word: str, shown: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UsageError(
            f"{shown}: {word!r} is not a whole number, and the largest that fits is searched among numbers. Name the "
            "numbers first (--vary batch=1..512), and words for the rows of the table after them."
        ) from None


def placeholders_of(word: str) -> list[str]:
    """The names of the placeholders in a word, in order.

    >>> placeholders_of("out/{batch}-{seq}"), placeholders_of("{{name}}")
    (['batch', 'seq'], [])
    """
    return [name for opening, name, closing in _PLACEHOLDER.findall(word) if not (opening and closing)]


def with_values(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The words with values in place of the placeholders, each of which needs one; `{{name}}` becomes `{name}`.

    >>> with_values(["train.py", "--out={batch}-{{x}}"], {"batch": "8"})
    ['train.py', '--out=8-{x}']
    """
    return [_PLACEHOLDER.sub(lambda found: _replaced(found, values), word) for word in words]


def _replaced(found: re.Match[str], words: Mapping[str, str]) -> str:
    opening, name, closing = found.groups()
    if opening and closing:
        return f"{{{name}}}"
    return f"{opening}{words[name]}{closing}"


def _refuse_expanded(words: Sequence[str], vary: Vary) -> None:
    """A shell makes several words of batch={1..512}: the first becomes our option's, the others the program's."""
    for name in vary:
        if words and re.fullmatch(rf"{re.escape(name)}=\S+", words[0]):
            raise UsageError(
                f"The program begins with {words[0]}: the shell has made several words of a range in braces. "
                f"Write it without: --vary {name}=1..512"
            )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"{{{name}}}" for name in names)

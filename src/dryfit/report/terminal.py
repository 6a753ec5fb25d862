"""What the terminal reports share: a console, tables with a bold head, bars, and words that are safe to print."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TextIO

from dryfit.report.columns import aligned

if TYPE_CHECKING:
    from rich.console import Console

_NARROWEST = 60  # a line is not cut shorter than this; a narrower terminal wraps it


def open_console(file: TextIO | None = None) -> Console:
    """A console that prints words as they are; colour and width as the terminal has them, plain text elsewhere.

    Raises, as it prints:
        BrokenPipeError: the reader has closed the pipe.
    """
    from rich.console import Console

    class ConsoleForPipes(Console):
        def on_broken_pipe(self) -> None:  # rich's own ends the process, as if the program did not fit
            raise BrokenPipeError

    return ConsoleForPipes(file=file or sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)


def is_screen(console: Console) -> bool:
    """Whether lines end at a width: not in a pipe or file, even where colours are forced into it."""
    return console.is_terminal and console.file.isatty()


def plain(text: str) -> str:
    r"""Words of a program, which may hold anything, as one line that does nothing to a terminal.

    >>> plain("blocks.0"), plain("a\x1b[2Jb")
    ('blocks.0', 'a\\x1b[2Jb')
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def say(console: Console, line: str, style: str = "", tail_style: str = "", tail: int = 0) -> None:
    """Print a line, the last `tail` characters of it in a style of their own; on a terminal it is cut to the width."""
    from rich.text import Text

    line = plain(line).encode(console.encoding, "backslashreplace").decode(console.encoding)
    limit = max(console.width, _NARROWEST)
    if is_screen(console) and len(line) > limit:
        line, tail = line[: limit - 3] + "...", 0
    text = Text(line, style=style)
    if tail:
        text.stylize(tail_style, len(line) - tail)
    console.print(text)


def sentence(console: Console, line: str, style: str = "") -> None:
    """Print a sentence whole, however long it is."""
    from rich.text import Text

    console.print(Text(plain(line).encode(console.encoding, "backslashreplace").decode(console.encoding), style=style))


def table(
    console: Console,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    bar_styles: Sequence[str] = (),
    wrap_last: bool = False,
) -> None:
    """Print a blank line, a bold head and the rows, or nothing if there are no rows; empty columns are left out.

    With `bar_styles`, one a row, the last column is a bar in that style. With `wrap_last`, the last column is not cut
    on a terminal, but goes on in the next line.
    """
    if not rows:
        return
    used = [column for column in range(len(head)) if any(row[column] for row in rows)]
    rows = [[plain(row[column]) for column in used] for row in rows]
    right = [place for place, column in enumerate(used) if column in right]
    first, *lines = aligned([[head[column] for column in used], *rows], right=right)
    console.print()
    say(console, first, style="bold")
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if bar_styles:
            say(console, line, tail_style=bar_styles[number], tail=len(row[-1]))
        elif wrap_last and is_screen(console):
            for part in _wrapped(line, len(line) - len(row[-1]), console.width):
                say(console, part)
        else:
            say(console, line)


def _wrapped(line: str, start: int, width: int) -> list[str]:
    """Break the text that begins at `start`, its other lines beneath it; if it would be too narrow, beneath the row."""
    import textwrap

    indent = " " * (start if width - start >= _NARROWEST // 2 else 4)
    room = max(width, _NARROWEST)
    parts = textwrap.wrap(line[start:], room, initial_indent=line[:start], subsequent_indent=indent)
    return parts or [line.rstrip()]


def bar(console: Console, share: float, width: int = 24) -> str:
    """A bar for a share of 1; of blocks on a terminal that has them, of # elsewhere."""
    full = "\u2588" if is_screen(console) and console.encoding.startswith("utf") else "#"
    return full * max(round(share * width), 1 if share > 0 else 0)

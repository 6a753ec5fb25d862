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
    """A console that prints words as they are; colour and width as the terminal has them, plain text elsewhere."""
    from rich.console import Console

    return Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)


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
    if console.is_terminal and len(line) > limit:
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
) -> None:
    """Print a blank line, a bold head and the rows, or nothing if there are no rows.

    With `bar_styles`, one a row, the last column is a bar in that style.
    """
    if not rows:
        return
    first, *lines = aligned([head, *[[plain(cell) for cell in row] for row in rows]], right=right)
    console.print()
    say(console, first, style="bold")
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if bar_styles:
            say(console, line, tail_style=bar_styles[number], tail=len(row[-1]))
        else:
            say(console, line)


def bar(console: Console, share: float, width: int = 24) -> str:
    """A bar for a share of 1; of blocks on a terminal that has them, of # elsewhere."""
    full = "\u2588" if console.is_terminal and console.encoding.startswith("utf") else "#"
    return full * max(round(share * width), 1 if share > 0 else 0)

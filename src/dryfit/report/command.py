"""The command that rehearses a program once, to be shown for a person to run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def run_command(gpu: str, words: Sequence[str], measures: Sequence[str] = ()) -> str:
    """The command line, or the line of Python where the program is a function.

    >>> run_command("l4", ["train.py", "--batch", "8"], ["fused-optimizer"])
    'dryfit run --gpu l4 --with fused-optimizer train.py --batch 8'
    >>> run_command("l4", ["step(batch=8)"], ["fused-optimizer"])
    "dryfit.run(lambda: step(batch=8), gpu='l4', measures=['fused-optimizer'])"
    """
    if len(words) == 1 and words[0].endswith(")"):  # as `rehearse.callables.as_called` shows a function
        switched_on = f", measures={list(measures)}" if measures else ""
        return f"dryfit.run(lambda: {words[0]}, gpu={gpu!r}{switched_on})"
    switched_on = f" --with {','.join(measures)}" if measures else ""
    return f"dryfit run --gpu {shlex.quote(gpu)}{switched_on} {shlex.join(words)}"

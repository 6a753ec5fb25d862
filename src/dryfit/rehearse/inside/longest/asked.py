"""What `--longest` asks for, read from its text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dryfit.errors import UsageError

MAX = "max"
SAMPLES, BATCHES = "samples", "batches"  # what is looked at
USUAL_BATCHES = 100
_FORMS = "write nothing, or =max, =p99 (of 100 batches), =p99:500 or =max:500"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A percentile of the batches' sizes, 100 for the largest, and of how many batches.

    `batches` is 0 for the longest batch that can be made of the samples: these are looked at, and no batches drawn.
    """

    percentile: float
    batches: int


def asked_of(text: str) -> Asked:
    """Read what stands after `--longest=`.

    >>> asked_of("max"), asked_of("p99")
    (Asked(percentile=100.0, batches=0), Asked(percentile=99.0, batches=100))
    >>> asked_of("max:200")
    Asked(percentile=100.0, batches=200)

    Raises:
        UsageError: it is neither `max` nor a percentile, or the number of batches is none.
    """
    found = re.fullmatch(r"(?:max|p(\d+(?:\.\d+)?))(?::(\d+))?", text)
    if found is None:
        raise UsageError(f"--longest={text} cannot be read; {_FORMS}.")
    percentile = float(found[1]) if found[1] else 100.0
    if not 0 < percentile <= 100:
        raise UsageError(f"--longest={text} is no percentile: it is above 0 and at most 100; {_FORMS}.")
    if found[2] and int(found[2]) < 1:
        raise UsageError(f"--longest={text} looks at no batch; the number after the colon has to be 1 or more.")
    batches = int(found[2]) if found[2] else 0
    return Asked(percentile=percentile, batches=batches or (USUAL_BATCHES if found[1] else 0))


def checked(longest: bool | str) -> str:
    """The text of what `dryfit.run(longest=...)` was given: "" for False, "max" for True.

    Raises:
        UsageError: as `asked_of`.
    """
    text = {True: MAX, False: ""}.get(longest) if isinstance(longest, bool) else longest
    if text:
        asked_of(text)
    return text or ""

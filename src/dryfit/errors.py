"""Every error dryfit raises on purpose, and the exit code each becomes.

DryfitError                 70  our fault
 └─ UsageError               2  what was asked for cannot be done as it was written
     └─ UnknownCard             no card of that name; carries the nearest names

A program that fails, runs out of memory or meets a limit is no error of dryfit's: `Result.ending` says so, and
`Result.exit_code` how the command ends.
A message is prose: what happened, where, what was found against what was expected, and what to do next.
"""

from __future__ import annotations


class DryfitError(Exception):
    """An error whose message is meant for a person to read as it is."""

    exit_code = 70


class UsageError(DryfitError):
    """What was asked for cannot be done as it was written."""

    exit_code = 2


class UnknownCard(UsageError):
    """No card of that name is in the catalogue."""

    def __init__(self, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nearest = nearest

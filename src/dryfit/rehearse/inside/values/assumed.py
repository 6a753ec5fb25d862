"""What the person told us to assume, found for the line that asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

from dryfit.rehearse.assumptions import KINDS, UNUSED, USED, Assumption

Place = tuple[CodeType, int]


class Assumed:
    """The settings of `--assume`, and which places among them were asked.

    Example:
        Assumed(parse("nonzero=0.5,train.py:41=0.25")).setting("nonzero", [place])

    `fates` is, for each place, what `assumptions.notes` reads.
    """

    def __init__(self, assumptions: Sequence[Assumption] = ()) -> None:
        self._of_kind = {each.name: each for each in assumptions if not each.line}
        self._of_places = [each for each in assumptions if each.line]
        self._at: dict[Place, list[Assumption]] = {}
        self.fates = {str(each): UNUSED for each in self._of_places}

    @property
    def has_places(self) -> bool:
        """Whether it matters which line asks."""
        return bool(self._of_places)

    def setting(self, kind: str, places: Iterable[Place | None]) -> Assumption | None:
        """The setting for a kind of value, asked for at these lines: the first line's counts, and the kind's last."""
        for place in places:
            for each in self._given_for(place) if place is not None else ():
                if KINDS[kind].takes(each.value):
                    self.fates[str(each)] = USED
                    return each
                if self.fates[str(each)] == UNUSED:
                    self.fates[str(each)] = kind
        return self._of_kind.get(kind)

    def _given_for(self, place: Place) -> list[Assumption]:
        found = self._at.get(place)
        if found is None:
            code, line = place
            found = self._at[place] = [each for each in self._of_places if each.is_at(code.co_filename, line)]
        return found

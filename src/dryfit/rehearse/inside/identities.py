"""What is known of objects of the program, each for as long as it lives; none of them is kept alive, or asked."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class Identities(Generic[_Value]):
    """Values by the identity of objects: neither their `__eq__` nor their `__hash__` has a say.

    An entry goes as its object goes, so a later object in the same place is another one. Not for tensors: torch refuses
    to swap one that is weakly referenced (`torch.utils.swap_tensors`, by which `module.to` may work).
    """

    def __init__(self) -> None:
        self._values: dict[int, _Value] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self.by_id: Callable[[int], _Value | None] = self._values.get
        """The value for `id(object)`, where a call more would be felt."""

    def get(self, of: Any) -> _Value | None:
        """What was put for this very object; None if nothing was."""
        return self._values.get(id(of))

    def put(self, of: Any, value: _Value) -> None:
        """Keep a value, in place of the one before it."""
        number, values, references = id(of), self._values, self._references

        def forget(_: Any) -> None:
            values.pop(number, None)
            references.pop(number, None)

        references[number] = weakref.ref(of, forget)
        values[number] = value

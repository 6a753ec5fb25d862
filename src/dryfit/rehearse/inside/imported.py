"""What a process has imported that a fork server can import in its stead, and what it did to the environment."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from dryfit.rehearse.inside.imports import after_import, around_imports

_NOT_REPEATED = ("__main__", "__mp_main__", "dryfit.", "sitecustomize", "usercustomize")


class Imported:
    """Follows the imports of this process from now on; `facts()` says what they came to.

    A module that looks at the card when it is imported (bitsandbytes does) cannot be imported before it is known which
    card that is; nor can those that import it.
    """

    def __init__(self, looks_at_card: Callable[[], int], *, with_names: bool) -> None:
        self._with_names = with_names
        self._looks_at_card = looks_at_card
        self._looks_at_torch = 0  # which keeps what it has found out
        self._is_told = False
        self._have_looked: set[str] = set()
        self._environment = dict(os.environ)
        self._before_torch: dict[str, str] = {}
        self._has_torch = False
        if with_names:
            around_imports(self._importing)
        after_import("torch", self._torch_is_there)

    def facts(self) -> dict[str, Any]:
        """For the `modules` event: names in the order of their imports, and environment variables that have changed.

        The names `after_card` are those of modules that look at the card, or need one that does.
        """
        names = installed_modules() if self._with_names else []
        before_card = _without_those_that_need(self._have_looked, names)
        return {
            "names": before_card,
            "after_card": [name for name in names if name not in set(before_card)],
            "environment": changes(self._environment, dict(os.environ)),
            "before_torch": self._before_torch,
        }

    @contextlib.contextmanager
    def _importing(self, name: str) -> Iterator[None]:
        before = self._looks()
        try:
            with self._told_of_looks():
                yield
        finally:
            if self._looks() != before:
                self._have_looked.add(name)

    def _looks(self) -> int:
        return self._looks_at_card() + self._looks_at_torch

    @contextlib.contextmanager
    def _told_of_looks(self) -> Iterator[None]:
        if self._is_told or not self._has_torch:
            yield
            return
        from dryfit.rehearse.inside.torch_private import told_of_looks

        self._is_told = True
        try:
            with told_of_looks(self._looked_at_torch):
                yield
        finally:
            self._is_told = False

    def _looked_at_torch(self) -> None:
        self._looks_at_torch += 1

    def _torch_is_there(self, _: object) -> None:
        self._has_torch = True
        self._before_torch = changes(self._environment, dict(os.environ))


def installed_modules() -> list[str]:
    """The modules imported so far that belong to Python or to installed packages, in the order of their imports.

    >>> "json" in installed_modules(), "__main__" in installed_modules()
    (True, False)

    Only those whose import can be repeated: their name is that of their file.
    """
    installed = tuple(
        folder + os.sep for folder in map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")) if folder
    )
    found = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        if spec is None or spec.name != name or not isinstance(origin, str) or name.startswith(_NOT_REPEATED):
            continue
        if origin.startswith(installed):
            found.append(name)
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """The environment variables that are not as they were, with what they are now: "" for those that are gone.

    >>> changes({"A": "1", "B": "2"}, {"A": "3"})
    {'A': '3', 'B': ''}
    """
    names = dict.fromkeys([*after, *before])
    return {name: after.get(name, "") for name in names if before.get(name) != after.get(name)}


def _without_those_that_need(needed: set[str], names: list[str]) -> list[str]:
    """The modules that have nothing in them of these, nor of those that have: what they import is known by that."""
    if not needed:
        return names
    found = set(needed)
    grown = True
    while grown:
        before = len(found)
        found |= {name for name in names if name not in found and _has_something_of(found, name)}
        grown = len(found) > before
    return [name for name in names if name not in found]


def _has_something_of(others: set[str], name: str) -> bool:
    parts = name.split(".")
    if any(".".join(parts[:length]) in others for length in range(1, len(parts))):
        return True
    for value in list(vars(sys.modules[name]).values()):
        if isinstance(value, ModuleType):
            where = value.__name__
        else:  # of other things only their type is looked at: some warn, or import, when they are asked for anything
            of_module = isinstance(value, (type, FunctionType))
            where = (value if of_module else type(value)).__module__
        if where in others:
            return True
    return False

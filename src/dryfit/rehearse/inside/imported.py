"""What a process has imported that a fork server can import in its stead, and what it did to the environment."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from dryfit.rehearse.inside.imports import after_import, before_imports

_NOT_REPEATED = ("__main__", "__mp_main__", "dryfit.", "sitecustomize", "usercustomize")


class Imported:
    """Follows the imports of this process from now on; `facts()` says what they came to.

    A module that looks at the card when it is imported (bitsandbytes does) cannot be imported before it is known which
    card that is; nor can those that import it.
    """

    def __init__(self, card_is_settled: Callable[[], bool], *, with_names: bool) -> None:
        self._with_names = with_names
        self._card_is_settled = card_is_settled
        self._look_at_card: set[str] = set()
        self._environment = dict(os.environ)
        self._before_torch: dict[str, str] = {}
        if with_names:
            before_imports(self._look)
        after_import("torch", self._torch_is_there)

    def facts(self) -> dict[str, Any]:
        """For the `modules` event: names in the order of their imports, and environment variables that have changed."""
        return {
            "names": self._names(),
            "environment": changes(self._environment, dict(os.environ)),
            "before_torch": self._before_torch,
        }

    def _names(self) -> list[str]:
        if not self._with_names:
            return []
        return _without_those_that_need(self._look_at_card, installed_modules())

    def _look(self) -> None:
        if self._card_is_settled():
            # Where the program itself was the first to look, nothing is being imported then.
            self._look_at_card = {name for name, module in list(sys.modules.items()) if _is_being_imported(module)}
            before_imports(None)

    def _torch_is_there(self, _: object) -> None:
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


def _is_being_imported(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


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

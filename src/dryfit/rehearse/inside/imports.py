"""Calls a function right after a module has been imported, whoever imports it.

after_import("torch", place_hooks)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder):
    """Stands first on `sys.meta_path`, finds nothing itself, and wraps the loader of the modules waited for."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable[[ModuleType], None]]] = {}
        self.asked: Callable[[], None] | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self.asked is not None:
            self.asked()
        if fullname not in self.waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, fullname, self.waiting)
                return spec
        return None


class _Loader(Loader):
    """The real loader, and then the functions; it steps out of the way so that nobody meets it afterwards.

    The functions are taken when the module is executed: `importlib.util.find_spec` finds without importing.
    """

    def __init__(self, real: Loader, name: str, waiting: dict[str, list[Callable[[ModuleType], None]]]) -> None:
        self._real, self._name, self._waiting = real, name, waiting

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        for function in self._waiting.pop(self._name, []):
            function(module)


_finder = _Finder()


def after_import(name: str, function: Callable[[ModuleType], None]) -> None:
    """Call `function(module)` as soon as `name` has been imported; at once if it has been already.

    >>> seen = []
    >>> after_import("json", lambda module: seen.append(module.__name__)); seen
    ['json']
    """
    module = sys.modules.get(name)
    if module is not None:
        function(module)
        return
    _stand_first()
    _finder.waiting.setdefault(name, []).append(function)


def before_imports(function: Callable[[], None] | None) -> None:
    """Call `function()` whenever a module is about to be imported that has not been yet; None ends it."""
    _stand_first()
    _finder.asked = function


def _stand_first() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

"""Calls a function right after a module has been imported, whoever imports it.

after_import("torch", place_hooks)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder):
    """Stands first on `sys.meta_path`, finds nothing itself, and wraps the loader of the modules waited for."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable[[ModuleType], None]]] = {}
        self.around: Callable[[str], contextlib.AbstractContextManager[None]] | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting and self.around is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if fullname in self.waiting:
                    is_wrapped = spec.loader is not None
                else:
                    is_wrapped = isinstance(spec.loader, (SourceFileLoader, ExtensionFileLoader))
                if spec.loader is not None and is_wrapped:
                    spec.loader = _Loader(spec.loader, fullname, self)
                return spec
        return None


class _Loader(Loader):
    """The real loader, and then the functions; it steps out of the way so that nobody meets it afterwards.

    The functions are taken when the module is executed: `importlib.util.find_spec` finds without importing.
    """

    def __init__(self, real: Loader, name: str, finder: _Finder) -> None:
        self._real, self._name, self._finder = real, name, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        around = self._finder.around
        with around(self._name) if around is not None else contextlib.nullcontext():
            self._real.exec_module(module)
        for function in self._finder.waiting.pop(self._name, []):
            function(module)


class _Unfinished(ModuleSpec):
    """The spec of a module that is being imported right now: accelerate's, whose first lines import torch.

    importlib says with `_initializing`, a private name (3.10 to 3.14), that it is done with the module.
    """

    functions: list[Callable[[ModuleType], None]]

    @classmethod
    def of(cls, spec: ModuleSpec) -> _Unfinished:
        if not isinstance(spec, cls):
            spec.__class__ = cls
            assert isinstance(spec, cls)
            spec.functions = []
        return spec

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and not value:
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            module = sys.modules.get(self.name)
            if module is not None and module.__spec__ is self:  # the import has not failed
                for function in self.__dict__.pop("functions"):
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
        spec = module.__spec__
        if spec is not None and getattr(spec, "_initializing", False):
            _Unfinished.of(spec).functions.append(function)
        else:
            function(module)
        return
    _stand_first()
    _finder.waiting.setdefault(name, []).append(function)


def around_imports(function: Callable[[str], contextlib.AbstractContextManager[None]]) -> None:
    """Have every module whose code is in a file of its own executed within `function(its name)` from now on."""
    _stand_first()
    _finder.around = function


def _stand_first() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

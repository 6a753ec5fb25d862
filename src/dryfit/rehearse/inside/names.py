"""What the program calls its modules and tensors: "blocks.0.qkv", "blocks.0.qkv.weight".

The first model that is called names its parts as `named_modules()` does. Another model beside it (a teacher, the
generator of a GAN) has its class's name before that; one that takes the place of a model that is gone has its names.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

from dryfit.rehearse.inside.identities import Identities


class Names:
    """Paths of modules and names of parameters, given when a model is first called; keeps neither alive."""

    def __init__(self) -> None:
        self._paths: Identities[str] = Identities()
        self._roots: dict[str, weakref.ref[Any]] = {}
        # A parameter is known by the place where its module keeps it: a tensor is not to be referenced, even weakly.
        self._places: dict[int, tuple[weakref.ref[Any], str, str]] = {}

    def path_of(self, module: Any) -> str | None:
        """The path of a module, "" for the model itself; None if no model that has been named holds it."""
        return self._paths.get(module)

    def parameter_name(self, parameter: Any) -> str | None:
        """The name of a parameter; None if no model that has been named holds it."""
        known = self._places.get(id(parameter))
        if known is None:
            return None
        module = known[0]()
        return known[2] if module is not None and _held(module, known[1]) is parameter else None

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """What is now in the places of all named parameters."""
        for reference, key, name in list(self._places.values()):
            module = reference()
            if module is not None:
                parameter = _held(module, key)
                if parameter is not None:
                    yield name, parameter

    def name_model(self, model: Any) -> None:
        """Name the modules and parameters of a model that is about to be called; what has a name keeps it."""
        prefix = self._prefix_for(model)
        for path, module in modules_of(model):
            known = self._paths.get(module)
            if known is None:
                known = joined(prefix, path)
                self._paths.put(module, known)
            for key, parameter in parameters_of(module):
                if self.parameter_name(parameter) is None:
                    self._places[id(parameter)] = weakref.ref(module), key, joined(known, key)

    def _prefix_for(self, model: Any) -> str:
        known = self._paths.get(model)
        if known is not None:
            return known
        self._forget_what_is_gone()
        kind = type(model).__name__
        numbered = itertools.chain([kind], (f"{kind} {number}" for number in itertools.count(2)))
        prefix = next(name for name in numbered if name not in self._roots)
        if "" not in self._roots and has_parameters(model):
            prefix = ""
        self._roots[prefix] = weakref.ref(model)
        return prefix

    def _forget_what_is_gone(self) -> None:
        self._roots = {prefix: root for prefix, root in self._roots.items() if root() is not None}
        self._places = {number: place for number, place in self._places.items() if place[0]() is not None}


def modules_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield all modules of a model with their paths, as `named_modules()` does; nothing of the program's is called."""
    seen: set[int] = set()
    waiting = [("", model)]
    while waiting:
        path, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield path, module
            parts = list((getattr(module, "_modules", None) or {}).items())
            waiting.extend((joined(path, name), part) for name, part in reversed(parts) if part is not None)


def parameters_of(module: Any) -> list[tuple[str, Any]]:
    """The parameters that a module holds itself."""
    held = (getattr(module, "_parameters", None) or {}).items()
    return [(key, parameter) for key, parameter in held if parameter is not None]


def has_parameters(model: Any) -> bool:
    """Whether a module is a model, and not a loss."""
    return any(parameters_of(module) for _, module in modules_of(model))


def joined(prefix: str, path: str) -> str:
    """A path within another, either of which may be "".

    >>> joined("blocks.0", "weight"), joined("", "weight")
    ('blocks.0.weight', 'weight')
    """
    return f"{prefix}.{path}" if prefix and path else prefix or path


def _held(module: Any, key: str) -> Any:
    try:
        return module._parameters[key]
    except (AttributeError, KeyError):
        return None

"""What the program calls its modules and tensors: "blocks.0.qkv", "blocks.0.qkv.weight".

The first model that is called names its parts as `named_modules()` does. Another model beside it (a teacher, the
generator of a GAN) has its class's name before that.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any


class Names:
    """Paths of modules and names of parameters, given when a model is first called; keeps neither alive."""

    def __init__(self) -> None:
        self._paths: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._of_parameters: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._prefixes: dict[str, int] = {}
        self._has_a_model = False

    def path_of(self, module: Any) -> str | None:
        """The path of a module, "" for the model itself; None if no model that has been named holds it."""
        known = self._paths.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def parameter_name(self, parameter: Any) -> str | None:
        """The name of a parameter; None if no model that has been named holds it."""
        known = self._of_parameters.get(id(parameter))
        return known[1] if known is not None and known[0]() is parameter else None

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """All named parameters that are still alive."""
        for reference, name in list(self._of_parameters.values()):
            parameter = reference()
            if parameter is not None:
                yield name, parameter

    def name_model(self, model: Any) -> None:
        """Name the modules and parameters of a model that is about to be called; what has a name keeps it."""
        prefix = self._prefix_for(model)
        for path, module in model.named_modules():
            if self.path_of(module) is None:
                self._paths[id(module)] = weakref.ref(module), joined(prefix, path)
        for name, parameter in model.named_parameters():
            if self.parameter_name(parameter) is None:
                self._of_parameters[id(parameter)] = weakref.ref(parameter), joined(prefix, name)

    def _prefix_for(self, model: Any) -> str:
        known = self.path_of(model)
        if known is not None:
            return known
        if not self._has_a_model and next(model.parameters(), None) is not None:
            self._has_a_model = True
            return ""
        kind = type(model).__name__
        self._prefixes[kind] = number = self._prefixes.get(kind, 0) + 1
        return kind if number == 1 else f"{kind} {number}"


def joined(prefix: str, path: str) -> str:
    """A path within another, either of which may be "".

    >>> joined("blocks.0", "weight"), joined("", "weight")
    ('blocks.0.weight', 'weight')
    """
    return f"{prefix}.{path}" if prefix and path else prefix or path

"""Kernels launched from Python past PyTorch's dispatcher, by Triton and torch.compile: what they write is unknown."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import torch

from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.inside.values.known import KnownStorages

_STORES = re.compile(r"\b(?:tl\.)?(?:store|atomic_\w+)\(\s*([^,]+),")


def follow(known: KnownStorages) -> None:
    """Forget what such a launch writes, from the moment that Triton or Inductor is imported."""
    written: dict[Any, frozenset[str]] = {}

    def triton(module: ModuleType) -> None:
        launch = module.JITFunction.run

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self not in written:
                written[self] = stored_arguments(self.src, self.arg_names)
            for name, value in (*zip(self.arg_names, args, strict=False), *kwargs.items()):
                if isinstance(value, torch.Tensor) and value.is_cuda and name in written[self]:
                    known.forget(value)
            return launch(self, *args, **kwargs)

        module.JITFunction.run = run

    def inductor(module: ModuleType) -> None:
        launch = module.CachingAutotuner.run

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            # What a program's buffers are mutated by, too: Inductor calls them outputs, or names them apart.
            mutated = getattr(self, "mutated_arg_names", None) or ()
            for name, value in zip(getattr(self.fn, "arg_names", ()), args, strict=False):
                if isinstance(value, torch.Tensor) and value.is_cuda and ("out_ptr" in name or name in mutated):
                    known.forget(value)
            return launch(self, *args, **kwargs)

        module.CachingAutotuner.run = run

    after_import("triton.runtime.jit", triton)
    after_import("torch._inductor.runtime.triton_heuristics", inductor)


def stored_arguments(source: str, names: list[str]) -> frozenset[str]:
    """Which arguments of a Triton kernel its source stores to; all of them where that can't be told.

    Example:
        stored_arguments("def copy(x, y, n): tl.store(y + i, tl.load(x + i))", ["x", "y", "n"])  # {"y"}
    """
    targets = _STORES.findall(source)
    found = [{name for name in names if re.search(rf"\b{name}\b", target)} for target in targets]
    return frozenset().union(*found) if found and all(found) else frozenset(names)

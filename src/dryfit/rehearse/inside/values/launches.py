"""Kernels launched from Python past PyTorch's dispatcher, by Triton and torch.compile: what they write is unknown."""

from __future__ import annotations

import re
from typing import Any

import torch

from dryfit.rehearse.inside import triton_private
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.inside.values.known import KnownStorages

_STORES = re.compile(r"\b(?:tl\.)?(?:store|atomic_\w+)\(\s*([^,]+),")


def follow(known: KnownStorages) -> None:
    """Forget what such a launch writes, from the moment that Triton or Inductor is imported."""
    written: dict[Any, frozenset[str]] = {}

    def triton(kernel: Any, args: Any, kwargs: Any) -> None:
        source, names = triton_private.triton_kernel(kernel)
        if kernel not in written:
            written[kernel] = stored_arguments(source, names)
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if isinstance(value, torch.Tensor) and value.is_cuda and name in written[kernel]:
                known.forget(value)

    def inductor(kernel: Any, args: Any, kwargs: Any) -> None:
        # Inductor calls them outputs, and a program's buffers that are changed in place it names apart.
        names, mutated = triton_private.inductor_kernel(kernel)
        for name, value in zip(names, args, strict=False):
            if isinstance(value, torch.Tensor) and value.is_cuda and ("out_ptr" in name or name in mutated):
                known.forget(value)

    after_import(triton_private.TRITON_LAUNCHES, lambda module: triton_private.before_triton_launches(module, triton))
    after_import(
        triton_private.INDUCTOR_LAUNCHES, lambda module: triton_private.before_inductor_launches(module, inductor)
    )


def stored_arguments(source: str, names: list[str]) -> frozenset[str]:
    """Which arguments of a Triton kernel its source stores to; all of them where that can't be told.

    Example:
        stored_arguments("def copy(x, y, n): tl.store(y + i, tl.load(x + i))", ["x", "y", "n"])  # {"y"}
    """
    targets = _STORES.findall(source)
    found = [{name for name in names if re.search(rf"\b{name}\b", target)} for target in targets]
    return frozenset().union(*found) if found and all(found) else frozenset(names)

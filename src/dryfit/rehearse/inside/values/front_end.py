"""Puts the engine between the program and the CUDA kernels of the operators it follows.

Where torch hands out the kernel of an operator (`torch.library.get_kernel`), that kernel is replaced by ours, which
calls it. Older torch can't call a kernel that was replaced; there ours goes to the dispatch key BackendSelect, which
every operator passes on its way to a device's kernel, at the price of a few microseconds for CPU operators too. Both
are below autograd and seen from every thread, also for the operators a kernel calls itself, and leave torch.compile on.
A dispatch mode would do neither: Dynamo skips what runs under one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from dryfit.rehearse.inside.values import collectives, decisions, dispatcher_private, launches, numbers
from dryfit.rehearse.inside.values.engine import TINY_ELEMENTS, Engine
from dryfit.rehearse.inside.values.known import SMALL_BYTES, storage_identity
from dryfit.rehearse.inside.values.operators import Operator, followed, with_tensors_for_numbers

KERNEL_OVERRIDES = "kernel overrides"
BACKEND_SELECT = "backend select"

_libraries: list[Any] = []  # an override lasts as long as its library object
_KernelOf = Callable[[str, str], Callable[..., Any]]


def install(engine: Engine) -> str:
    """Follow the program's operators from here on; says by which of the two ways."""
    kernel_of = dispatcher_private.computed_kernels()
    _follow_aten(engine, kernel_of)
    _follow_collectives(engine, kernel_of)
    _follow_torchvision(engine)
    launches.follow(engine.known)
    return KERNEL_OVERRIDES if kernel_of is not None else BACKEND_SELECT


def _follow_aten(engine: Engine, kernel_of: _KernelOf | None) -> None:
    aten = _library("aten")
    keys = [(operator, "CUDA") for operator in followed()] + [(Operator("aten::_coalesce"), "SparseCUDA")]
    taken = dispatcher_private.backend_select_operators()
    for operator, key in keys:
        if kernel_of is not None:
            ours = _override(engine, operator, kernel_of(operator.name, key))
            aten.impl(operator.name[6:], ours, key, with_keyset=True)
        elif operator.name not in taken:
            aten.impl(operator.name[6:], _selected(engine, operator, key), "BackendSelect", with_keyset=True)


def _follow_collectives(engine: Engine, kernel_of: _KernelOf | None) -> None:
    c10d = _library("c10d")
    for name in collectives.operators():
        if kernel_of is not None:
            ours = collectives.following(engine, name, kernel_of(name, "CUDA"))
            c10d.impl(name[6:], ours, "CUDA", with_keyset=True)
        else:
            below = dispatcher_private.below_backend_select(Operator(name).overload)
            c10d.impl(name[6:], collectives.following(engine, name, below), "BackendSelect", with_keyset=True)


def _library(namespace: str) -> Any:
    library = dispatcher_private.operator_library(namespace)
    _libraries.append(library)
    return library


def _follow_torchvision(engine: Engine) -> None:
    """Follow `torchvision::nms`, also when torchvision is imported later: an override may come before its operator."""
    torchvision = _library("torchvision")
    ours: Callable[..., Any] | None = None

    def nms(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal ours
        if ours is None:
            ours = _selected(engine, Operator("torchvision::nms"), "CUDA")
        return ours(keyset, *args, **kwargs)

    torchvision.impl("nms", nms, "BackendSelect", with_keyset=True)


def _selected(engine: Engine, operator: Operator, key: str) -> Callable[..., Any]:
    """Our kernel for BackendSelect, which sees the operators of every device."""
    wanted, keys_below = dispatcher_private.dispatch_key(key), dispatcher_private.keys_below_backend_select()
    first_key = dispatcher_private.first_key()
    below: Callable[..., Any] | None = None
    ours: Callable[..., Any] | None = None

    def select(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal below, ours
        if below is None or ours is None:
            below = dispatcher_private.below_backend_select(operator.overload)
            ours = _override(engine, operator, below)
        if first_key(keyset & keys_below) == wanted:
            return ours(keyset, *args, **kwargs)
        args = with_tensors_for_numbers(operator, args)
        return below(keyset, *args, **kwargs)

    return select


def _override(engine: Engine, operator: Operator, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Our kernel for one operator."""
    decision = decisions.DECISIONS.get(operator.name) or decisions.DECISIONS.get(operator.base)
    if decision is not None:

        def decide(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            return decision(engine, operator, partial(kernel, keyset), args, kwargs)

        return decide
    if operator.name == "aten::copy_":
        return _copy(engine, operator, kernel)
    return _follow(engine, operator, kernel)


def _follow(engine: Engine, operator: Operator, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Our kernel for an operator without a policy. Nearly every call ends at the first unknown input: that is fast."""
    known, chosen = engine.known.references, engine.known.chosen
    computed, overwritten, stand_in = engine.computed, engine.overwritten, engine.stand_in
    writes, first_read, forget = bool(operator.written), operator.first_read, engine.known.forget
    writes_first = [at for at, _ in operator.written] == [0]
    tensor_class, number_positions, compares = torch.Tensor, operator.number_positions, operator.compares

    def is_unknown(tensor: Any) -> bool:
        return storage_identity(tensor) not in known and tensor.is_cuda and tensor.numel() > 0

    def follows_from_choice(args: Any) -> bool:
        return any(isinstance(value, tensor_class) and storage_identity(value) in chosen for value in args[1:])

    def follow(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        # What fills a large tensor from nothing has no unknown input, and nothing to compute either.
        if not (first_read and args[0].nbytes > SMALL_BYTES) or (chosen and follows_from_choice(args)):
            for value in args[first_read:] if first_read else args:
                if isinstance(value, tensor_class):
                    if storage_identity(value) not in known and value.is_cuda and value.numel():
                        break
                elif value.__class__ is list and any(
                    isinstance(item, tensor_class) and is_unknown(item) for item in value
                ):
                    break
            else:
                return computed(operator, partial(kernel, keyset), args, kwargs)
        for at in number_positions:
            if at < len(args) and args[at].__class__ is not tensor_class:
                args = with_tensors_for_numbers(operator, args)
                break
        result = kernel(keyset, *args, **kwargs)
        if writes_first and isinstance(args[0], tensor_class):
            if storage_identity(args[0]) in known:
                forget(args[0])
        elif writes:
            overwritten(operator, args, kwargs)
        elif not (result.__class__ is tensor_class and result.numel() > TINY_ELEMENTS):
            if compares:
                engine.stand_in_comparison(operator, args, result)
            else:
                stand_in(result)
        return result

    return follow


def _copy(engine: Engine, operator: Operator, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Our kernel for `copy_`, which is also how a program reads a tensor of the card."""
    follow = _follow(engine, operator, kernel)

    def copy(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].is_cuda:
            return follow(keyset, *args, **kwargs)
        return numbers.read_to_host(engine, partial(kernel, keyset), args, kwargs)

    return copy

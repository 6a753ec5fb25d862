"""Choices among unknown values: the indices of `topk`, `argmax`, `sort`, `multinomial`, and what is made of them."""

from __future__ import annotations

from typing import Any

import torch

from dryfit.rehearse.assumptions import WORST
from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values import generic, host, wording
from dryfit.rehearse.inside.values.engine import Engine, Kernel
from dryfit.rehearse.inside.values.known import CHOSEN_BYTES, SMALL_BYTES, Choice, fills_its_storage
from dryfit.rehearse.inside.values.operators import Operator


def multinomial(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """The two numbers read are «a valid distribution» and «all zero»."""
    if engine.is_true(args[0]):
        return generic.compute(engine, operator, kernel, args, kwargs)
    with engine.telling(operator.base, numbers=(True, False)):
        result = kernel(*args, **kwargs)
    _choose(engine, operator, args[0], -1, result)
    return result


def choose(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`topk`, `argmax`, `sort`, `max(dim)`: indices into a dimension of unknown values."""
    if engine.is_true(*args[:1]) or not (operator.indices_at or operator.base.startswith("arg")):
        return generic.compute(engine, operator, kernel, args, kwargs)
    result = kernel(*args, **kwargs)
    engine.overwritten(operator, args, kwargs)
    # `dim` left out is the last one to topk and sort, and all of them to argmax.
    default = None if operator.base.startswith("arg") else -1
    at = operator.dimension_at
    dimension = args[at] if at is not None and at < len(args) else kwargs.get("dim", default)
    results = result if isinstance(result, tuple) else (result,)
    for position in operator.indices_at or (0,):
        _choose(engine, operator, args[0], dimension, results[position])
    if not operator.written:
        engine.stand_in(tuple(tensor for at, tensor in enumerate(results) if at not in (operator.indices_at or (0,))))
    return result


def one_hot(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`zeros.scatter_(dim, chosen, 1)`, as `one_hot` does it.

    Large zeros are not filled on the host. A number that is scattered into integers by what a router chose is this
    idiom, so there they are.
    """
    target, index = args[0], args[2]
    choice = engine.known.choice_in([index])
    if choice is not None and choice.routes and SMALL_BYTES < target.nbytes <= CHOSEN_BYTES:
        small_enough = not target.is_floating_point() and fills_its_storage(target, CHOSEN_BYTES)
        if small_enough and not engine.is_known(target) and not torch_private.is_capturing():
            with torch_private.without_torch_function(), torch_private.below_autograd():
                host.on_host(target).zero_()
            engine.known.remember(target, assumed=False, choice=choice)
    return generic.compute(engine, operator, kernel, args, kwargs)


def _choose(
    engine: Engine, operator: Operator, source: torch.Tensor, dimension: int | None, indices: torch.Tensor
) -> None:
    """Write indices into `dimension` of `source`, or into all of it, that go round the choices there are."""
    routes = operator.base == "topk"
    if indices.nbytes > (CHOSEN_BYTES if routes else SMALL_BYTES) or indices.numel() == 0:
        return
    choices = max(1, source.numel() if dimension is None else source.shape[dimension] if source.dim() else 1)
    if operator.base == "sort":
        across = [1] * indices.dim()
        if dimension is not None and across:
            across[dimension] = choices
        engine.written_by_policy(indices, torch.arange(choices, device="cpu").reshape(across).expand(indices.shape))
        engine.record("indices of sort", f"those of {choices:,} values in their order", decides_size=False)
        return
    setting = engine.setting("routing") if operator.base != "multinomial" else None
    each = indices.shape[dimension] if routes and dimension is not None and indices.dim() else 1
    # From the middle on: the first and last tokens of a vocabulary tend to be special, such as the end.
    if setting is not None and setting.value == WORST:
        chosen = torch.arange(each, device="cpu").repeat(indices.numel() // each).add_(choices // 2)
        answer = wording.crowded(indices.numel(), each, choices) + wording.by(setting)
    else:
        chosen = torch.arange(indices.numel(), device="cpu").add_(choices // 2)
        answer = wording.spread(indices.numel(), choices) + wording.by(setting)
    chosen = chosen.remainder_(choices)
    if each > 1:  # one after the other along the dimension, so that no element has the same choice twice
        assert dimension is not None
        chosen = chosen.reshape(*indices.movedim(dimension, -1).shape).movedim(-1, dimension)
    # Of an operator that the program called, that one is listed.
    key = None
    if not engine.hints.inside:
        what = f"indices of {operator.base}"
        kind = "routing" if operator.base != "multinomial" else ""
        key = engine.record(what, answer, decides_size=False, kind=kind, size=indices.numel())
    engine.written_by_policy(indices, chosen.reshape(indices.shape), Choice(key, routes))

"""The operators whose result, or whose result's size, is read back from the card, and what decides for each.

With true inputs the answer is true. Else a policy answers, and the answer is listed: everything is kept (the worst
case), choices go round (a balanced router), a number is 1.0, 0 or False; or what the person said with `--assume`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values import choices, generic, host, numbers, sizes
from dryfit.rehearse.inside.values.engine import Engine, Kernel
from dryfit.rehearse.inside.values.known import most_bytes
from dryfit.rehearse.inside.values.operators import Operator

Decision = Callable[[Engine, Operator, Kernel, Any, Any], Any]


def _unscale(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """GradScaler's check: unknown gradients are finite, so what it found stays what it was, 0."""
    gradients = args[0]
    if len(gradients) <= 64 and engine.is_true(*args):
        return generic.compute(engine, operator, kernel, args, kwargs)
    result = kernel(*args, **kwargs)
    for gradient in gradients:
        engine.known.forget(gradient)
    return result


def _number_in_tensor(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`torch.isin(2, x)`, which puts its number on the card as a number; torch can't hand such a thing to Python."""
    number, tested = args[0], args[1]
    dtype = torch.result_type(tested, number)
    elements = torch.full((), number, dtype=dtype, device=tested.device)
    if "out" in kwargs:
        return torch.ops.aten.isin.Tensor_Tensor_out(elements, *args[1:], **kwargs)
    return torch.ops.aten.isin.Tensor_Tensor(elements, *args[1:], **kwargs)


def _histogram(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`histc`, which the CPU has for floating point alone; routers count the tokens of each expert with it."""
    source = args[0]
    if source.is_floating_point() or operator.written or not engine.is_true(source):
        return sizes.reads_inside(engine, operator, kernel, args, kwargs)
    with engine.telling(operator.base):
        result = kernel(*args, **kwargs)
    choice = engine.known.choice_in([source])
    if source.nbytes <= most_bytes(choice):
        with torch_private.without_torch_function(), torch_private.below_autograd():
            counts = operator.overload(host.on_host(source).double(), *args[1:], **kwargs)
        engine.written_by_policy(result, counts, choice)
    return result


# By the operator's name, or by it without its overload where all overloads behave alike.
DECISIONS: dict[str, Decision] = {
    "aten::isin.Scalar_Tensor": _number_in_tensor,
    "aten::isin.Scalar_Tensor_out": _number_in_tensor,
    "aten::scatter_.value": choices.one_hot,
    "_local_scalar_dense": numbers.item,
    "nonzero": sizes.nonzero,
    "_index_put_impl_": sizes.into_mask,
    "masked_scatter_backward": sizes.masked_scatter_backward,
    "bincount": sizes.reads_inside,
    "histc": _histogram,
    "equal": numbers.equal,
    "repeat_interleave": sizes.repeat_interleave,
    "multinomial": choices.multinomial,
    "topk": choices.choose,
    "argmax": choices.choose,
    "argmin": choices.choose,
    "sort": choices.choose,
    "max": choices.choose,
    "min": choices.choose,
    "_unique": sizes.unique,
    "_unique2": sizes.unique,
    "unique_dim": sizes.unique,
    "unique_consecutive": sizes.unique,
    "unique_dim_consecutive": sizes.unique,
    "nms": sizes.nms,
    "_coalesce": sizes.coalesce,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "resize_": sizes.resize,
}

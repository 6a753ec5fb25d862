"""The operators whose result, or whose result's size, is read back from the card: what each is told.

With true inputs the answer is true. Else a policy answers, and the answer is listed: everything is kept (the worst
case), choices go round (a balanced router), a number is 1.0, 0 or False.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values import host
from dryfit.rehearse.inside.values.engine import Engine, Kernel, stand_in_for
from dryfit.rehearse.inside.values.known import SMALL_BYTES
from dryfit.rehearse.inside.values.operators import Operator

# Pinned memory is where data is moved to rather than read: what is larger than this stays as the card's copy left it,
# and takes no memory here. Offloaded activations are many.
_PINNED_BYTES = 64 << 10

Decision = Callable[[Engine, Operator, Kernel, Any, Any], Any]


def _number(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`item()`, `bool(x)`, `if x:`"""
    (tensor,) = args
    read = kernel(*args, **kwargs)  # also what raises, as it must, while a graph is captured
    if engine.known.is_true(tensor):
        return read
    if engine.hints.numbers:
        return engine.hints.numbers.pop(0)
    answer = read if engine.known.is_assumed(tensor) else stand_in_for(tensor.dtype)
    engine.record(f"item of {_type(tensor)}", str(answer), decides_size=False)
    return answer


def read_to_host(engine: Engine, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`cpu()`, `tolist()`, `numpy()`: a copy of the card's tensor `args[1]` into the CPU's `args[0]`."""
    result = kernel(*args, **kwargs)
    target, source = args[:2]
    if source.nbytes > SMALL_BYTES or source.numel() == 0 or torch_private.is_capturing():
        return result
    with torch_private.without_torch_function(), torch_private.below_autograd():
        if engine.known.is_true(source):
            target.copy_(host.on_host(source))
            return result
        if engine.known.is_assumed(source):
            target.copy_(host.on_host(source))
        elif source.nbytes > _PINNED_BYTES and target.is_pinned():
            return result
        else:
            target.fill_(stand_in_for(source.dtype))
        first = target.reshape(-1)[0].item()
    engine.record(f"copy of {_type(source)} to the host", str(first), decides_size=False)
    return result


def _nonzero(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`nonzero`, and through it `x[mask]`, `masked_select`, `where(condition)`."""
    source = args[0]
    true = engine.attempt(operator, args[:1], {}) if engine.is_true(source) and source.nbytes <= SMALL_BYTES else None
    count = source.numel() if true is None else true.shape[0]
    if true is None and engine.hints.kept is not None:
        count = engine.hints.kept
    with engine.answering(count):
        result = kernel(*args, **kwargs)
    if true is None:
        engine.record("nonzero", f"kept {_all_or(count, source.numel())}", decides_size=True)
        if result.nbytes <= SMALL_BYTES:
            true = _indices_of_all(source.shape, count)
    if true is None or true.shape != result.shape:
        engine.known.forget(result)
    else:
        engine.written_by_policy(result, true)
    return result


def _indices_of_all(shape: torch.Size, count: int) -> torch.Tensor:
    """The indices of the first `count` elements of a tensor, as `nonzero` gives them."""
    each = torch.unravel_index(torch.arange(count, device="cpu"), shape) if shape else ()
    return torch.stack(each, 1) if each else torch.empty((count, 0), dtype=torch.int64, device="cpu")


def _into_mask(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`x[mask] = values`: an unknown mask has as many elements as there are values."""
    values = args[2]
    kept = values.shape[0] if values.dim() and values.shape[0] != 1 else None
    with engine.telling("", kept=kept):
        return _generic(engine, operator, kernel, args, kwargs)


def _masked_scatter_backward(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """An unknown mask selected as many elements as the source had."""
    with engine.telling(operator.base, kept=math.prod(args[2])):
        return _generic(engine, operator, kernel, args, kwargs)


def _reads_inside(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """Operators that read numbers through other operators, which know whether those are true."""
    with engine.telling(operator.base):
        return _generic(engine, operator, kernel, args, kwargs)


def _equal(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`torch.equal`, which reads the one bool it gives."""
    true = engine.attempt(operator, args, kwargs) if engine.is_true(*args) else None
    with engine.telling(operator.base, numbers=() if true is None else (true,)):
        return kernel(*args, **kwargs)


def _repeat_interleave(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """Unknown repeats are once each; the two numbers read are their sum and «none is negative»."""
    repeats = args[0]
    if engine.is_true(repeats):
        return _generic(engine, operator, kernel, args, kwargs)
    count = repeats.numel()
    with engine.telling(operator.base, numbers=(count, True)):
        result = kernel(*args, **kwargs)
    if kwargs.get("output_size") is None:
        engine.record(operator.base, f"once each, {count}", decides_size=True)
    if result.nbytes <= SMALL_BYTES and result.numel() == count:
        engine.written_by_policy(result, torch.arange(count, device="cpu"))
    return result


def _multinomial(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """The two numbers read are «a valid distribution» and «all zero»."""
    if engine.is_true(args[0]):
        return _generic(engine, operator, kernel, args, kwargs)
    with engine.telling(operator.base, numbers=(True, False)):
        result = kernel(*args, **kwargs)
    _choose(engine, operator, args[0], -1, result)
    return result


def _chooses(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`topk`, `argmax`, `sort`, `max(dim)`: indices into a dimension of unknown values."""
    if engine.is_true(*args[:1]) or not (operator.indices_at or operator.base.startswith("arg")):
        return _generic(engine, operator, kernel, args, kwargs)
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


def _choose(
    engine: Engine, operator: Operator, source: torch.Tensor, dimension: int | None, indices: torch.Tensor
) -> None:
    """Write indices into `dimension` of `source`, or into all of it, that go round the choices there are."""
    if indices.nbytes > SMALL_BYTES or indices.numel() == 0:
        return
    choices = max(1, source.numel() if dimension is None else source.shape[dimension] if source.dim() else 1)
    if operator.base == "sort":
        across = [1] * indices.dim()
        if dimension is not None and across:
            across[dimension] = choices
        chosen = torch.arange(choices, device="cpu").reshape(across).expand(indices.shape)
        answer = f"as they were, {choices}"
    else:
        # From the middle on: the first and last tokens of a vocabulary tend to be special, such as the end.
        chosen = ((torch.arange(indices.numel(), device="cpu") + choices // 2) % choices).reshape(indices.shape)
        answer = f"round robin of {choices}"
    engine.written_by_policy(indices, chosen)
    if not engine.hints.inside:  # else the operator the program called is listed
        engine.record(f"indices of {operator.base}", answer, decides_size=False)


def _unique(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """The `unique` family, whose CUDA code reads several numbers: its results are allocated alone, without it."""
    source = args[0]
    if torch_private.is_capturing():
        return kernel(*args, **kwargs)
    true = engine.attempt(operator, args, kwargs) if engine.is_true(source) and source.nbytes <= SMALL_BYTES else None
    if true is not None:
        return tuple(tensor.to(source.device) for tensor in true)
    dimension = _argument(operator, "dim", args, kwargs)
    elements = source.numel() if dimension is None else source.size(dimension)
    count = min(elements, _distinct_values(source.dtype)) if _SORTS.match(operator.name) else elements
    engine.record(operator.base, f"kept {_all_or(count, elements)}", decides_size=True)
    shape = [count] if dimension is None else [*source.shape]
    if dimension is not None and shape:
        shape[dimension] = count
    inverse_shape = source.shape if dimension is None else [elements]
    wants_inverse = _argument(operator, "return_inverse", args, kwargs)
    wants_counts = _argument(operator, "return_counts", args, kwargs)
    kept = torch.empty(shape, dtype=source.dtype, device=source.device)
    inverse = torch.empty(inverse_shape if wants_inverse else [0], dtype=torch.int64, device=source.device)
    counts = torch.empty([count if wants_counts else 0], dtype=torch.int64, device=source.device)
    if 0 < inverse.nbytes <= SMALL_BYTES:
        engine.written_by_policy(inverse, torch.arange(elements, device="cpu").remainder_(count).reshape(inverse_shape))
    if 0 < counts.nbytes <= SMALL_BYTES and count == elements:
        engine.written_by_policy(counts, torch.ones(count, dtype=torch.int64, device="cpu"))
    return (kept, inverse) if operator.base == "_unique" else (kept, inverse, counts)


# These can keep no more than there are values of the type; of rows, and of neighbours, there can be any number.
_SORTS = re.compile("aten::_unique")


def _distinct_values(dtype: torch.dtype) -> int:
    return 2 if dtype is torch.bool else 1 << (8 * dtype.itemsize)


def _argument(operator: Operator, name: str, args: Any, kwargs: Any) -> Any:
    """An argument of a call by its name; None where the operator has none of that name, or the call leaves it out."""
    at = operator.argument_names.index(name) if name in operator.argument_names else len(args)
    return args[at] if at < len(args) else kwargs.get(name)


def _nms(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """torchvision's non-maximum suppression: unknown boxes are all kept."""
    true = engine.attempt(operator, args, kwargs) if engine.is_true(*args) else None
    count = args[0].shape[0] if true is None else true.shape[0]
    with engine.telling(operator.base, kept=count):
        result = kernel(*args, **kwargs)
    if result.shape[0] != count:  # older torchvision counts on the host what it keeps, in a mask that no kernel wrote
        return torch.arange(count, device=args[0].device) if true is None else true.to(args[0].device)
    if true is None and result.nbytes <= SMALL_BYTES:
        true = torch.arange(count, device="cpu")
    if true is None:
        engine.known.forget(result)
    else:
        engine.written_by_policy(result, true)
    return result


def _coalesce(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """Sparse gradients, of an embedding for one: unknown indices are all different, as far as there are as many."""
    (sparse,) = args
    indices, entries = torch_private.entries_of(sparse)
    places = math.prod(sparse.shape[: sparse.sparse_dim()])
    if engine.is_true(indices) and indices.nbytes <= SMALL_BYTES:
        with torch_private.without_torch_function(), torch_private.below_autograd():
            count = torch.unique(host.on_host(indices), dim=1).shape[1]
    else:
        count = min(entries, places)
        engine.record("coalesce", f"kept {_all_or(count, entries)}", decides_size=True)
    with engine.answering(count):
        return kernel(*args, **kwargs)


def _unscale(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """GradScaler's check: unknown gradients are finite, so what it found stays what it was, 0."""
    gradients = args[0]
    if len(gradients) <= 64 and engine.is_true(*args):
        return _generic(engine, operator, kernel, args, kwargs)
    result = kernel(*args, **kwargs)
    for gradient in gradients:
        engine.known.forget(gradient)
    return result


def _resize(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """More bytes may hang on the same storage afterwards."""
    before = args[0].nbytes
    result = kernel(*args, **kwargs)
    if result.nbytes > before:
        engine.known.forget(result)
    return result


def _generic(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """As an operator without a policy."""
    if all(map(engine.is_known, host.cuda_tensors(args[operator.first_read :]))):
        return engine.computed(operator, kernel, args, kwargs)
    result = kernel(*args, **kwargs)
    if operator.written:
        engine.overwritten(operator, args, kwargs)
    else:
        engine.stand_in(result)
    return result


def _number_in_tensor(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`torch.isin(2, x)`, which puts its number on the card as a number; torch can't hand such a thing to Python."""
    number, tested = args[0], args[1]
    dtype = torch.result_type(tested, number)
    elements = torch.full((), number, dtype=dtype, device=tested.device)
    if "out" in kwargs:
        return torch.ops.aten.isin.Tensor_Tensor_out(elements, *args[1:], **kwargs)
    return torch.ops.aten.isin.Tensor_Tensor(elements, *args[1:], **kwargs)


def _type(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return f"{name}{list(tensor.shape)}" if tensor.dim() else name


def _all_or(count: int, of: int) -> str:
    return f"all {count}" if count == of else f"{count} of {of}"


# By the operator's name, or by it without its overload where all overloads behave alike.
DECISIONS: dict[str, Decision] = {
    "aten::isin.Scalar_Tensor": _number_in_tensor,
    "aten::isin.Scalar_Tensor_out": _number_in_tensor,
    "_local_scalar_dense": _number,
    "nonzero": _nonzero,
    "_index_put_impl_": _into_mask,
    "masked_scatter_backward": _masked_scatter_backward,
    "bincount": _reads_inside,
    "histc": _reads_inside,
    "equal": _equal,
    "repeat_interleave": _repeat_interleave,
    "multinomial": _multinomial,
    "topk": _chooses,
    "argmax": _chooses,
    "argmin": _chooses,
    "sort": _chooses,
    "max": _chooses,
    "min": _chooses,
    "_unique": _unique,
    "_unique2": _unique,
    "unique_dim": _unique,
    "unique_consecutive": _unique,
    "unique_dim_consecutive": _unique,
    "nms": _nms,
    "_coalesce": _coalesce,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "resize_": _resize,
}

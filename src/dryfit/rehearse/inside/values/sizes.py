"""The operators whose result's size is read back from the card: `nonzero`, `unique`, `nms` and their like.

With true inputs the size is true. Else it is what `--assume` says, or the largest there can be, and is listed.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from dryfit.rehearse.assumptions import Assumption
from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values import generic, host, wording
from dryfit.rehearse.inside.values.engine import Engine, Kernel
from dryfit.rehearse.inside.values.known import SMALL_BYTES, most_bytes
from dryfit.rehearse.inside.values.operators import Operator


def nonzero(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`nonzero`, and through it `x[mask]`, `masked_select`, `where(condition)`."""
    source = args[0]
    true = engine.attempt(operator, args[:1], {}) if _can_look(engine, source) else None
    if true is not None:
        count = true.shape[0]
        engine.sizes_follow_from(source)
    elif engine.hints.kept is not None:
        count = engine.hints.kept
        # By an operator that lists itself, or by `x[mask] = values`, where nothing was assumed.
        stated = f"{count:,} of {source.numel():,} elements, as many as there are values"
        engine.record("nonzero", stated, decides_size=True, size=count)
    else:
        count = _assumed(engine, "nonzero", source.numel(), "elements", "are kept", what="nonzero")
    with engine.answering(count):
        result = kernel(*args, **kwargs)
    if true is None and result.nbytes <= SMALL_BYTES:
        true = _indices_of_all(source.shape, count)
    if true is None or true.shape != result.shape:
        engine.known.forget(result)
    else:
        engine.written_by_policy(result, true, engine.known.choice_in([source]))
    return result


def into_mask(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`x[mask] = values`: an unknown mask has as many elements as there are values."""
    values = args[2]
    kept = values.shape[0] if values.dim() and values.shape[0] != 1 else None
    with engine.telling("", kept=kept):
        return generic.compute(engine, operator, kernel, args, kwargs)


def masked_scatter_backward(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """An unknown mask selected as many elements as the source had."""
    with engine.telling(operator.base, kept=math.prod(args[2])):
        return generic.compute(engine, operator, kernel, args, kwargs)


def reads_inside(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """Operators that read numbers through other operators, which know whether those are true."""
    engine.sizes_follow_from(*args)
    with engine.telling(operator.base):
        return generic.compute(engine, operator, kernel, args, kwargs)


def repeat_interleave(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """Unknown repeats are once each; the two numbers read are their sum and «none is negative»."""
    repeats = args[0]
    if engine.is_true(repeats):
        engine.sizes_follow_from(repeats)
        return generic.compute(engine, operator, kernel, args, kwargs)
    given = repeats.numel()
    setting = engine.setting("repeats")
    times = setting.value if setting is not None else 1
    assert not isinstance(times, str)
    count = int(given * times + 0.5)
    with engine.telling(operator.base, numbers=(count, True), listed=True):
        result = kernel(*args, **kwargs)
    if kwargs.get("output_size") is None:
        stated = f"each of {given:,} elements comes {times:,g} times, {count:,} in all{wording.by(setting)}"
        engine.record(operator.base, stated, decides_size=True, kind="repeats", size=count)
    if result.nbytes <= SMALL_BYTES and result.numel() == count:
        engine.written_by_policy(
            result, torch.arange(count, device="cpu").mul_(given).div_(count, rounding_mode="floor")
        )
    return result


def unique(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """The `unique` family, whose CUDA code reads several numbers: its results are allocated alone, without it."""
    source = args[0]
    if torch_private.is_capturing():
        return kernel(*args, **kwargs)
    true = engine.attempt(operator, args, kwargs) if _can_look(engine, source) else None
    if true is not None:
        engine.sizes_follow_from(source)
        return tuple(tensor.to(source.device) for tensor in true)
    dimension = _argument(operator, "dim", args, kwargs)
    elements = source.numel() if dimension is None else source.size(dimension)
    most = min(elements, _distinct_values(source.dtype)) if _SORTS.match(operator.name) else elements
    count = _assumed(engine, "unique", elements, "values", "are distinct", what=operator.base, most=most, least=1)
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
    if 0 < counts.nbytes <= SMALL_BYTES:
        each = torch.full((count,), elements // count, device="cpu")
        each[: elements % count] += 1
        engine.written_by_policy(counts, each)
    return (kept, inverse) if operator.base == "_unique" else (kept, inverse, counts)


def nms(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """torchvision's non-maximum suppression."""
    true = engine.attempt(operator, args, kwargs) if engine.is_true(*args) else None
    boxes = args[0].shape[0]
    count = true.shape[0] if true is not None else _assumed(engine, "nms", boxes, "boxes", "are kept", what="nms")
    with engine.telling(operator.base, kept=count, listed=True):
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


def coalesce(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """Sparse gradients, of an embedding for one: unknown indices are all different, as far as there are as many."""
    (sparse,) = args
    indices, entries = torch_private.entries_of(sparse)
    places = math.prod(sparse.shape[: sparse.sparse_dim()])
    if _can_look(engine, indices):
        with torch_private.without_torch_function(), torch_private.below_autograd():
            count = torch.unique(host.on_host(indices), dim=1).shape[1]
        engine.sizes_follow_from(indices)
    else:
        most = min(entries, places)
        count = _assumed(engine, "unique", entries, "entries", "are distinct", what="coalesce", most=most, least=1)
    with engine.answering(count):
        return kernel(*args, **kwargs)


def resize(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """More bytes may hang on the same storage afterwards."""
    before = args[0].nbytes
    result = kernel(*args, **kwargs)
    if result.nbytes > before:
        engine.known.forget(result)
    return result


def _assumed(
    engine: Engine, kind: str, of: int, noun: str, verb: str, *, what: str, most: int | None = None, least: int = 0
) -> int:
    """How many of these there are, by the person's share or else the most there can be; it is listed."""
    setting = engine.setting(kind)
    count = min(_part(setting, of), of if most is None else most)
    count = max(count, min(least, of))
    stated = wording.kept(count, of, noun, verb, setting)
    engine.record(what, stated, decides_size=True, kind=kind, size=count)
    return count


def _part(setting: Assumption | None, of: int) -> int:
    share = setting.value if setting is not None else 1.0
    assert not isinstance(share, str)
    return int(share * of + 0.5)


def _can_look(engine: Engine, tensor: torch.Tensor) -> bool:
    return engine.is_true(tensor) and tensor.nbytes <= most_bytes(engine.known.choice_in([tensor]))


def _indices_of_all(shape: torch.Size, count: int) -> torch.Tensor:
    """The indices of the first `count` elements of a tensor, as `nonzero` gives them."""
    each = torch.unravel_index(torch.arange(count, device="cpu"), shape) if shape else ()
    return torch.stack(each, 1) if each else torch.empty((count, 0), dtype=torch.int64, device="cpu")


# These can keep no more than there are values of the type; of rows, and of neighbours, there can be any number.
_SORTS = re.compile("aten::_unique")


def _distinct_values(dtype: torch.dtype) -> int:
    return 2 if dtype is torch.bool else 1 << (8 * dtype.itemsize)


def _argument(operator: Operator, name: str, args: Any, kwargs: Any) -> Any:
    """An argument of a call by its name; None where the operator has none of that name, or the call leaves it out."""
    at = operator.argument_names.index(name) if name in operator.argument_names else len(args)
    return args[at] if at < len(args) else kwargs.get(name)

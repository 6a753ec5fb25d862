"""What an optimizer's step holds for a while, at its highest moment, beyond what is there before and after it.

Each function follows PyTorch 2.14's own code: which tensors are alive together. `sizes` are the bytes of a tensor like
each parameter, in the order in which the optimizer has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dryfit.estimate.model import Seen, Tensor

_BFLOAT16_BYTES = 2
_UNKNOWN_WITHOUT_SHAPES = "a few tensors like the largest parameter: they depend on the shapes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transient:
    """The step's temporaries; `size_bytes` is None where they depend on shapes that are not known."""

    size_bytes: int | None
    why: str


def none(why: str) -> Transient:
    return Transient(size_bytes=0, why=why)


def sgd(seen: Seen, implementation: str) -> Transient:
    return none("SGD updates in place")


def adam(seen: Seen, implementation: str) -> Transient:
    """The root of the second moment: of all tensors at once (foreach), of one, twice (for-loop), of none (fused)."""
    if implementation == "fused":
        return none("a fused step makes no copies")
    if implementation == "foreach":
        why = "foreach takes the root of exp_avg_sq of all tensors at once; a fused step takes none"
        return Transient(size_bytes=_lists(seen, before=1, now=1), why=why)
    return _loop(seen, now=2, why="the root of exp_avg_sq of one tensor after the other, twice")


def rmsprop(seen: Seen, implementation: str) -> Transient:
    if implementation == "foreach":
        why = "foreach takes the root of square_avg of all tensors at once"
        return Transient(size_bytes=_lists(seen, before=1, now=1), why=why)
    return _loop(seen, now=1, why="the root of square_avg of one tensor after the other")


def adagrad(seen: Seen, implementation: str) -> Transient:
    if implementation == "fused":
        return none("a fused step makes no copies")
    if implementation == "foreach":
        why = "foreach takes the root of the sums and scales the gradients, of all tensors at once"
        # The lists of the dtype before go one by one, as those of the next replace them.
        size_bytes = max(_lists(seen, before=2, now=1), _lists(seen, before=1, now=2))
        return Transient(size_bytes=size_bytes, why=why)
    return _loop(seen, now=1, why="the root of the sum of one tensor after the other")


def lion(seen: Seen, implementation: str) -> Transient:
    """exp_avg.clone().mul_(b).add(grad).sign_(), one tensor after the other."""
    if not seen.shapes_known:
        return Transient(size_bytes=None, why=_UNKNOWN_WITHOUT_SHAPES)
    return Transient(size_bytes=2 * max(seen.sizes(), default=0), why="the update of one tensor, and a copy of exp_avg")


def muon_split(seen: Seen) -> tuple[Seen, Seen]:
    """The matrices that Muon has, and what is left to AdamW: embeddings, vectors and what has more dimensions."""
    if not seen.shapes_known:
        return seen, seen.only(())

    def is_matrix(tensor: Tensor) -> bool:
        return len(tensor.shape) == 2 and tensor.role != "embedding"

    matrices = seen.only(tensor for tensor in seen.tensors if is_matrix(tensor))
    return matrices, seen.only(tensor for tensor in seen.tensors if not is_matrix(tensor))


def muon(seen: Seen, implementation: str) -> Transient:
    """The Newton-Schulz iteration of one matrix, in bfloat16; then AdamW's step on what is left."""
    if not seen.shapes_known:
        return Transient(size_bytes=None, why="the orthogonalisation of the largest matrix: depends on the shapes")
    matrices, rest = muon_split(seen)
    highest = before = 0
    for tensor, update in zip(matrices.tensors, matrices.sizes(), strict=True):
        orthogonal = matrices.block_bytes(tensor.elements, _BFLOAT16_BYTES)
        gram = matrices.block_bytes(min(tensor.shape) ** 2, _BFLOAT16_BYTES)
        # From the second iteration on: the update, X and the next X, the Gram matrix and its polynomial; or, of the
        # Gram matrix, the one before, too, while the next X is not there yet.
        iterating = update + max(2 * orthogonal + 2 * gram, orthogonal + 3 * gram)
        highest = max(highest, before + update, iterating)
        before = orthogonal
    adamw = adam(rest, "foreach").size_bytes or 0
    return Transient(size_bytes=max(highest, adamw), why="the orthogonalisation of one matrix after the other")


def adafactor(seen: Seen, implementation: str) -> Transient:
    if not seen.shapes_known:
        return Transient(size_bytes=None, why=_UNKNOWN_WITHOUT_SHAPES)
    if implementation == "foreach":
        why = "foreach makes the update of all tensors at once"
        return Transient(size_bytes=_adafactor_foreach(seen), why=why)
    return Transient(size_bytes=_adafactor_loop(seen), why="the update of one tensor, beside that of the one before")


def _loop(seen: Seen, *, now: int, why: str) -> Transient:
    """One tensor after the other: `now` temporaries of this one, while the last of the one before is still named."""
    if not seen.shapes_known:
        return Transient(size_bytes=None, why=_UNKNOWN_WITHOUT_SHAPES)
    highest = before = 0
    for size in seen.sizes():
        highest = max(highest, before + now * size)
        before = size
    return Transient(size_bytes=highest, why=why)


def _lists(seen: Seen, *, before: int, now: int) -> int:
    """All tensors of one dtype after those of another: `now` lists, while `before` of the last are still named."""
    highest = last = 0
    for size in _sizes_by_dtype(seen):
        highest = max(highest, before * last + now * size)
        last = size
    return highest


def _sizes_by_dtype(seen: Seen) -> Sequence[int]:
    found: dict[int, int] = {}
    for tensor, size in zip(seen.tensors, seen.sizes(), strict=True):
        found[tensor.itemsize] = found.get(tensor.itemsize, 0) + size
    return list(found.values())


def _row_column_mean(seen: Seen, tensor: Tensor) -> tuple[int, int, int]:
    """Of one tensor of two dimensions or more: a value a row, a value a column, and a value for the whole."""
    width, height = max(tensor.shape[-1], 1), max(tensor.shape[-2], 1)
    return (
        seen.block_bytes(tensor.elements // width, tensor.itemsize),
        seen.block_bytes(tensor.elements // height, tensor.itemsize),
        seen.block_bytes(tensor.elements // (width * height), tensor.itemsize),
    )


def _adafactor_loop(seen: Seen) -> int:
    highest = update = row = column = squared = 0
    for tensor, size in zip(seen.tensors, seen.sizes(), strict=True):
        if len(tensor.shape) > 1:
            new_row, new_column, mean = _row_column_mean(seen, tensor)
            named = update + squared
            highest = max(highest, named + row + column + new_row, named + new_row + column + new_column)
            row, column = new_row, new_column
            highest = max(highest, named + row + column + size + mean)
        else:
            named = update + row + column
            highest = max(highest, named + squared + size, named + 2 * size)
            squared = size
        update = size
    return highest


def _adafactor_foreach(seen: Seen) -> int:
    groups: dict[tuple[int, bool], list[Tensor]] = {}
    for itemsize in dict.fromkeys(tensor.itemsize for tensor in seen.tensors):
        for tensor in seen.tensors:
            if tensor.itemsize == itemsize:
                groups.setdefault((itemsize, len(tensor.shape) > 1), []).append(tensor)
    highest = update = 0
    for (_, is_matrix), tensors in groups.items():
        size = sum(seen.only(tensors).sizes())
        if is_matrix:
            parts = [_row_column_mean(seen, tensor) for tensor in tensors]
            rows, columns, means = (sum(column) for column in zip(*parts, strict=True))
            highest = max(highest, update + rows, update + columns, update + size + means)
        else:
            highest = max(highest, update + size)
        update = size
    return highest

"""Does a batch in micro-batches give the gradient of the whole batch, and if not, why not?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dryfit.errors import UsageError
from dryfit.train.causes import Cause, find_causes
from dryfit.train.given import require_micro_batch, require_one_of
from dryfit.train.kept_state import KeptState
from dryfit.train.normalising import Reduction, count_items, weight
from dryfit.train.rehearsing import is_rehearsal
from dryfit.train.splitting import rows_of, split
from dryfit.train.synchronising import find_wrappers
from dryfit.train.trial import ParameterDifference, Trial, compare, largest, relative_difference

# Largest relative differences that pass for rounding without a further look, by the lowest precision that gradients or
# modules' outputs have. Sums of a few thousand products in fp32 round to some hundred times its epsilon; in 16 bits
# sums are made in fp32 and rounded once per piece. What is more is compared with what the order of the rows changes.
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4}
_ROUNDINGS_IN_16_BITS = 4  # times the dtype's epsilon
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WayDifference:
    """How far one way's gradient is from the whole batch's, by parameter."""

    way: str
    parameters: tuple[ParameterDifference, ...]

    @property
    def worst(self) -> ParameterDifference:
        """The parameter with the largest relative difference."""
        return max(self.parameters, key=relative_difference)

    @property
    def largest_relative(self) -> float:
        """The largest relative difference of any parameter."""
        return largest(self.parameters)

    @property
    def largest_absolute(self) -> float:
        """The largest absolute difference of any parameter."""
        return max(each.absolute for each in self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """What `check_equivalence` found; printed, it is the verdict, the causes, and the parameters that differ most.

    `ways` are "graphs kept" (one backward from the sum of all losses) and "backward per micro-batch". `equal` is true
    where they give the whole batch's gradient but for rounding, and for dropout's masks. In a rehearsal there are no
    `ways`, as nothing is computed that could be compared.
    """

    micro_batches: int
    equal: bool
    verdict: str
    causes: tuple[Cause, ...]
    ways: tuple[WayDifference, ...]

    def __str__(self) -> str:
        lines = [self.verdict, *(cause.sentence for cause in self.causes)]
        for way in self.ways:
            worst = sorted(way.parameters, key=relative_difference, reverse=True)[:_SHOWN]
            lines += ["", f"{way.way}: largest differences from the whole batch, relative and absolute"]
            lines += [f"  {each.relative:9.1e}  {each.absolute:9.1e}  {each.name}" for each in worst]
        return "\n".join(lines)


def check_equivalence(
    model: nn.Module,
    loss_of: Callable[[Any, Any], Any],
    batch: Any,
    micro_batch: int,
    *,
    items: Callable[[Any], Any] | None = None,
    reduction: Reduction = "mean",
    split_batch: Callable[[Any, int], Any] | None = None,
) -> Equivalence:
    """Compare the gradient of a batch with that of its micro-batches, and say what the difference comes from.

        print(check_equivalence(model, lambda model, batch: model(**batch).loss, batch, micro_batch=2, items=count))

    `loss_of(model, batch)` is what the loop computes. `items` and `reduction` are those of `accumulate`; without
    `items` micro-batches weigh by their rows. The batch is cut along the first dimension of its tensors, or by
    `split_batch(batch, micro_batch)`. Everything is computed in the mode the model is in, on the device it is on, so
    the whole batch has to fit. Two to some twenty passes are made; no optimizer steps, and buffers, gradients, modes
    and random number generators are put back bit for bit.
    Of a DDP model the module inside is checked, without other ranks. In a rehearsal of dryfit's nothing is computed:
    the passes take their memory, `equal` is true so that the program goes on, and the verdict says so.

    Relative differences are against each parameter's largest gradient (see `ParameterDifference`).

    Raises:
        UsageError: the batch cannot be cut into several micro-batches, the loss is no scalar with a graph, the whole
            batch's gradient is zero or not finite, or the model is sharded.
    """
    model = _on_one_rank(model)
    require_one_of(reduction, Reduction, "reduction")
    pieces = _cut(batch, micro_batch, split_batch)
    counts = _count(pieces, items, split_batch is None)
    if reduction == "sum" and items is None:
        whole_weight, weights = 1.0, (1.0,) * len(pieces)
    else:
        total = math.fsum(counts)
        whole_weight = 1.0 if reduction == "mean" else 1.0 / total
        weights = tuple(weight(reduction, count, total, averaged_over=1) for count in counts)
    state = KeptState(model)
    trial = Trial(
        model=model,
        loss_of=loss_of,
        batch=batch,
        pieces=pieces,
        whole_weight=whole_weight,
        weights=weights,
        state=state,
    )
    try:
        with torch.enable_grad():
            return _check(trial, reduction=reduction, reversible=split_batch is None)
    finally:
        state.restore()


def _check(trial: Trial, *, reduction: Reduction, reversible: bool) -> Equivalence:
    with _noting_dtypes(trial.model) as dtypes:
        whole = trial.whole()
    if is_rehearsal():
        trial.graphs_kept()
        trial.piece_by_piece()
        verdict = "Not compared: on a virtual card nothing is computed."
        return Equivalence(micro_batches=len(trial.pieces), equal=True, verdict=verdict, causes=(), ways=())
    ways = tuple(
        WayDifference(way=name, parameters=compare(gradients(), whole))
        for name, gradients in (
            ("graphs kept", trial.graphs_kept),
            ("backward per micro-batch", trial.piece_by_piece),
        )
    )
    tolerance = _tolerance({*dtypes, *(gradient.dtype for gradient in whole.values())})
    causes: tuple[Cause, ...] = ()
    if max(way.largest_relative for way in ways) > tolerance:
        causes = find_causes(trial, tolerance, reduction=reduction, reversible=reversible)
    equal = all(cause.harmless for cause in causes)
    found = max(ways, key=lambda way: way.largest_relative)
    how_far = f"largest relative difference {found.largest_relative:.1e}, at {found.worst.name}"
    if not equal:
        verdict = f"Not equal: {len(trial.pieces)} micro-batches do not give the whole batch's gradient; {how_far}."
    elif causes:
        but_for = " and ".join(cause.kind for cause in causes)
        verdict = (
            f"Equal but for {but_for}: {len(trial.pieces)} micro-batches give the whole batch's gradient; {how_far}."
        )
    else:
        verdict = f"Equal to rounding: {len(trial.pieces)} micro-batches give the whole batch's gradient; {how_far}."
    return Equivalence(micro_batches=len(trial.pieces), equal=equal, verdict=verdict, causes=causes, ways=ways)


def _on_one_rank(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"{type(model).__name__} is no torch.nn.Module. The call is check_equivalence(model, loss_of, batch, "
            f"micro_batch)."
        )
    if isinstance(model, DistributedDataParallel):
        return _on_one_rank(model.module)
    if find_wrappers([model]).exchanges:
        raise UsageError(
            f"{type(model).__name__} exchanges parameters or gradients with other ranks in every pass, and each would "
            f"have to make the same passes. Check the model before it is wrapped, on one process, in a small "
            f"configuration if need be."
        )
    return model


def _cut(batch: Any, micro_batch: int, split_batch: Callable[[Any, int], Any] | None) -> list[Any]:
    require_micro_batch(micro_batch)
    if split_batch is not None:
        pieces = list(split_batch(batch, micro_batch))
        if len(pieces) < 2:
            raise UsageError(f"split_batch gave {len(pieces)} micro-batch, and there is nothing to compare. Give more.")
        return pieces
    rows = rows_of(batch)
    if rows <= micro_batch:
        raise UsageError(
            f"The batch has {rows} rows, so micro-batches of {micro_batch} leave it in one piece, and there is nothing "
            f"to compare. Give a smaller micro_batch or a larger batch."
        )
    return split(batch, micro_batch)


def _count(pieces: list[Any], items: Callable[[Any], Any] | None, by_rows: bool) -> list[float]:
    if items is None:
        return [float(rows_of(piece)) if by_rows else 1.0 for piece in pieces]
    counts = [count_items(items, piece, f"micro-batch {at + 1}") for at, piece in enumerate(pieces)]
    if not all(counts):
        raise UsageError(
            f"Micro-batch {counts.index(0) + 1} of {len(counts)} has no items, so the mean of its losses is 0/0. "
            f"accumulate passes such over; give a batch without them here."
        )
    return counts


@contextmanager
def _noting_dtypes(model: nn.Module) -> Iterator[set[torch.dtype]]:
    """The dtypes that modules give, which under autocast are not those of the parameters."""
    dtypes: set[torch.dtype] = set()

    def note(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            dtypes.add(output.dtype)

    handles = [module.register_forward_hook(note) for module in model.modules()]
    try:
        yield dtypes
    finally:
        for handle in handles:
            handle.remove()


def _tolerance(dtypes: set[torch.dtype]) -> float:
    return max(_ROUNDING.get(dtype, _ROUNDINGS_IN_16_BITS * torch.finfo(dtype).eps) for dtype in dtypes)

"""Why a batch in pieces gives another gradient than in one piece: each suspect is taken away, and the rest compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from dryfit.train.batch_norms import batch_norms_in_train_mode, name_layers
from dryfit.train.kept_state import set_modes
from dryfit.train.normalising import Reduction
from dryfit.train.splitting import change_tensors
from dryfit.train.trial import Trial, compare, largest, sample

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)

_ENTRIES = 4096  # elements of a gradient that a fit looks at
_FIT = 1e-3  # what a fit may leave, of the norm
_STATE = 1e-2  # more than the order in which pieces are added can make, of which nothing is known at that point
_NOISE = 4  # times what the order of rows alone changes is rounding still
_MOST_NOISE = 2e-2  # more is no rounding: the loss depends on which row is where


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for a difference: `kind` for a program, `sentence` for a person. A `harmless` one is no mistake."""

    kind: str
    sentence: str
    harmless: bool = False


def find_causes(trial: Trial, tolerance: float, *, reduction: Reduction, reversible: bool) -> tuple[Cause, ...]:
    """Take away, one after the other, what makes pieces differ from the whole, and name what did."""
    whole = trial.whole()
    if found := trial.not_finite():
        return (
            Cause(
                kind="not finite",
                sentence=f"{found}, and the whole batch's is a number. A mean over nothing is 0/0, such as over labels "
                f"that are all ignored: give items=, which counts what means are over, here and to accumulate, which "
                f"then passes over micro-batches that have none.",
            ),
        )
    if largest(compare(trial.whole(), whole)) > tolerance:
        return (
            Cause(
                kind="nondeterminism",
                sentence="Two passes over the whole batch from the same state and random numbers differ too: loss_of "
                "changes something of its own, or draws numbers from a generator of its own.",
            ),
        )
    if largest(compare(trial.piece_by_piece(), trial.graphs_kept())) > max(tolerance, _STATE):
        return (
            Cause(
                kind="state",
                sentence="Micro-batches with a backward each differ from the same ones with one backward for all: a "
                "forward or backward depends on what ran before it, such as random numbers drawn in backward "
                "(checkpointing without preserve_rng_state) or a module that changes itself.",
            ),
        )
    causes: list[Cause] = []
    with ExitStack() as taken_away:
        if _is_random(trial, tolerance):
            dropout = _take_randomness_away(trial, tolerance, taken_away)
            causes.append(dropout)
            if not dropout.harmless or trial.difference() <= tolerance:
                return tuple(causes)
        if reversible:
            noise = largest(compare(trial.whole(change_tensors(trial.batch, lambda rows: rows.flip(0))), trial.whole()))
            if noise <= _MOST_NOISE:
                tolerance = max(tolerance, _NOISE * noise)
            if trial.difference() <= tolerance:
                return (*causes, _rounding(noise))
        if layers := batch_norms_in_train_mode(trial.model):
            causes.append(_batch_norm(list(layers), len(trial.pieces)))
            taken_away.enter_context(_in_eval(list(layers.values())))
            # without running statistics a layer takes the batch's in eval mode too, and nothing more can be told
            if trial.difference() <= tolerance or batch_norms_in_train_mode(trial.model):
                return tuple(causes)
        if largest(compare(trial.piece_by_piece(same_buffers=True), trial.whole())) <= tolerance:
            causes.append(
                Cause(
                    kind="buffers",
                    sentence="The model changes buffers with every forward (spectral norm, a codebook, a moving "
                    "average), so later micro-batches see others than the whole batch does; with the same buffers for "
                    "each, gradients are equal.",
                )
            )
            return tuple(causes)
        causes.append(_weights_or_loss(trial, reduction, tolerance))
    return tuple(causes)


def _is_random(trial: Trial, tolerance: float) -> bool:
    return largest(compare(trial.whole(reseeded=True), trial.whole())) > tolerance


def _take_randomness_away(trial: Trial, tolerance: float, taken_away: ExitStack) -> Cause:
    modules = dict(trial.model.named_modules())
    dropouts = {
        name: each for name, each in modules.items() if isinstance(each, _DROPOUTS) and each.training and each.p > 0
    }
    recurrent = {
        name: each for name, each in modules.items() if isinstance(each, nn.RNNBase) and each.training and each.dropout
    }
    taken_away.enter_context(_in_eval(list(dropouts.values())))
    taken_away.enter_context(_without_own_dropout(list(recurrent.values())))
    names = [*dropouts, *recurrent]
    if names and not _is_random(trial, tolerance):
        return _dropout(f"Dropout at {name_layers(names)}")
    kept = {id(each) for each in batch_norms_in_train_mode(trial.model).values()} | {id(r) for r in recurrent.values()}
    others = [each for each in modules.values() if id(each) not in kept]
    with ExitStack() as attempt:
        attempt.enter_context(_in_eval(others))
        try:
            random = _is_random(trial, tolerance)
        except Exception:  # a model of which loss_of makes something else in eval mode
            random = True
        if not random:
            taken_away.push(attempt.pop_all())
            return _dropout(f"Dropout inside the forward of {type(trial.model).__name__}, off in eval mode,")
    return Cause(
        kind="randomness",
        sentence="loss_of draws random numbers that eval mode does not switch off (noise, sampled steps or masks), and "
        "draws others for pieces than for the whole batch. Compare with them fixed, for example given in the batch.",
    )


def _dropout(what: str) -> Cause:
    return Cause(
        kind="dropout",
        sentence=f"{what} draws other masks for pieces than for the whole batch. That is no mistake: with dropout off "
        f"this part of the difference is gone.",
        harmless=True,
    )


def _batch_norm(names: list[str], pieces: int) -> Cause:
    return Cause(
        kind="batch norm",
        sentence=f"BatchNorm in train mode at {name_layers(names)} takes its statistics from each micro-batch, and "
        f"moves its running statistics {pieces} times. Use GroupNorm, or freeze the statistics (layer.eval()), or keep "
        f"the batch whole and checkpoint activations instead.",
    )


def _rounding(noise: float) -> Cause:
    return Cause(
        kind="rounding",
        sentence=f"The order of the rows alone changes the gradient by up to {noise:.1e}, so at this precision the "
        f"difference is rounding.",
        harmless=True,
    )


def _weights_or_loss(trial: Trial, reduction: Reduction, tolerance: float) -> Cause:
    whole = trial.whole()
    names = list(whole)
    target = sample(whole, names, _ENTRIES) / trial.whole_weight
    parts = []
    for at in range(len(trial.pieces)):
        of_piece = trial.of_piece(at)
        missing = {name: torch.zeros_like(whole[name]) for name in names if name not in of_piece}
        parts.append(sample({**of_piece, **missing}, names, _ENTRIES))
    pieces = torch.stack(parts, dim=1)
    claimed = torch.tensor(trial.weights, dtype=torch.float64) / trial.whole_weight
    return _explain_by_weights(pieces, target, claimed, reduction, max(_FIT, tolerance))


def _explain_by_weights(
    pieces: torch.Tensor, target: torch.Tensor, claimed: torch.Tensor, reduction: Reduction, leaves: float
) -> Cause:
    def fits(weights: torch.Tensor) -> bool:
        return bool((pieces @ weights - target).norm() <= leaves * target.norm())

    if fits(claimed):
        return Cause(
            kind="unknown",
            sentence="As a whole the gradients are equal; some small ones differ by more than rounding explains. "
            "Compare in float64 (model.double()) to tell.",
        )
    if reduction == "mean" and fits(torch.ones_like(claimed)):
        return Cause(
            kind="sum",
            sentence="The loss is a sum, not a mean: the whole batch's gradient is the sum of the micro-batches'. Give "
            'reduction="sum", and items= to divide by.',
        )
    mean = torch.full_like(claimed, 1 / len(claimed))
    if reduction == "sum" and fits(mean):
        return Cause(
            kind="mean",
            sentence="The loss is a mean, not a sum: the whole batch's gradient is the mean of the micro-batches'. "
            'Give reduction="mean".',
        )
    summed = pieces @ claimed
    ratio = float(summed @ target / (summed @ summed))
    if fits(claimed * ratio):
        return Cause(
            kind="division",
            sentence=f"The micro-batches' gradient is {1 / ratio:.4g} times the whole batch's, for every parameter: "
            f"loss_of divides, or leaves out to divide, by something that depends on the size of the batch.",
        )
    fitted = torch.linalg.lstsq(pieces, target[:, None], driver="gelsd").solution[:, 0]
    few = len(target) < 4 * len(claimed)
    if not few and fits(fitted) and bool((fitted > 0).all()) and abs(float(fitted.sum()) - 1) < 0.01:
        return Cause(
            kind="unequal counts",
            sentence=f"The whole batch weighs the micro-batches by {_listed(fitted)}, and here they were weighed by "
            f"{_listed(claimed)}: the loss is a mean over something they have unequal numbers of, such as tokens that "
            f"are not ignored. Give items=, which counts that.",
        )
    return Cause(
        kind="batch-dependent loss",
        sentence="The whole batch's gradient is no weighted sum of the micro-batches': the loss (or a layer) compares "
        "the samples of a batch with each other, as contrastive losses do. Accumulating it piece by piece trains "
        "something else; use two-pass accumulation (gradient caching) or keep the batch whole.",
    )


def _listed(weights: torch.Tensor) -> str:
    shown = ", ".join(f"{each:.3f}" for each in weights[:4].tolist())
    return shown if len(weights) <= 4 else f"{shown}, ..."


@contextmanager
def _in_eval(modules: list[nn.Module]) -> Iterator[None]:
    before = [module.training for module in modules]
    set_modes(modules, training=False)
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


@contextmanager
def _without_own_dropout(recurrent: list[nn.RNNBase]) -> Iterator[None]:
    before = [module.dropout for module in recurrent]  # eval mode is no way: cuDNN has no backward in it
    for module in recurrent:
        module.dropout = 0.0
    try:
        yield
    finally:
        for module, dropout in zip(recurrent, before, strict=True):
            module.dropout = dropout

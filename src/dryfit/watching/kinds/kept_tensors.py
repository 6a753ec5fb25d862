"""Tensors without a graph that stay from step to step: DF102, DF103, DF107, DF109, DF202."""

from __future__ import annotations

from typing import Any

import torch

from dryfit.findings import Evidence, Finding
from dryfit.watching.growth import LEAST_BYTES_PER_STEP
from dryfit.watching.held import Held
from dryfit.watching.kinds.seen import Seen
from dryfit.watching.kinds.who import is_in_hook, is_metric


def finding(held: Held, tensor: Any, seen: Seen, per_step_bytes: int) -> Finding | None:
    """What a holder of tensors of every step is; None of one that is meant to keep them, or of too little."""
    if per_step_bytes < LEAST_BYTES_PER_STEP or not (held.is_certain or held.in_error):
        return None
    if any(issubclass(kind, torch.optim.Optimizer) for kind in held.classes):
        return None  # its states: what keeps optimizers is a kind of its own
    if is_metric(held) and not tensor.requires_grad:
        return None  # a metric that gathers its state is one that has to, and is reset by its owner
    much = f"{seen.tells_of(per_step_bytes)}, {seen.span()}"
    if held.in_error:
        code = "DF109"
        claim = f"{held.name} keeps caught exceptions, and each of them the variables of the functions it left: {much}."
        advice = "Keep the error's text, not the error: str(error), or traceback.format_exc()."
    elif is_in_hook(held.place, seen.situation):
        code = "DF107"
        claim = f"A hook puts what passes through a module into {held.name} at every {seen.unit}: {much}."
        advice = f"Clear {held.name} after each {seen.unit}, or remove the hook when it is not needed."
    elif seen.is_evaluation:
        code = "DF202"
        claim = f"{held.name} gathers the outputs of the evaluation on the device: {much}."
        advice = "Keep what is needed of each output only, and on the host: its argmax, or output.cpu()."
    else:
        code = "DF102"
        claim = f"{held.name} keeps tensors of every {seen.unit}: {much}. Detaching them does not free them."
        advice = "Keep what is needed of each only: a number by .item(), or a copy on the host by .cpu()."
    return Finding(
        code=code,
        claim=claim,
        advice=advice,
        place=held.place,
        evidence=Evidence(
            memory=seen.memory,
            bytes_per_step=per_step_bytes,
            first_step=seen.first_step,
            last_step=seen.last_step,
            holder=held.in_error or held.name,
            chain=held.chain,
        ),
    )

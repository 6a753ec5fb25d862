"""Distributed checkpoints of a rank whose peers are not there: each saves and loads its own part, and asks nobody."""

from __future__ import annotations

from dryfit.rehearse.inside.alone import torch_private
from dryfit.rehearse.inside.imports import after_import


def place() -> None:
    """Have `torch.distributed.checkpoint`, once it is imported, plan for this rank alone.

    It is then what `no_dist=True` makes it. The plans that all ranks would have sent to the first, some hundred bytes
    for each tensor, are not on the card.
    """
    after_import("torch.distributed.checkpoint.utils", torch_private.plan_alone)
    after_import("torch.distributed.checkpoint.default_planner", torch_private.allow_parts)

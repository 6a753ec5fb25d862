"""DF201: forward passes of a model in eval() mode, without `torch.no_grad()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow


def check(flow: Flow) -> Iterator[Finding]:
    """One finding for each loop and model."""
    told: set[tuple[ast.AST, str]] = set()
    for forward in flow.evaluations:
        if (forward.loop, forward.model) in told:
            continue
        told.add((forward.loop, forward.model))
        yield flow.finding(
            "DF201",
            forward.call,
            f"`{forward.model}` is in eval() mode and its forward pass runs with gradients on: "
            "the graph and all activations of each batch are kept for a backward that never comes.",
            "Run the loop under `with torch.inference_mode():` or `with torch.no_grad():`; eval() does not do that.",
            forward.mode,
        )

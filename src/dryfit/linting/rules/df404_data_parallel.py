"""DF404: `nn.DataParallel` in a program that trains."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow
from dryfit.linting.flow.names import keyword, last_part
from dryfit.linting.flow.objects import Kind

_NAMES = {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel"}


def check(flow: Flow) -> Iterator[Finding]:
    """Models that are wrapped for more cards than one, where the file makes an optimizer or walks back."""
    if not _trains(flow):
        return
    for call in flow.calls:
        # A unit test that wraps a model looks at the wrapper, and trains nothing.
        if flow.name(call.func) not in _NAMES or last_part(flow.place(call).function).startswith("test_"):
            continue
        devices = keyword(call, "device_ids") or (call.args[1] if len(call.args) > 1 else None)
        if isinstance(devices, (ast.List, ast.Tuple)) and len(devices.elts) <= 1:
            continue
        yield flow.finding(
            "DF404",
            call,
            "DataParallel copies the model to every card at each forward pass, and gathers outputs and gradients on "
            "the first: that card is full while the others have room.",
            "Use `torch.nn.parallel.DistributedDataParallel` with one process per card (`torchrun`).",
        )


def _trains(flow: Flow) -> bool:
    """Whether this file has a backward or an optimizer: the outputs of an evaluation alone fill no card."""
    return (
        bool(flow.backwards)
        or Kind.OPTIMIZER in flow.kinds.values()
        or any(flow.name(each).startswith("torch.optim.") for each in flow.syntax.each(ast.Attribute))
    )

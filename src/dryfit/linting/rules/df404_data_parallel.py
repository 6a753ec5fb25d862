"""DF404: `nn.DataParallel`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow
from dryfit.linting.flow.names import keyword

_NAMES = {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel"}


def check(flow: Flow) -> Iterator[Finding]:
    """Models that are wrapped for more cards than one."""
    for call in flow.calls:
        if flow.name(call.func) not in _NAMES:
            continue
        devices = keyword(call, "device_ids") or (call.args[1] if len(call.args) > 1 else None)
        if isinstance(devices, (ast.List, ast.Tuple)) and len(devices.elts) <= 1:
            continue
        yield flow.finding(
            "DF404",
            call,
            "DataParallel copies the model to every card at each forward pass, and gathers outputs and gradients on the "
            "first: that card runs out of memory while the others have room.",
            "Use `torch.nn.parallel.DistributedDataParallel` with one process per card (`torchrun`).",
        )

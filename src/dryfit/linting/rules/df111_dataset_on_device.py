"""DF111: a data set read from a file is moved whole to the card, to be taken from there in batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow
from dryfit.linting.flow.names import last_part, reference

# What reads data of a size that the source does not show.
_READS = {
    "load",
    "read_csv",
    "loadtxt",
    "genfromtxt",
    "File",
    "read_parquet",
    "open",
    "imread",
    "load_dataset",
    "memmap",
}


def check(flow: Flow) -> Iterator[Finding]:
    """Tensors on the card that a TensorDataset and a DataLoader then cut in batches."""
    for call in flow.calls:
        if last_part(flow.name(call.func)) != "TensorDataset" or not _loaded(flow, call):
            continue
        moved = [found for each in call.args if (found := _moved_and_read(flow, each)) is not None]
        if moved:
            names = ", ".join(f"`{ast.unparse(each)}`" for each in call.args)
            yield flow.finding(
                "DF111",
                moved[0],
                f"The whole data set, {names}, is moved to the card, and batches are taken from it there: "
                "all of it stays on the card while the program trains.",
                "Leave the tensors in host memory and move each batch, with `pin_memory=True` and `non_blocking=True`; "
                "if the data are small, say so with `# dryfit: ignore[DF111]`.",
                call,
                holder=reference(call.args[0]) if call.args else "",
            )


def _loaded(flow: Flow, dataset: ast.Call) -> bool:
    """Whether a DataLoader with batches smaller than the set takes the data set."""
    for call in flow.calls:
        if last_part(flow.name(call.func)) == "DataLoader" and call.args:
            if call.args[0] is dataset:
                return True
            name = reference(call.args[0])
            if name and any(dataset is each.value for each in flow.bindings.reaching(name, call)):
                return True
    return False


def _moved_and_read(flow: Flow, tensor: ast.expr) -> ast.expr | None:
    """The expression that moves the tensor to the card, if the tensor comes from a file."""
    seen = [
        tensor,
        *(
            each.value
            for each in flow.bindings.reaching(reference(tensor), tensor)
            if reference(tensor) and each.value is not None
        ),
    ]
    moves = [each for each in seen if _moves(flow, each)]
    if not moves:
        return None
    sources = [each.value for each in flow.tensors.sources(tensor) if each.value is not None]
    reads = any(
        isinstance(node, ast.Call)
        and isinstance(node.func, (ast.Attribute, ast.Name))
        and last_part(flow.name(node.func) or "." + getattr(node.func, "attr", "")) in _READS
        for each in [tensor, *sources]
        for node in ast.walk(each)
    )
    return moves[0] if reads else None


def _moves(flow: Flow, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cuda":
        return True
    if node.func.attr == "to" and node.args:
        return names_cuda(flow, node.args[0])
    return _moves(flow, node.func.value)


def names_cuda(flow: Flow, device: ast.expr, depth: int = 3) -> bool:
    """Whether an expression of a device says that it is, or may be, a card."""
    if any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("cuda")
        for each in ast.walk(device)
    ):
        return True
    name = reference(device)
    if not name or not depth:
        return False
    found = flow.bindings.reaching(name, device) or tuple(flow.bindings.everywhere(name))
    values = [each.value for each in found if each.value is not None] or [
        each.value for each in flow.bindings.everywhere(name) if each.value is not None
    ]
    return any(names_cuda(flow, each, depth - 1) for each in values if each is not device)

"""DF405: a data set, or its collate function, moves to the card in the workers of a DataLoader."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import keyword, last_part, number_of, reference
from dryfit.linting.rules.df111_dataset_on_device import names_cuda


def check(flow: Flow) -> Iterator[Finding]:
    """Moves in `__getitem__` or a collate function that a loader with workers of this file runs."""
    for loader in flow.calls:
        if last_part(flow.name(loader.func)) != "DataLoader" or not _workers(flow, loader):
            continue
        for function in _run_in_workers(flow, loader):
            move = next((node for node in ast.walk(function) if _moves(flow, node)), None)
            if move is not None:
                yield flow.finding(
                    "DF405",
                    move,
                    f"`{function.name}` moves its samples to the card, and the loader runs it in worker processes: "
                    "each worker opens a CUDA context of its own, and a forked worker fails.",
                    "Return tensors in host memory, and move each batch in the training loop.",
                    loader,
                )


def _workers(flow: Flow, loader: ast.Call) -> bool:
    value = keyword(loader, "num_workers")
    number = number_of(value)
    if number is not None:
        return number > 0
    name = reference(value) if value is not None else ""
    values = [number_of(each.value) for each in flow.bindings.reaching(name, loader)] if name else []
    return bool(values) and all(each is not None and each > 0 for each in values)


def _run_in_workers(flow: Flow, loader: ast.Call) -> Iterator[tree.Function]:
    collate = reference(keyword(loader, "collate_fn"))
    for function in flow.functions.all:
        if collate and function.name == collate and not isinstance(flow.parents.get(function), ast.ClassDef):
            yield function
    dataset = loader.args[0] if loader.args else keyword(loader, "dataset")
    if dataset is None:
        return
    made = [dataset, *(each.value for each in flow.bindings.reaching(reference(dataset), loader) if reference(dataset))]
    for value in made:
        holder = flow.functions.classes.get(reference(value.func)) if isinstance(value, ast.Call) else None
        getitem = flow.functions.method(holder, "__getitem__") if holder is not None else None
        if getitem is not None:
            yield getitem


def _moves(flow: Flow, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cuda":
        return not node.args or number_of(node.args[0]) is not None
    device = node.args[0] if node.args else keyword(node, "device")
    return node.func.attr == "to" and device is not None and names_cuda(flow, device)

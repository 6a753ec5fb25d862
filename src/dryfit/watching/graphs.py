"""Walks along grad_fn: how many nodes of each step still live, and which tensors keep those of steps before."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dryfit.watching.torch_private import Node, sequence_number_of

_MOST_NODES = 400_000
NODE_BYTES = 1024
"""What a node costs on the host, about: 213 KiB a step for a net of 200 modules (torch 2.14.1, its losses summed)."""


@dataclass(slots=True)
class Graphs:
    """`nodes` counts by interval between marks; `carriers` are the tensors that keep nodes older than the last mark.

    `leaves` are the tensors that are no parameters and wait for a gradient. All of it is the program's: let go of it.
    """

    nodes: list[int]
    carriers: list[Any] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)
    is_cut: bool = False


def walk(tensors: Sequence[Any], marks: Sequence[int], old_before: int) -> Graphs:
    """Walk the graphs of tensors; `marks` are sequence numbers at which intervals begin, rising.

    A node is old if autograd numbered it before `old_before`. Nodes before the first mark are not counted.
    """
    found = Graphs(nodes=[0] * len(marks))
    reaches_old: dict[Node, bool] = {}
    for tensor in tensors:
        node = tensor.grad_fn
        if node is not None:
            _walk_from(node, reaches_old, marks, old_before, found)
            if reaches_old.get(node):
                found.carriers.append(tensor)
    return found


def reaches(tensors: Any, first: int, last: int) -> bool:
    """Whether the graphs of these tensors have a node that autograd numbered from `first` to before `last`."""
    given = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    left = [each.grad_fn for each in given if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    seen = set(left)
    while left and len(seen) < _MOST_NODES:
        node = left.pop()
        if not hasattr(node, "variable") and first <= sequence_number_of(node) < last:
            return True
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                left.append(child)
    return False


def _walk_from(root: Node, reaches_old: dict[Node, bool], marks: Sequence[int], old_before: int, found: Graphs) -> None:
    """Visit what can be reached and was not, children first, so that each node knows of its own."""
    if root in reaches_old:
        return
    reaches_old[root] = False
    stack = [(root, iter([child for child, _ in root.next_functions if child is not None]))]
    while stack:
        node, children = stack[-1]
        for child in children:
            if child not in reaches_old:
                if len(reaches_old) >= _MOST_NODES:
                    found.is_cut = True
                    return
                reaches_old[child] = False
                stack.append((child, iter([below for below, _ in child.next_functions if below is not None])))
                break
            if reaches_old[child]:
                reaches_old[node] = True
        else:
            stack.pop()
            if _note(node, marks, old_before, found):
                reaches_old[node] = True
            if stack and reaches_old[node]:
                reaches_old[stack[-1][0]] = True


def _note(node: Node, marks: Sequence[int], old_before: int, found: Graphs) -> bool:
    """Count a node; say whether it is old."""
    if not node.next_functions and hasattr(node, "variable"):  # AccumulateGrad, which lives as long as its tensor
        variable = node.variable
        if not isinstance(variable, torch.nn.Parameter):
            found.leaves.append(variable)
        return False
    number = sequence_number_of(node)
    interval = bisect.bisect_right(marks, number) - 1
    if interval >= 0:
        found.nodes[interval] += 1
    if isinstance(node, torch.autograd.function.BackwardCFunction) and vars(node):
        found.contexts.append(node)
    return number < old_before

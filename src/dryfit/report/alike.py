"""Modules and tensors for a person to read: those that are alike in one line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from dryfit.analyse.footprint import ModuleBytes, TensorBytes

_LEAST_ALIKE = 3  # two lines are as quickly read as one that stands for two
_SIZE_TOLERANCE = 0.1
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")
_NUMBER_IN_PATH = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """One line of the module tree: a module, or `count` alike. `name` is its path without that of the row it is in."""

    name: str
    kind: str
    size_bytes: int
    depth: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """Modules shown as one: the same place in each of the members of a run."""

    name: str
    members: tuple[ModuleBytes, ...]
    count: int = 1

    @property
    def size_bytes(self) -> int:
        return sum(member.size_bytes for member in self.members)

    @property
    def own_bytes(self) -> int:
        return sum(member.own_bytes for member in self.members)


def module_rows(root: ModuleBytes, *, most: int, least_bytes: int) -> list[ModuleRow]:
    """The heaviest lines of a module tree as it is read from the top, without the root's own.

    >>> layers = [ModuleBytes(path=f"blocks.{n}", kind="Block", size_bytes=8, own_bytes=8) for n in range(4)]
    >>> root = ModuleBytes(path="", kind="GPT", size_bytes=32, own_bytes=0, children=tuple(layers))
    >>> [row.name for row in module_rows(root, most=5, least_bytes=1)]
    ['blocks.0 .. blocks.3 (4 alike)']
    """
    rows: list[tuple[ModuleRow, tuple[int, ...]]] = []
    open_nodes: list[tuple[_Node, int, tuple[int, ...]]] = [
        (node, 0, (place,)) for place, node in enumerate(_inside(_Node(name="", members=(root,))))
    ]
    while open_nodes and len(rows) < most:
        heaviest = max(open_nodes, key=lambda one: one[0].size_bytes)
        open_nodes.remove(heaviest)
        node, depth, place = heaviest
        if node.size_bytes < max(least_bytes, 1):
            break
        row = ModuleRow(
            name=node.name, kind=node.members[0].kind, size_bytes=node.size_bytes, depth=depth, count=node.count
        )
        rows.append((row, place))
        open_nodes += [(inner, depth + 1, (*place, number)) for number, inner in enumerate(_inside(node))]
    return [row for row, _ in sorted(rows, key=lambda one: one[1])]


def _inside(node: _Node) -> list[_Node]:
    """The nodes within one, heaviest first; containers that hold nothing but one run or module give way to it."""
    by_name: dict[str, list[ModuleBytes]] = defaultdict(list)
    for member in node.members:
        for child in member.children:
            by_name[_relative(child.path, member.path)].append(child)
    nodes = [_Node(name=name, members=tuple(members)) for name, members in by_name.items()]
    shown = []
    for one in _runs(nodes):
        while one.own_bytes == 0 and one.count == 1 and len(inner := _inside(one)) == 1:
            one = _Node(name=_beneath(one.name, inner[0].name), members=inner[0].members, count=inner[0].count)
        shown.append(one)
    return sorted(shown, key=lambda one: -one.size_bytes)


def _relative(path: str, parent: str) -> str:
    return path.removeprefix(f"{parent}.") if parent else path


def _beneath(outer: str, inner: str) -> str:
    """A run's name within its container: "0 .. 3 (4 alike)" in "blocks" is "blocks.0 .. blocks.3 (4 alike)"."""
    return " .. ".join(f"{outer}.{part}" for part in inner.split(" .. "))


def _runs(nodes: Iterable[_Node]) -> list[_Node]:
    """Put neighbours such as 0, 1, 2 that are of one class and nearly one size into one node."""
    numbered: dict[tuple[str, str], list[tuple[int, _Node]]] = defaultdict(list)
    result = []
    for node in nodes:
        found = _NUMBERED.fullmatch(node.name)
        if found:
            numbered[found[1], node.members[0].kind].append((int(found[2]), node))
        else:
            result.append(node)
    for family in numbered.values():
        run: list[tuple[int, _Node]] = []
        for number, node in sorted(family, key=lambda one: one[0]):
            if run and (number != run[-1][0] + 1 or not _about_equal(node.size_bytes, run[0][1].size_bytes)):
                result += _one_of(run)
                run = []
            run.append((number, node))
        result += _one_of(run)
    return result


def _one_of(run: Sequence[tuple[int, _Node]]) -> list[_Node]:
    nodes = [node for _, node in run]
    if len(nodes) < _LEAST_ALIKE:
        return nodes
    members = tuple(member for node in nodes for member in node.members)
    name = f"{nodes[0].name} .. {nodes[-1].name} ({len(nodes)} alike)"
    return [_Node(name=name, members=members, count=len(nodes))]


def _about_equal(size: int, other: int) -> bool:
    return abs(size - other) <= _SIZE_TOLERANCE * max(size, other)


def same_in_each(path: str) -> str:
    """A module's path with its numbers left open, so that those of one family have one name.

    >>> same_in_each("blocks.11.qkv"), same_in_each("norm_1")
    ('blocks.*.qkv', 'norm_1')
    """
    return _NUMBER_IN_PATH.sub("*", path)


def tensors_alike(tensors: Iterable[TensorBytes]) -> list[list[TensorBytes]]:
    """Put tensors that differ in nothing but a number in their names together; the heaviest group first."""
    ordered = sorted(tensors, key=lambda one: str(_likeness(one)))
    groups = [list(group) for _, group in groupby(ordered, key=_likeness)]
    return sorted(groups, key=lambda group: -sum(one.size_bytes for one in group))


def _likeness(tensor: TensorBytes) -> tuple[object, ...]:
    module, name = same_in_each(tensor.module), same_in_each(tensor.name.rpartition(" ")[2])
    return tensor.owner, tensor.size_bytes, tensor.dtype, tensor.shape, module, name, tensor.file, tensor.line

"""The modules of the model as a tree, with what each holds at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.footprint import ModuleBytes, OwnerBytes
from dryfit.analyse.holdings import Ledger
from dryfit.recording.model import OWNERS, REMAINDER, ModuleOutput

# What a damaged recording could nest deeper is left in one piece.
_DEEPEST = 64

Totals = dict[str, list[int]]
"""By owner: bytes and blocks."""


def totals_by(keys: Sequence[int], alive: Iterable[int], attribution: Attribution, ledger: Ledger) -> dict[int, Totals]:
    """What the living allocations hold by a column of the attribution and by owner, remainders of blocks included."""
    found: dict[int, Totals] = {}
    for index in alive:
        owners = found.setdefault(keys[index], {})
        of_owner = owners.setdefault(OWNERS[attribution.owner[index]], [0, 0])
        of_owner[0] += ledger.owned_bytes[index]
        of_owner[1] += 1
        if ledger.left_bytes[index]:
            left = owners.setdefault(REMAINDER, [0, 0])
            left[0] += ledger.left_bytes[index]
            left[1] += 1
    return found


def owner_bytes(totals: Totals) -> tuple[OwnerBytes, ...]:
    """Totals as values, in the order every report shows owners."""
    return tuple(
        OwnerBytes(owner=owner, size_bytes=totals[owner][0], blocks=totals[owner][1])
        for owner in OWNERS
        if owner in totals
    )


def module_tree(
    alive: Iterable[int], attribution: Attribution, ledger: Ledger, outputs: Iterable[ModuleOutput]
) -> ModuleBytes:
    """The tree from the model down; it sums to everything that is alive, what belongs to no module is the root's own.

    A path is as the program has it: the wrappers of torch.compile ("_orig_mod.") and of DDP ("module.") stay in it.
    """
    own: dict[str, Totals] = {"": {}}
    for number, totals in totals_by(attribution.module, alive, attribution, ledger).items():
        _add(own.setdefault(attribution.modules[number], {}), totals)
    children: dict[str, dict[str, None]] = {}
    for path in list(own):
        while path and path not in children.setdefault(_parent(path), {}):
            children[_parent(path)][path] = None
            path = _parent(path)
            own.setdefault(path, {})
    kinds = {output.path: output.kind for output in outputs}
    built: dict[str, ModuleBytes] = {}
    for path in sorted(own, key=_depth, reverse=True):
        built[path] = _built(path, own, [built.pop(child) for child in children.get(path, ())], kinds)
    return built[""]


def _parent(path: str) -> str:
    return path.rpartition(".")[0] if path.count(".") < _DEEPEST else ".".join(path.split(".")[:_DEEPEST])


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _built(path: str, own: Mapping[str, Totals], parts: list[ModuleBytes], kinds: Mapping[str, str]) -> ModuleBytes:
    totals: Totals = {}
    _add(totals, own[path])
    own_bytes = sum(size for size, _ in totals.values())
    for part in parts:
        _add(totals, {each.owner: [each.size_bytes, each.blocks] for each in part.owners})
    return ModuleBytes(
        path=path,
        kind=kinds.get(path, ""),
        size_bytes=sum(size for size, _ in totals.values()),
        own_bytes=own_bytes,
        owners=owner_bytes(totals),
        children=tuple(sorted(parts, key=lambda part: (-part.size_bytes, part.path))),
    )


def _add(totals: Totals, more: Totals) -> None:
    for owner, (size, blocks) in more.items():
        of_owner = totals.setdefault(owner, [0, 0])
        of_owner[0] += size
        of_owner[1] += blocks

"""Two footprints side by side: what grew, by owner, module, line and tensor, and what each further sample takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import Any

from dryfit.analyse.footprint import Footprint, LineBytes, ModuleBytes, OwnerChange, TensorBytes
from dryfit.analyse.holdings import changes
from dryfit.analyse.same_lines import Place, matched_lines
from dryfit.plain import to_plain
from dryfit.recording.model import MADE_OF_A_BATCH, REMAINDER

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two: its peak, and what is known of the program and the card."""

    source: str
    about: dict[str, Any] = field(default_factory=dict)
    step: int
    phase: str
    allocated_bytes: int
    reserved_bytes: int
    fixed_bytes: int
    grows_with_batch_bytes: int
    logits_and_loss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChange:
    """A module of the same path in both; `own_*` without the modules inside it. 0 bytes where it is not there."""

    path: str
    kind: str
    before_bytes: int
    after_bytes: int
    own_before_bytes: int
    own_after_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """A source line in both, which may have moved within its function; None where it is not there."""

    file: str
    function: str
    before_line: int | None
    after_line: int | None
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChange:
    """Tensors of one name, or of one owner, dtype, module and line, among the largest that each footprint lists.

    Of those that are known by the same, the largest of the one are compared with the largest of the other, and so on;
    bytes and shapes are those of one tensor, 0 and None on a side that lists none. `*_count` are those listed;
    `may_be_more` says that one of them is as small as its list's last, and so others of them may not be listed.
    What only a list's end hides is no change.
    """

    owner: str
    name: str
    module: str
    dtype: str
    file: str
    line: int
    before_shape: tuple[int, ...] | None
    after_shape: tuple[int, ...] | None
    before_count: int
    after_count: int
    before_bytes: int
    after_bytes: int
    may_be_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """That the two differ in the first dimension of the tensors made of a batch, and what follows.

    `bytes_per_sample` is the peak's change by one of that dimension; `empty_batch_bytes` what the peak would be without
    any: both the straight line through the two.
    """

    before: int
    after: int
    bytes_per_sample: int
    empty_batch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What differs at the peaks of two footprints; what is the same in both is in it too, the greatest change first."""

    before: Side
    after: Side
    owners: tuple[OwnerChange, ...]
    modules: tuple[ModuleChange, ...]
    lines: tuple[LineChange, ...]
    tensors: tuple[TensorChange, ...]
    batch: Batch | None = None
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        plain: dict[str, Any] = to_plain(self)
        return {"schema_version": plain.pop("schema_version"), **plain}


def compare(a: Footprint, b: Footprint) -> Comparison:
    """Say what grew from one footprint's peak to another's.

        comparison = compare(before, after)
        max(comparison.owners, key=lambda one: one.after_bytes - one.before_bytes).owner

    Modules are matched by their path, lines by file, function and number, and where the numbers moved by their order
    in the function; tensors by name, or by owner, dtype, module and line.
    """
    line_pairs = matched_lines(a.lines, b.lines)
    return Comparison(
        before=_side(a),
        after=_side(b),
        owners=changes(a.peak.owners, b.peak.owners),
        modules=_module_changes(a.modules, b.modules),
        lines=_line_changes(a.lines, b.lines, line_pairs),
        tensors=_tensor_changes(a, b, line_pairs),
        batch=_batch(a, b, line_pairs),
    )


def _side(footprint: Footprint) -> Side:
    peak = footprint.peak
    return Side(
        source=footprint.source,
        about=footprint.about,
        step=peak.step,
        phase=peak.phase,
        allocated_bytes=peak.allocated_bytes,
        reserved_bytes=footprint.peak_reserved_bytes,
        fixed_bytes=peak.fixed_bytes,
        grows_with_batch_bytes=peak.grows_with_batch_bytes,
        logits_and_loss_bytes=peak.logits_and_loss_bytes,
    )


def _module_changes(a: ModuleBytes, b: ModuleBytes) -> tuple[ModuleChange, ...]:
    before, after = _by_path(a), _by_path(b)
    nothing = ModuleBytes(path="", kind="", size_bytes=0, own_bytes=0)
    found = []
    for path in dict.fromkeys([*before, *after]):
        first, second = before.get(path, nothing), after.get(path, nothing)
        change = ModuleChange(
            path=path,
            kind=second.kind or first.kind,
            before_bytes=first.size_bytes,
            after_bytes=second.size_bytes,
            own_before_bytes=first.own_bytes,
            own_after_bytes=second.own_bytes,
        )
        found.append(change)
    return tuple(sorted(found, key=lambda one: -abs(one.own_after_bytes - one.own_before_bytes)))


def _by_path(root: ModuleBytes) -> dict[str, ModuleBytes]:
    found, open_modules = {}, [root]
    while open_modules:
        module = open_modules.pop()
        found[module.path] = module
        open_modules += module.children
    return found


def _line_changes(
    a: Iterable[LineBytes], b: Iterable[LineBytes], pairs: Mapping[Place, Place]
) -> tuple[LineChange, ...]:
    before = {(line.file, line.line, line.function): line for line in a}
    found = []
    for line in b:
        old = before.pop((*pairs.get((line.file, line.line), ("", -1)), line.function), None)
        found.append(
            LineChange(
                file=line.file,
                function=line.function,
                before_line=old.line if old else None,
                after_line=line.line,
                before_bytes=old.size_bytes if old else 0,
                after_bytes=line.size_bytes,
            )
        )
    for line in before.values():
        found.append(
            LineChange(
                file=line.file,
                function=line.function,
                before_line=line.line,
                after_line=None,
                before_bytes=line.size_bytes,
                after_bytes=0,
            )
        )
    return tuple(sorted(found, key=lambda one: -abs(one.after_bytes - one.before_bytes)))


_Likeness = tuple[object, ...]


def _alike(tensors: Iterable[TensorBytes], pairs: Mapping[Place, Place]) -> Mapping[_Likeness, list[TensorBytes]]:
    """Tensors by what they are known by; the largest of each first. Places are those of the first footprint."""
    found: dict[_Likeness, list[TensorBytes]] = defaultdict(list)
    for tensor in tensors:
        place = (tensor.file, tensor.line)
        found[
            (tensor.owner, tensor.name)
            if tensor.name
            else (tensor.owner, tensor.dtype, tensor.module, pairs.get(place, place))
        ].append(tensor)
    for group in found.values():
        group.sort(key=lambda one: -one.size_bytes)
    return found


def _tensor_changes(a: Footprint, b: Footprint, pairs: Mapping[Place, Place]) -> tuple[TensorChange, ...]:
    before, after = _alike(a.tensors, {}), _alike(b.tensors, pairs)
    unlisted = _largest_unlisted(a), _largest_unlisted(b)
    found = []
    for key in dict.fromkeys([*before, *after]):
        nothing: list[TensorBytes] = []
        sizes = _by_size(before.get(key, nothing)), _by_size(after.get(key, nothing))
        for old, new in zip_longest(*sizes, fillvalue=nothing):
            change = _tensor_change(old, new, unlisted)
            both_listed = old and new and change.before_bytes != change.after_bytes
            largest = max(change.before_bytes, change.after_bytes)
            if both_listed or len(old) == len(new) or largest > unlisted[len(new) < len(old)]:
                found.append(change)
    return tuple(sorted(found, key=_weight, reverse=True))


def _by_size(tensors: Iterable[TensorBytes]) -> list[list[TensorBytes]]:
    """Tensors of one size together, the largest first, as they come."""
    return [list(group) for _, group in groupby(tensors, key=lambda one: one.size_bytes)]


def _tensor_change(old: list[TensorBytes], new: list[TensorBytes], unlisted: tuple[int, int]) -> TensorChange:
    one = (new or old)[0]
    return TensorChange(
        owner=one.owner,
        name=one.name,
        module=one.module,
        dtype=one.dtype,
        file=one.file,
        line=one.line,
        before_shape=old[0].shape if old else None,
        after_shape=new[0].shape if new else None,
        before_count=len(old),
        after_count=len(new),
        before_bytes=old[0].size_bytes if old else 0,
        after_bytes=new[0].size_bytes if new else 0,
        may_be_more=any(
            tensors and tensors[0].size_bytes <= most for tensors, most in zip((old, new), unlisted, strict=True)
        ),
    )


def _weight(change: TensorChange) -> int:
    return abs(change.after_bytes * change.after_count - change.before_bytes * change.before_count)


def _largest_unlisted(footprint: Footprint) -> int:
    """What a tensor at the peak has at most that the footprint does not list."""
    if len(footprint.tensors) == sum(owner.blocks for owner in footprint.peak.owners if owner.owner != REMAINDER):
        return 0
    return min((tensor.size_bytes for tensor in footprint.tensors), default=footprint.peak.allocated_bytes)


def _batch(a: Footprint, b: Footprint, pairs: Mapping[Place, Place]) -> Batch | None:
    sizes = _batch_sizes(a.tensors, b.tensors, pairs)
    if sizes is None:
        return None
    before, after = sizes
    per_sample = (b.peak.allocated_bytes - a.peak.allocated_bytes) / (after - before)
    return Batch(
        before=before,
        after=after,
        bytes_per_sample=round(per_sample),
        empty_batch_bytes=round(a.peak.allocated_bytes - per_sample * before),
    )


def _batch_sizes(
    a: Iterable[TensorBytes], b: Iterable[TensorBytes], pairs: Mapping[Place, Place]
) -> tuple[int, int] | None:
    """The first dimensions that most bytes of the tensors of a batch have in each; None where they are the same.

    A tensor whose batch is flattened into another dimension shows the same ratio; the smallest pair is the batch.
    """
    before, after = _alike(a, {}), _alike(b, pairs)
    weights: Counter[tuple[int, int]] = Counter()
    for key in before.keys() & after.keys():
        old, new = before[key][0], after[key][0]
        if old.owner not in MADE_OF_A_BATCH or not old.shape or not new.shape:
            continue
        if len(old.shape) == len(new.shape) and old.shape[1:] == new.shape[1:] and old.shape[0] and new.shape[0]:
            weights[old.shape[0], new.shape[0]] += sum(tensor.size_bytes for tensor in before[key])
    if not weights:
        return None
    by_ratio: Counter[float] = Counter()
    for (first, second), weight in weights.items():
        by_ratio[second / first] += weight
    ratio = max(by_ratio, key=by_ratio.__getitem__)
    before_size, after_size = min(pair for pair in weights if pair[1] / pair[0] == ratio)
    return None if ratio == 1 else (before_size, after_size)

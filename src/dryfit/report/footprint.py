"""A footprint in the terminal: the peak and who owns it first, then from which module and line, then the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from dryfit.analyse.footprint import (
    BEFORE_THE_RECORDING,
    FailedRequest,
    Footprint,
    OwnerBytes,
    OwnerChange,
    Peak,
    StepFootprint,
    TensorBytes,
)
from dryfit.recording.model import (
    ACTIVATION,
    AUTOCAST_COPY,
    BUFFER,
    COMMUNICATION,
    GRADIENT,
    INPUT,
    OPTIMIZER_STATE,
    PARAMETER,
    REMAINDER,
    SETUP,
    TEMPORARY,
    WORKSPACE,
)
from dryfit.report.alike import module_rows, same_in_each, tensors_alike
from dryfit.report.source_lines import place_of, source_of
from dryfit.report.terminal import bar, open_console, sentence, table
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MOST_MODULES, _MOST_LINES, _MOST_TENSORS, _MOST_STEPS = 9, 6, 6, 6
_LEAST_SHARE_OF_A_MODULE = 0.02
_ASKED_FOR = (PARAMETER, GRADIENT, OPTIMIZER_STATE, ACTIVATION)
"""What people ask for first; shown even where it is nothing."""
OUTSIDE_MODULES = "(outside the modules)"
_OWNER_STYLES = {
    PARAMETER: "blue", GRADIENT: "magenta", OPTIMIZER_STATE: "cyan", AUTOCAST_COPY: "bright_blue",
    BUFFER: "bright_blue", INPUT: "green", ACTIVATION: "yellow", TEMPORARY: "bright_yellow",
    WORKSPACE: "bright_black", COMMUNICATION: "bright_magenta", REMAINDER: "bright_black",
}  # fmt: skip


def print_footprint(footprint: Footprint, file: TextIO | None = None) -> None:
    """Print who owns the memory; colour and width as the terminal has them, plain text where there is none.

    print_footprint(analyse(open_recording("run.dryfit")).footprint)
    """
    console = open_console(file)
    sentence(console, peak_line(footprint), style="bold")
    if footprint.out_of_memory is not None:
        sentence(console, out_of_memory_line(footprint.out_of_memory), style="bold red")
    print_owners(console, footprint)
    _modules(console, footprint)
    _lines(console, footprint)
    _tensors(console, footprint)
    _steps(console, footprint)
    _phases(console, footprint)
    _sentences(console, footprint)
    table(
        console,
        ("the numbers people compare", "", ""),
        [(number.name, format_bytes(number.size_bytes), number.why) for number in footprint.numbers],
        right={1},
        wrap_last=True,
    )
    if footprint.notes:
        console.print()
    for note in footprint.notes:
        sentence(console, note)


def peak_line(footprint: Footprint) -> str:
    """The peak in one line.

    PEAK 8.07 GiB allocated by tensors in step 2, backward; PyTorch held 9.49 GiB of the card's 23.52 GiB
    """
    peak = footprint.peak
    when = moment(peak.step, peak.phase) if footprint.steps else ""
    where = f" in {when}" if when else ""
    card = footprint.about.get("card") or {}
    total_bytes = card.get("total_bytes") if card.get("key") != "unlimited" else None
    of_card = f" of the card's {format_bytes(total_bytes)}" if total_bytes else " of the card"
    reserved = format_bytes(footprint.peak_reserved_bytes)
    return f"PEAK {format_bytes(peak.allocated_bytes)} allocated by tensors{where}; PyTorch held {reserved}{of_card}"


def out_of_memory_line(oom: FailedRequest) -> str:
    """What was asked for when nothing was left, in one line."""
    when = moment(oom.step, oom.phase)
    where = f" in {when}" if when else ""
    asked, free = format_bytes(oom.requested_bytes), format_bytes(oom.free_bytes)
    return f"OUT OF MEMORY{where}: {asked} asked for, {free} free on the card"


def moment(step: int, phase: str) -> str:
    """A step and phase in words, "" if neither is known.

    >>> moment(2, "backward"), moment(0, "setup"), moment(0, "backward"), moment(0, "")
    ('step 2, backward', 'the setup', 'backward', '')
    """
    words = [f"step {step}" if step else "", "the setup" if phase == SETUP and not step else phase]
    return ", ".join(word for word in words if word)


def share_of(size_bytes: int, total_bytes: int) -> str:
    """A share in percent, for a table.

    >>> share_of(57, 100), share_of(1, 1000), share_of(0, 100)
    ('57%', '<1%', '0%')
    """
    percent = 100 * size_bytes / total_bytes if total_bytes else 0.0
    return "<1%" if 0 < percent < 1 else f"{percent:.0f}%"


def heaviest_first(owners: Iterable[OwnerBytes]) -> list[OwnerBytes]:
    """Owners that hold anything, the heaviest first."""
    return sorted((one for one in owners if one.size_bytes), key=lambda one: -one.size_bytes)


def print_owners(console: Console, footprint: Footprint) -> None:
    """Print who owns the peak, what each parameter takes, and how much of the peak depends on the batch."""
    _owners(console, footprint.peak)
    if footprint.recipe is not None:
        console.print()
        sentence(console, footprint.recipe.sentence)
    _by_batch(console, footprint.peak)


def _owners(console: Console, peak: Peak) -> None:
    owners = heaviest_first(peak.owners)
    if any(one.owner in _ASKED_FOR for one in owners):
        held = {one.owner for one in owners}
        owners += [OwnerBytes(owner=name, size_bytes=0, blocks=0) for name in _ASKED_FOR if name not in held]
    most = owners[0].size_bytes if owners else 1
    rows = [
        (
            one.owner,
            format_bytes(one.size_bytes),
            share_of(one.size_bytes, peak.allocated_bytes),
            str(one.blocks),
            bar(console, one.size_bytes / most),
        )
        for one in owners
    ]
    styles = [_OWNER_STYLES.get(one.owner, "red") for one in owners]
    table(console, ("owner at the peak", "bytes", "share", "allocations", ""), rows, {1, 2, 3}, styles)


def _by_batch(console: Console, peak: Peak) -> None:
    if not peak.grows_with_batch_bytes and not peak.logits_and_loss_bytes:
        return  # without phases all of it is fixed, which says nothing
    parts = [
        ("grows with the batch", peak.grows_with_batch_bytes, "at most: made anew of each batch"),
        ("fixed", peak.fixed_bytes, ""),
        ("logits and loss", peak.logits_and_loss_bytes, "in the above, whoever owns them"),
    ]
    table(
        console,
        ("of the peak", "bytes", "share", ""),
        [(name, format_bytes(size), share_of(size, peak.allocated_bytes), said) for name, size, said in parts if size],
        right={1, 2},
    )


def _modules(console: Console, footprint: Footprint) -> None:
    total = footprint.peak.allocated_bytes
    found = module_rows(footprint.modules, most=_MOST_MODULES, least_bytes=round(total * _LEAST_SHARE_OF_A_MODULE))
    rows = [
        (format_bytes(row.size_bytes), share_of(row.size_bytes, total), "  " * row.depth + row.name, row.kind)
        for row in found
    ]
    own = footprint.modules.own_bytes
    if rows and own >= total * _LEAST_SHARE_OF_A_MODULE:
        rows.append((format_bytes(own), share_of(own, total), OUTSIDE_MODULES, ""))
    table(console, ("bytes", "share", "module", "class"), rows, right={0, 1})


def _lines(console: Console, footprint: Footprint) -> None:
    total = footprint.peak.allocated_bytes
    rows = [
        (
            format_bytes(line.size_bytes),
            share_of(line.size_bytes, total),
            place_of(line.file, line.line),
            mostly(line.owners),
            source_of(line.file, line.line) or (f"in {line.function}" if line.function else ""),
        )
        for line in footprint.lines[:_MOST_LINES]
    ]
    if any(line.file for line in footprint.lines):
        table(console, ("bytes", "share", "line", "mostly", ""), rows, right={0, 1})


def mostly(owners: Iterable[OwnerBytes]) -> str:
    """The owner of the greatest part."""
    first = heaviest_first(owners)[:1]
    return first[0].owner if first else ""


def _tensors(console: Console, footprint: Footprint) -> None:
    smallest = min((tensor.size_bytes for tensor in footprint.tensors), default=0)
    rows = [_tensor_row(group, smallest) for group in tensors_alike(footprint.tensors)[:_MOST_TENSORS]]
    table(console, ("tensor bytes", "owner", "shape", "name or place", "lives"), rows, right={0})


def _tensor_row(group: Sequence[TensorBytes], smallest_bytes: int) -> tuple[str, ...]:
    first = group[0]
    # The list has the largest only: of those as small as its last, there may be more.
    times = f"{len(group)}{'+' if first.size_bytes == smallest_bytes else ''} x " if len(group) > 1 else ""
    return (
        f"{times}{format_bytes(first.size_bytes)}",
        first.owner,
        shape_of(first),
        name_of(group) or place_of(first.file, first.line),
        _life(first),
    )


def _life(tensor: TensorBytes) -> str:
    if tensor.begin and tensor.begin == tensor.end:
        return f"within {tensor.begin}"
    if tensor.begin and tensor.end:
        return f"{tensor.begin} to {tensor.end}"
    return tensor.begin if tensor.begin in ("", BEFORE_THE_RECORDING) else f"since {tensor.begin}"


def name_of(group: Sequence[TensorBytes]) -> str:
    """The name of tensors that are alike, or of their module: "exp_avg of blocks.*.qkv.weight"; "" if neither is known.

    Where they differ by more than a number ("exp_avg", "exp_avg_sq"), it is the part they share.
    """
    names = {tensor.name or tensor.module for tensor in group}
    if len(names) == 1:
        return names.pop()
    in_each = {same_in_each(name) for name in names}
    return in_each.pop() if len(in_each) == 1 else same_in_each((group[0].name or group[0].module).rpartition(" ")[2])


def shape_of(tensor: TensorBytes) -> str:
    """A tensor's shape and dtype as far as they are known: "[8, 1024, 768] bfloat16"."""
    shape = "" if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]"
    return " ".join(part for part in (shape, tensor.dtype) if part)


def _steps(console: Console, footprint: Footprint) -> None:
    groups = [list(group) for _, group in groupby(footprint.steps, key=_figures_of_step)]
    rows = []
    for group in groups[:_MOST_STEPS]:
        first, last = group[0].step, group[-1].step
        peak = group[0].peak
        rows.append(
            (
                ("setup" if not first else str(first)) if first == last else f"{first or 'setup'} to {last}",
                format_bytes(peak.allocated_bytes),
                format_bytes(peak.reserved_bytes),
                format_bytes(group[0].end_allocated_bytes),
                peak.phase if first else "",
            )
        )
    if len(footprint.steps) < 2:
        return
    table(console, ("step", "peak allocated", "reserved then", "held after", "peak in"), rows, right={0, 1, 2, 3})
    if len(groups) > _MOST_STEPS:
        end = footprint.steps[-1]
        highest = format_bytes(end.peak.allocated_bytes)
        sentence(console, f"... up to step {end.step}, {highest} at its peak; --json has them all.")


def _figures_of_step(step: StepFootprint) -> tuple[object, ...]:
    peak = step.peak
    return bool(step.step), peak.allocated_bytes, peak.reserved_bytes, step.end_allocated_bytes, peak.phase


def _phases(console: Console, footprint: Footprint) -> None:
    step = next((one for one in footprint.steps if one.step == footprint.peak.step), None)
    if step is None or len(step.phases) < 2:
        return
    rows = [
        (
            phase.phase,
            format_bytes(phase.peak_allocated_bytes),
            format_bytes(phase.peak_reserved_bytes),
            ", ".join(f"{one.owner} {format_bytes(one.size_bytes)}" for one in heaviest_first(phase.owners)[:2]),
        )
        for phase in step.phases
    ]
    head = (f"phase of step {step.step}" if step.step else "phase", "peak allocated", "reserved", "mostly")
    table(console, head, rows, right={1, 2})


def _sentences(console: Console, footprint: Footprint) -> None:
    lines = []
    changed = changes(footprint.first_against_steady)
    if changed:
        lines.append(f"The steady step's peak against the first's: {changed}.")
    if footprint.growth is not None:
        lines.append(footprint.growth.sentence)
    if footprint.cached.sentence:
        lines.append(footprint.cached.sentence)
    if lines:
        console.print()
    for line in lines:
        sentence(console, line)


def changes(owners: Iterable[OwnerChange]) -> str:
    """What changed from one state to another, the greatest change first: "optimizer state +949.00 MiB"."""
    changed = [(one.owner, one.after_bytes - one.before_bytes) for one in owners if one.after_bytes != one.before_bytes]
    changed.sort(key=lambda one: -abs(one[1]))
    return ", ".join(f"{owner} {'+' if change > 0 else ''}{format_bytes(change)}" for owner, change in changed)

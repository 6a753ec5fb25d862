"""What the page's pictures are drawn from, as one compressed text; `assets/trace.js` reads it back.

Training repeats itself, so each column holds how far an allocation differs from what the page expects of it. An
allocation's *site* is all that does not change from step to step: sizes, owner, module, line, tensor, stack, stream.
Expected is the site that came after this one the last time, and of a site the address, the distance from the previous
allocation and the lifetime it had the last time. In a steady loop nearly every number is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.footprint import ModuleBytes
from dryfit.analyse.holdings import owned_bytes
from dryfit.recording.model import OOM, OWNERS
from dryfit.recording.stacks import EMPTY, Frame, Stacks
from dryfit.report.page.addresses import Compact, compact_addresses, segment_spans
from dryfit.report.page.columns import deltas, pack, zigzag
from dryfit.report.page.names import short_names, shown
from dryfit.report.page.thin import thin

MOST_LIFETIMES = 400_000
"""1,000,000 events are about 333,000 allocations: these are all shown."""
MOST_CHARACTERS = 5 << 20
"""A recording that does not repeat itself compresses less; it is thinned until its text is no longer than this."""
_TIME_KNOTS = 4096


class Payload(NamedTuple):
    """The compressed text, and what had to be left out of it, in words ("" if nothing was)."""

    text: str
    thinned: str


def payload(
    analysis: Analysis, most_lifetimes: int = MOST_LIFETIMES, most_characters: int = MOST_CHARACTERS
) -> Payload:
    """Everything the pictures and the module tree need, thinned to a size that opens at once."""
    exact_at = [analysis.footprint.peak.event, *(step.peak.event for step in analysis.footprint.steps)]
    spans = segment_spans(analysis.trace)
    lifetimes, events = analysis.replay.lifetimes, len(analysis.trace.events)
    compact = compact_addresses(spans, lifetimes)
    strings, short = _Strings(), short_names(analysis.recording)
    head: dict[str, Any] = {
        "events": events,
        "owners": OWNERS,
        "before_reserved": analysis.replay.before_reserved_bytes,
        "unit": compact.unit_bytes,
        "units": compact.total,
        "ranges": compact.ranges,
        "modules": [strings(path) for path in analysis.attribution.modules],
        "lines": [strings(_line(file, line, name, short)) for file, line, name in analysis.attribution.lines],
        "tree": _tree(analysis.footprint.modules, ""),
    }
    columns = {**_bands(analysis, strings), **_reserved(analysis), **_times(analysis)}
    columns["oom"] = deltas(event for event, kind in enumerate(analysis.trace.events.kind) if kind == OOM)
    columns["segment_begin"] = deltas(span.begin for span in spans)
    columns["segment_end"] = [events - span.end for span in spans]
    columns["segment_place"] = deltas(compact.place(span.address) for span in spans)
    columns["segment_size"] = [span.size_bytes // compact.unit_bytes for span in spans]
    shown_before = -1
    while True:
        kept, sentence = thin(lifetimes, events, exact_at, most_lifetimes)
        shown = _lifetimes(analysis, kept, compact, strings, short)
        text = pack({**head, **shown.head, "strings": strings.values}, {**columns, **shown.columns})
        if len(text) <= most_characters or len(kept) == shown_before:  # what is left has to stay
            return Payload(text, sentence)
        shown_before = len(kept)
        most_lifetimes = int(len(kept) * 0.9 * most_characters / len(text))


class _Numbers:
    """Numbers for values, by the order they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def __call__(self, value: Hashable) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class _Strings(_Numbers):
    """Numbers for texts; these are kept as they are shown."""

    def __call__(self, value: Hashable) -> int:
        return super().__call__(shown(str(value)))


class _Shown(NamedTuple):
    head: dict[str, Any]
    columns: dict[str, list[int]]


def _lifetimes(
    analysis: Analysis, kept: Sequence[int], compact: Compact, strings: _Strings, short: Callable[[str], str]
) -> _Shown:
    lifetimes, attribution = analysis.replay.lifetimes, analysis.attribution
    sites, tensors = _Numbers(), _Numbers()
    tensors(None)
    requested, blocks, streams, stacks = (
        lifetimes.requested_bytes, lifetimes.block_bytes, lifetimes.stream, lifetimes.stack,
    )  # fmt: skip
    owners, modules, lines = attribution.owner, attribution.module, attribution.line
    is_output, labels = attribution.is_logits_or_loss, attribution.tensor
    site_of = []
    for place in kept:
        label, tensor = labels.get(place), 0
        if label is not None:
            shape = "" if label.shape is None else "×".join(map(str, label.shape)) or "scalar"
            tensor = tensors((strings(label.name), strings(label.dtype), strings(shape)))
        key = (
            requested[place], blocks[place], owners[place], modules[place], lines[place], streams[place],
            stacks[place], tensor, is_output[place],
        )  # fmt: skip
        site_of.append(sites(key))

    by_column = list(zip(*sites.values, strict=True)) or [()] * 9
    used = _used_stacks(analysis.recording.stacks, by_column[6], strings, short)
    columns = {
        "site_requested": list(by_column[0]),
        "site_rounding": [block - asked for asked, block in zip(*by_column[:2], strict=True)],
        "site_remainder": [block - own for own, block in zip(owned_bytes(*by_column[:2]), by_column[1], strict=True)],
        "site_owner": list(by_column[2]),
        "site_module": deltas(by_column[3]),
        "site_line": deltas(by_column[4]),
        "site_stream": list(by_column[5]),
        "site_stack": deltas(used.number[stack] for stack in by_column[6]),
        "site_tensor": deltas(by_column[7]),
        "site_is_output": list(by_column[8]),
        **used.columns,
        **_surprises(analysis, kept, site_of, len(sites.values), compact),
    }
    head = {"lifetimes": len(kept), "sites": len(sites.values), "tensors": tensors.values, "frames": used.frames}
    return _Shown(head, columns)


def _surprises(
    analysis: Analysis, kept: Sequence[int], site_of: list[int], sites: int, compact: Compact
) -> dict[str, list[int]]:
    """The columns of lifetimes, each as its difference from what is expected. `assets/trace.js` undoes exactly this."""
    lifetimes, events = analysis.replay.lifetimes, len(analysis.trace.events)
    begins, ends, completeds, addresses = lifetimes.begin, lifetimes.end, lifetimes.completed, lifetimes.address
    out_site, out_begin, out_length, out_wait, out_place = [], [], [], [], []
    follower = [-1] * (sites + 1)
    last_step, last_length, last_wait, last_place = [0] * sites, [0] * sites, [0] * sites, [-1] * sites
    previous, fresh, previous_begin, previous_place = sites, 0, 0, 0
    for place, site in zip(kept, site_of, strict=True):
        expected = follower[previous]
        out_site.append(0 if site == (fresh if expected < 0 else expected) else site + 1)
        follower[previous] = previous = site
        if site == fresh:
            fresh += 1

        begin, end, completed = begins[place], ends[place], completeds[place]
        step = begin - previous_begin
        length = end - begin + 1 if end < events else 0  # 0: never freed
        wait = completed - end
        where = compact.place(addresses[place])
        out_begin.append(zigzag(step - last_step[site]))
        out_length.append(zigzag(length - last_length[site]))
        out_wait.append(zigzag(wait - last_wait[site]))
        out_place.append(zigzag(where - (last_place[site] if last_place[site] >= 0 else previous_place)))
        last_step[site], last_length[site], last_wait[site], last_place[site] = step, length, wait, where
        previous_begin, previous_place = begin, where
    return {"site": out_site, "begin": out_begin, "length": out_length, "wait": out_wait, "place": out_place}


class _Stacks(NamedTuple):
    number: dict[int, int]
    frames: list[int]
    columns: dict[str, list[int]]


def _used_stacks(stacks: Stacks, used: Sequence[int], strings: _Strings, short: Callable[[str], str]) -> _Stacks:
    """The stacks of the sites and their callers, renumbered; a caller's number stays below that of what it called."""
    wanted = set(used) | {EMPTY}
    for stack in set(used):
        while (stack := stacks.caller_of[stack]) not in wanted:
            wanted.add(stack)
    number = {stack: place for place, stack in enumerate(sorted(wanted))}
    frames = _Numbers()
    frame_column, caller_column = [0], [0]
    for stack in sorted(wanted)[1:]:
        frame_column.append(frames(stacks.all_frames[stacks.frame_of[stack]]))
        caller_column.append(number[stack] - number[stacks.caller_of[stack]])
    return _Stacks(
        number,
        [strings(_frame(frame, short)) for frame in frames.values],
        {"stack_frame": deltas(frame_column), "stack_caller": caller_column},
    )


def _line(file: str, line: int, function: str, short: Callable[[str], str]) -> str:
    return f"{short(file)}:{line}{f' in {function}' if function else ''}" if file else ""


def _frame(frame: Frame, short: Callable[[str], str]) -> str:
    return f"module {frame.name}" if frame.is_module else f"{short(frame.file)}:{frame.line} {frame.name}"


def _bands(analysis: Analysis, strings: _Strings) -> dict[str, list[int]]:
    """From which event on the program is in which step and phase; marks that change neither are left out."""
    bands: list[tuple[int, int, str]] = []
    for mark in analysis.trace.marks:
        if bands and bands[-1][0] == mark.event:
            bands.pop()
        if not bands or bands[-1][1:] != (mark.step, mark.phase):
            bands.append((mark.event, mark.step, mark.phase))
    return {
        "band_event": deltas(event for event, _, _ in bands),
        "band_step": deltas(step for _, step, _ in bands),
        "band_phase": [strings(phase) for _, _, phase in bands],
    }


def _reserved(analysis: Analysis) -> dict[str, list[int]]:
    """After which events reserved memory is another than before, and how much it is then."""
    series = analysis.replay.reserved_bytes
    changes = [event + 1 for event, (before, after) in enumerate(pairwise(series)) if before != after]
    if len(series) and series[0] != analysis.replay.before_reserved_bytes:
        changes.insert(0, 0)
    return {"reserved_event": deltas(changes), "reserved": deltas(series[event] for event in changes)}


def _times(analysis: Analysis) -> dict[str, list[int]]:
    """The time of every so many events, in microseconds; between them the page draws a straight line."""
    times = analysis.trace.events.time_us
    every = -(-max(len(times), 1) // _TIME_KNOTS)
    return {"time": deltas([*times[::every], *times[-1:]]), "time_every": [every]}


def _tree(module: ModuleBytes, outer: str) -> list[Any]:
    """A module by its name within the one around it, whose path, with a dot, is `outer`."""
    owners = [[OWNERS.index(owner.owner), owner.size_bytes] for owner in module.owners]
    children = [_tree(child, f"{module.path}." if module.path else "") for child in module.children]
    name, kind = shown(module.path.removeprefix(outer)), shown(module.kind)
    return [name, kind, module.size_bytes, module.own_bytes, owners, children]

"""Growth from step to step, and who keeps it: DF101 to DF108, DF113, and DF115 where nobody is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dryfit.findings import Finding
from dryfit.watching.census import Census
from dryfit.watching.device_memory import allocated_bytes
from dryfit.watching.graphs import Graphs, walk
from dryfit.watching.growth import Growth, Interval
from dryfit.watching.held import holders_of
from dryfit.watching.kinds import kept_graphs, kept_tensors
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.kinds.seen import Seen
from dryfit.watching.situation import Situation
from dryfit.watching.torch_private import next_sequence_number, sequence_number_of

_SAMPLE = 6
_MOST_TARGETS = 128
_MOST_EXTRA_STEPS = 8
_LIKELY_AFTER_STEPS, _CERTAIN_AFTER_STEPS = 8, 15
"""What is kept for so many steps is unlikely to be a window, or all but certain not to be one."""


class Kept(Kind):
    """Follows what training steps leave behind.

    What has been kept for a few steps may be a window that is not full yet: it is told of after some more, or as the
    program ends. Once that is done, holders are looked for more and more rarely: at each doubling of the steps.
    """

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._growth = Growth(situation.step_mark)
        self._backwards = 0
        self._is_suspicious, self._extra_steps = False, 0
        self._next_search = 0
        self._not_yet_told: list[Finding] = []

    def step_is_over(self, step: int, census: Census | None) -> None:
        if census is None:
            return
        has_backward = self.situation.backwards > self._backwards
        self._backwards = self.situation.backwards
        graphs = take_in(
            self._growth,
            step,
            census,
            self.situation.home,
            has_backward=has_backward,
            old_before=self.situation.mark_before,
        )
        self._is_suspicious = is_suspicious(self._growth, self.situation)
        if not self._is_suspicious:
            self._not_yet_told = []
        elif self._growth.is_confirmed():
            self._is_suspicious = self._growth.kept_for_steps < _LIKELY_AFTER_STEPS
            if step >= self._next_search:
                self._search(step, graphs, census)

    def _search(self, step: int, graphs: Graphs, census: Census) -> None:
        found = search(self._growth, graphs, census, self.situation, is_evaluation=False)
        if self._growth.kept_for_steps >= _CERTAIN_AFTER_STEPS:
            self.found += found
            self._not_yet_told, self._next_search = [], 2 * step
        else:
            self._not_yet_told, self._next_search = found, step + max(step // 2, _LIKELY_AFTER_STEPS // 2)

    def wants_census(self, step: int) -> bool:
        return bool(self._not_yet_told) and step >= self._next_search

    def needs_more_steps(self) -> bool:
        self._extra_steps += self._is_suspicious
        return self._is_suspicious and self._extra_steps <= _MOST_EXTRA_STEPS

    def pending(self) -> list[Finding]:
        return self._not_yet_told


def take_in(
    growth: Growth, step: int, census: Census, home: set[str], *, has_backward: bool, old_before: int
) -> Graphs:
    """Compare a census with those before; the graphs are the program's, and are to be let go of."""
    interval = growth.note(step, next_sequence_number(), census.tensors, allocated_bytes(), has_backward=has_backward)
    with_graph = [each for each in census.tensors if each.requires_grad and not each.is_leaf]
    graphs = walk(with_graph, [each.mark for each in growth.intervals], old_before)
    for each, nodes in zip(growth.intervals, graphs.nodes, strict=True):
        each.nodes = nodes
    growth.compare(home)
    interval.leaves = len(graphs.leaves)
    interval.gradients = sum(
        1 for each in census.tensors if each.is_leaf and each.grad is not None and each.grad.requires_grad
    )
    return graphs


def is_suspicious(growth: Growth, situation: Situation) -> bool:
    """Whether something of all steps seems to be kept."""
    return growth.keeps_graphs() or growth.keeps_tensors(situation.home) or growth.gradients_rise()


def search(
    growth: Growth, graphs: Graphs, census: Census, situation: Situation, *, is_evaluation: bool
) -> list[Finding]:
    """Find who keeps it."""
    seen = Seen.of(growth, situation, is_evaluation=is_evaluation)
    findings: list[Finding] = []
    if growth.gradients_rise() or (growth.keeps_graphs() and graphs.carriers):
        findings += kept_graphs.findings(_carriers(graphs), graphs, growth, seen)
    if growth.keeps_tensors(situation.home):
        findings += _of_tensors(growth, census.tensors, seen, {each.evidence.holder for each in findings})
    return findings


def _carriers(graphs: Graphs) -> list[Any]:
    """Of the tensors that keep old nodes a few of each kind, of those that came first and last.

    Many are held by the graph alone, which has saved them. They are not told from others before the collector is asked.
    """
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for each in sorted(graphs.carriers, key=lambda each: sequence_number_of(each.grad_fn)):
        alike.setdefault((tuple(each.shape), type(each.grad_fn).__name__), []).append(each)
    sample: list[Any] = []
    for group in sorted(alike.values(), key=len):
        sample += group if len(group) <= 2 * _SAMPLE else [*group[:_SAMPLE], *group[-_SAMPLE:]]
    return sample[:_MOST_TARGETS]


def _of_tensors(growth: Growth, tensors: Sequence[Any], seen: Seen, told: set[str]) -> list[Finding]:
    """Findings of tensors that stay, by the holders that have some of each interval."""
    by_id = {id(each): each for each in tensors}
    sample: list[tuple[int, int, Any]] = []  # the interval, the bytes, the tensor
    for place, interval in enumerate(growth.spread()):
        sample += [(place, size, by_id[number]) for number, size in _some_of(interval, seen) if number in by_id]
    everyone = holders_of([tensor for _, _, tensor in sample], [place for place, _, _ in sample])
    seen.situation.has_named_growth |= bool(everyone)
    places = {place for place, _, _ in sample}
    held = [each for each in everyone if {sample[number][0] for number in each.of} == places]
    total = sum(size for _, size, _ in sample)
    findings = []
    for each in held:
        share = sum(sample[number][1] for number in each.of) / max(total, 1)
        if not each.is_bounded and each.name not in told:
            findings.append(kept_tensors.finding(each, sample[each.of[0]][2], seen, round(seen.kept_per_step * share)))
    return [each for each in findings if each is not None]


def _some_of(interval: Interval, seen: Seen) -> Iterator[tuple[int, int]]:
    """A few of the tensors that stayed, of each of the largest sizes: their `id`, and their bytes."""
    of_size: dict[int, list[int]] = {}
    for each in list(interval.kept.values()):
        if each.storage is not None and each.storage.device in seen.home:
            of_size.setdefault(each.storage.size_bytes, []).append(each.number)
    for size in sorted(of_size, reverse=True)[:_SAMPLE]:
        yield from ((number, size) for number in of_size[size][:_SAMPLE])

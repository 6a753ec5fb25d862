"""Growth from step to step, and who keeps it: DF101 to DF108, DF113, and DF115 where nobody is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dryfit.findings import Finding
from dryfit.watching.census import Census
from dryfit.watching.device_memory import allocated_bytes
from dryfit.watching.graphs import Graphs, walk
from dryfit.watching.growth import Growth
from dryfit.watching.held import Held, holders_of
from dryfit.watching.kinds import kept_graphs, kept_tensors
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.kinds.seen import Seen
from dryfit.watching.situation import Situation
from dryfit.watching.torch_private import next_sequence_number

_SAMPLE = 6
_MOST_EXTRA_STEPS = 4


class Kept(Kind):
    """Follows what training steps leave behind."""

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._growth = Growth(situation.step_mark)
        self._backwards = 0
        self._is_suspicious, self._extra_steps = False, 0

    def step_is_over(self, step: int, census: Census | None) -> None:
        if census is None:
            return
        has_backward = self.situation.backwards > self._backwards
        self._backwards = self.situation.backwards
        findings, self._is_suspicious = look(
            self._growth,
            step,
            census,
            self.situation,
            has_backward=has_backward,
            old_before=self.situation.mark_before,
            is_evaluation=False,
        )
        self.found += findings

    def needs_more_steps(self) -> bool:
        self._extra_steps += self._is_suspicious
        return self._is_suspicious and self._extra_steps <= _MOST_EXTRA_STEPS


def look(
    growth: Growth,
    step: int,
    census: Census,
    situation: Situation,
    *,
    has_backward: bool,
    old_before: int,
    is_evaluation: bool,
) -> tuple[list[Finding], bool]:
    """Take in a census; give the findings, and whether there may be some that more steps would confirm."""
    interval = growth.note(step, next_sequence_number(), census.tensors, allocated_bytes(), has_backward=has_backward)
    with_graph = [each for each in census.tensors if each.requires_grad and not each.is_leaf]
    graphs = walk(with_graph, [each.mark for each in growth.intervals], old_before)
    for each, nodes in zip(growth.intervals, graphs.nodes, strict=True):
        each.nodes = nodes
    interval.leaves = len(graphs.leaves)
    keeps_graphs, keeps_tensors = growth.keeps_graphs(), growth.keeps_tensors(situation.home)
    if not growth.is_confirmed():
        return [], keeps_graphs or keeps_tensors
    seen = Seen.of(growth, situation, is_evaluation=is_evaluation)
    findings: list[Finding] = []
    if keeps_graphs and graphs.carriers:
        findings += kept_graphs.findings(_carriers(graphs), graphs, growth, seen)
    if keeps_tensors:
        findings += _of_tensors(growth, census.tensors, seen, {each.evidence.holder for each in findings})
    return findings, False


def _carriers(graphs: Graphs) -> list[Any]:
    """Of the tensors that keep old nodes a few, of those that came first and last."""
    carriers = graphs.carriers
    return carriers if len(carriers) <= 2 * _SAMPLE else [*carriers[:_SAMPLE], *carriers[-_SAMPLE:]]


def _of_tensors(growth: Growth, tensors: Sequence[Any], seen: Seen, told: set[str]) -> list[Finding]:
    """Findings of tensors that stay, by the holders of a few of each interval."""
    by_id = {id(each): each for each in tensors}
    sample: list[Any] = []
    sizes: list[int] = []
    for interval in growth.settled():
        births = [each for each in interval.kept.values() if each.storage and each.storage.device in seen.home]
        of_size = {each.storage.size_bytes: each for each in births if each.storage}  # one of each size
        for size in sorted(of_size, reverse=True)[: _SAMPLE // 2]:
            tensor = by_id.get(of_size[size].number)
            if tensor is not None:
                sample.append(tensor)
                sizes.append(size)
    held = [each for each in holders_of(sample) if _is_told(each, told)]
    intervals = len(growth.settled())
    return [
        finding
        for each in held
        if (
            finding := kept_tensors.finding(
                each,
                sample[each.of[0]],
                seen,
                seen.kept_per_step if len(held) == 1 else sum(sizes[number] for number in each.of) // intervals,
            )
        )
    ]


def _is_told(held: Held, told: set[str]) -> bool:
    return not held.is_bounded and held.name not in told

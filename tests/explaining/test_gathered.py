"""What a recording shows of a leak: from step to step, and from batch to batch of an evaluation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dryfit.analyse import analyse
from dryfit.analyse.footprint import FailedRequest, Growth, LineBytes
from dryfit.explaining.explaining import explain
from dryfit.explaining.gathered import what_gathered
from dryfit.findings import Place
from dryfit.recording import model
from dryfit.recording.model import DeviceTrace, Events, Mark, Recording
from dryfit.recording.stacks import Stacks

MIB, GIB = 1 << 20, 1 << 30
PLACE = Place(file="/home/me/train.py", line=8)


def recording(*events: tuple[int, int, int], marks: tuple[Mark, ...] = ()) -> Recording:
    """Events of (kind, address, size), all by one line."""
    columns = Events()
    for kind, address, size in events:
        for name, value in (("kind", kind), ("address", address), ("size", size)):
            getattr(columns, name).append(value)
        for name in ("stream", "pool", "stack", "time_us"):
            getattr(columns, name).append(0)
    trace = DeviceTrace(device=0, events=columns, marks=marks, starts_empty=True)
    stacks = Stacks()
    stacks.add(())
    return Recording(source="dryfit", devices=(trace,), stacks=stacks)


def growth(bytes_per_step: int, last_step: int = 10) -> Growth:
    line = LineBytes(file=PLACE.file, line=8, function="main", size_bytes=1, blocks=1)
    return Growth(first_step=1, last_step=last_step, bytes_per_step=bytes_per_step, lines=(line,))


def failed(requested_bytes: int, **more: Any) -> FailedRequest:
    values: dict[str, Any] = {
        "event": 11, "step": 11, "phase": model.BACKWARD, "requested_bytes": requested_bytes, "free_bytes": 0,
        "allocated_bytes": GIB, "reserved_bytes": GIB, "holes_bytes": 0, "largest_hole_bytes": 0, "sentence": "",
    }  # fmt: skip
    return FailedRequest(**(values | more))


def with_growth(found: Growth, *, stays: bool = True) -> Any:
    """Each step makes as much as the growth says, and keeps it or not; the last one's is there in any case."""
    events, marks = [(model.SEGMENT_ALLOC, 0, GIB)], []
    for step in range(found.first_step, found.last_step + 1):
        marks.append(Mark(event=len(events), step=step, phase=model.FORWARD))
        events.append((model.ALLOC, step * 50 * MIB, found.bytes_per_step))
        if not stays and step < found.last_step:
            events += [(kind, step * 50 * MIB, found.bytes_per_step) for kind in (model.FREE_REQUESTED, 3)]
    analysis = analyse(recording(*events, marks=tuple(marks)))
    return dataclasses.replace(analysis, footprint=dataclasses.replace(analysis.footprint, growth=found))


def test_growth_is_the_cause_and_names_the_line_that_makes_what_stays() -> None:
    finding = what_gathered(with_growth(growth(50 * MIB)), failed(400 * MIB), None)
    assert finding is not None
    assert finding.code == "DF114"
    assert finding.claim == (
        "Each step leaves 50.00 MiB more on the card than the one before, from step 1 to step 10: 450.00 MiB by now, "
        "made at /home/me/train.py:8. The request of 400.00 MiB that failed in step 11 would have been served without "
        "them."
    )
    assert finding.advice.startswith("Find what keeps them")
    assert (finding.place and finding.place.line) == 8
    evidence = finding.evidence
    assert (evidence.bytes_per_step, evidence.first_step, evidence.last_step) == (50 * MIB, 1, 10)


def test_what_grew_too_little_for_the_request_is_not_said_to_have_been_enough() -> None:
    finding = what_gathered(with_growth(growth(50 * MIB)), failed(600 * MIB), None)
    assert finding is not None
    assert finding.claim.endswith("The request of 600.00 MiB that failed in step 11 met a card that they had filled.")


def test_batches_that_become_longer_are_no_growth() -> None:
    assert what_gathered(with_growth(growth(50 * MIB), stays=False), failed(400 * MIB), None) is None


def test_a_growth_that_fills_no_card_is_no_cause() -> None:
    assert what_gathered(with_growth(growth(MIB)), failed(400 * MIB), None) is None  # 10 MiB of 1 GiB
    assert what_gathered(with_growth(growth(MIB)), None, None) is not None  # nothing else is the matter
    assert what_gathered(with_growth(growth(512)), None, None) is None


def evaluation(count: int, phase: str = model.EVALUATION) -> Recording:
    events = [(model.SEGMENT_ALLOC, 0, GIB)]
    events += [(model.ALLOC, number * 100 * MIB, 100 * MIB) for number in range(count)]
    events += [(model.OOM, 10 * MIB, 100 * MIB)]
    return recording(*events, marks=(Mark(event=0, step=2, phase=phase),))


def test_results_that_an_evaluation_collects_are_named() -> None:
    (finding,) = explain(evaluation(5), retrace=False).findings
    assert finding.code == "DF202"
    assert finding.claim == (
        "5 earlier results of the evaluation are still on the card, 500.00 MiB of 500.00 MiB in tensors, when the next "
        "one needs 100.00 MiB: they gather from batch to batch."
    )
    assert finding.advice == (
        "Evaluate under torch.no_grad(), and keep of each batch only what is needed: its metric, or output.cpu()."
    )


@pytest.mark.parametrize("other", [evaluation(2), evaluation(5, model.FORWARD)])
def test_a_few_results_and_those_of_training_are_no_collection(other: Recording) -> None:
    assert explain(other, retrace=False).findings[0].code != "DF202"

"""What holds of every footprint; and that its JSON is as documented and reads back."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dryfit.analyse.footprint import Footprint, ModuleBytes, OwnerBytes
from dryfit.errors import UsageError
from dryfit.recording import model
from dryfit.recording.model import OWNERS, PHASES, REMAINDER, Recording
from dryfit.recording.replay import replay

from .build import MIB, Script, at, module
from .by_label import footprint
from .test_footprint_peaks import training

GOLDEN = Path(__file__).parent / "golden" / "footprint.json"
LABELS = [owner for owner in OWNERS if owner != REMAINDER]


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Programs that allocate and free in any order, in steps and phases of any order."""
    script = Script()
    alive: list[int] = []
    step = 0
    for _ in range(draw(st.integers(0, 40))):
        what = draw(st.sampled_from(("alloc", "alloc", "alloc", "free", "phase", "step")))
        if what == "alloc":
            size = draw(st.one_of(st.integers(1, 2 * MIB), st.integers(9 * MIB, 30 * MIB)))
            path = draw(st.sampled_from(("", "a", "a.b", "a.b.c", "d.e")))
            frames = [at("train.py", draw(st.integers(1, 5))), *([module(path)] if path else [])]
            alive.append(script.alloc(size, *frames, owner=draw(st.sampled_from(LABELS))))
        elif what == "free" and alive:
            script.free(alive.pop(draw(st.integers(0, len(alive) - 1))))
        elif what == "phase":
            script.phase(draw(st.sampled_from(PHASES)))
        elif what == "step":
            step += 1
            script.phase(draw(st.sampled_from(PHASES)), step=step)
    return script.recording()


def total(owners: tuple[OwnerBytes, ...]) -> int:
    return sum(each.size_bytes for each in owners)


def check_tree(tree: ModuleBytes) -> None:
    assert total(tree.owners) == tree.size_bytes
    assert tree.own_bytes + sum(child.size_bytes for child in tree.children) == tree.size_bytes
    for child in tree.children:
        check_tree(child)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings())
def test_everything_sums_up(recording: Recording) -> None:
    found = footprint(recording)
    peak = found.peak
    assert total(peak.owners) == peak.allocated_bytes == peak.fixed_bytes + peak.grows_with_batch_bytes
    assert peak.requested_bytes <= peak.allocated_bytes <= peak.active_bytes <= peak.reserved_bytes
    assert peak.logits_and_loss_bytes <= peak.allocated_bytes
    check_tree(found.modules)
    assert found.modules.size_bytes == peak.allocated_bytes
    assert sum(line.size_bytes for line in found.lines) == peak.allocated_bytes
    for step in found.steps:
        assert total(step.peak.owners) == step.peak.allocated_bytes <= peak.allocated_bytes
        assert max(each.peak_allocated_bytes for each in step.phases) == step.peak.allocated_bytes
        assert all(total(each.owners) == each.peak_allocated_bytes for each in step.phases)
        assert all(each.peak_reserved_bytes <= found.peak_reserved_bytes for each in step.phases)
        assert step.end_allocated_bytes <= step.peak.allocated_bytes
    cached = found.cached
    assert cached.whole_segments_bytes + cached.split_bytes == cached.cached_bytes
    assert cached.cached_bytes + cached.awaiting_bytes + cached.allocated_bytes == cached.reserved_bytes
    assert found.numbers[-2].size_bytes == found.peak_reserved_bytes <= found.numbers[-1].size_bytes


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings())
def test_owners_are_those_that_a_look_at_every_allocation_finds(recording: Recording) -> None:
    found = footprint(recording)
    labels = {label.event: label.owner for label in recording.devices[0].labels}
    lifetimes = replay(recording.devices[0]).lifetimes
    for peak in (found.peak, *(step.peak for step in found.steps)):
        held: Counter[str] = Counter()
        for begin, end, asked, block in zip(
            lifetimes.begin, lifetimes.end, lifetimes.requested_bytes, lifetimes.block_bytes, strict=True
        ):
            if begin <= peak.event < end:
                own = (asked + 511) // 512 * 512
                held[labels[begin]] += own
                held[REMAINDER] += block - own
        assert {each.owner: each.size_bytes for each in peak.owners} == +held


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings())
def test_json_reads_back(recording: Recording) -> None:
    found = footprint(recording)
    assert Footprint.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def example() -> Footprint:
    """A training run of five steps on a named card that keeps something, and then asks for too much."""
    script = training(steps=5)
    script.modules = [model.ModuleOutput("", "Net"), model.ModuleOutput("fc", "Linear", "float32", (32, 1024))]
    script.alloc(11 * MIB - 100, at("train.py", 12), owner=model.COMMUNICATION)
    script.out_of_memory(100 * MIB, at("train.py", 13), free_bytes=5 * MIB)
    card = {"key": "l4", "name": "NVIDIA L4", "outside_bytes": 235 * MIB, "outside_margin_bytes": 100 * MIB}
    about = {"program": ["train.py"], "card": card, "versions": {"torch": "2.14.1"}}
    return footprint(dataclasses.replace(script.recording(), about=about))


def test_json_is_as_it_was(rewrite_goldens: bool) -> None:
    found = json.dumps(example().to_dict(), indent=1) + "\n"
    if rewrite_goldens:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")
    assert Footprint.from_dict(json.loads(found)) == example()


def test_every_field_is_documented() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "footprint.md").read_text(encoding="utf-8")
    missing: list[str] = []

    def visit(values: Any) -> None:
        if isinstance(values, list):
            for each in values:
                visit(each)
        elif isinstance(values, dict):
            for name, each in values.items():
                if f"`{name}`" not in documented:
                    missing.append(name)
                if name != "about":
                    visit(each)

    visit(json.loads(GOLDEN.read_text(encoding="utf-8")))
    assert missing == []
    assert [owner for owner in (*OWNERS, *PHASES) if f"`{owner}`" not in documented] == []


def test_fields_of_a_later_dryfit_are_skipped() -> None:
    values = example().to_dict()
    values["peak"]["colour"] = "blue"
    assert Footprint.from_dict(values) == example()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "These values are not a footprint of dryfit: 'schema_version'."),
        (
            {"schema_version": 2},
            "The footprint has schema version 2, and this dryfit knows up to 1; read it with the dryfit that wrote it, "
            "or a newer one.",
        ),
        (
            {"schema_version": 1, "source": "rehearsal"},
            "These values are not a footprint of dryfit: 'Footprint.device'.",
        ),
        (
            {"schema_version": 1, "source": 3},
            "These values are not a footprint of dryfit: Footprint.source was expected to be of type str, and 3 found.",
        ),
    ],
)
def test_what_is_no_footprint_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        Footprint.from_dict(values)
    assert str(refused.value) == sentence

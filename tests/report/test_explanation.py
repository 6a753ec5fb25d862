"""The explanation of a recorded card in the terminal, from values alone."""

from __future__ import annotations

import dataclasses
import io

from dryfit.explaining.explanation import NOT_ASKED, RECORDING, ExplainedCard, Explanation, OnOtherSettings, Outcome
from dryfit.findings import Finding, Place
from dryfit.report.explanation import print_explanation

from . import footprints

GIB = 1 << 30


def outcome(settings: str, reserved_gib: int, served: bool, **more: object) -> Outcome:
    values: dict[str, object] = {
        "settings": settings, "memory_bytes": 20 * GIB, "peak_reserved_bytes": reserved_gib * GIB,
        "peak_allocated_bytes": 17 * GIB, "saved_bytes": (23 - reserved_gib) * GIB, "served": served,
        "failed_bytes": None if served else GIB, "retries": 0, "is_exact": True, "sentence": f"With {settings}: so.",
    }  # fmt: skip
    return Outcome(**(values | more))  # type: ignore[arg-type]


def printed(explanation: Explanation) -> str:
    text = io.StringIO()
    print_explanation(explanation, text)
    return text.getvalue()


def card(would_have: OnOtherSettings | None, why_not: str = "") -> Explanation:
    finding = Finding(
        code="DF502",
        claim="There is room, in pieces.",
        advice="Set expandable_segments:True.",
        place=Place(file="train.py", line=7, text="    loss.backward()"),
    )
    one = ExplainedCard(
        device=0, footprint=footprints.out_of_memory(), failed=None, failed_at=None,
        capacity_bytes=20 * GIB, settings="", would_have=would_have, finding=finding, why_not_retraced=why_not,
    )  # fmt: skip
    return Explanation(kind=RECORDING, name="run.dryfit", findings=(finding,), cards=(one,), notes=("A note.",))


def test_the_cause_and_the_next_step_come_first_and_settings_last() -> None:
    others = (outcome("expandable_segments:True", 18, True, fits_on=("NVIDIA GeForce RTX 4090", *"ABCD")),)
    would_have = OnOtherSettings(
        torch="2.14.1", as_recorded=outcome("", 23, False), others=others, best=0, is_faithful=True
    )
    lines = printed(card(would_have)).splitlines()
    assert lines[:3] == [
        "DF502 fragmentation: There is room, in pieces.",
        "    train.py:7: loss.backward()",
        "Next: Set expandable_segments:True.",
    ]
    at = lines.index(next(line for line in lines if line.startswith("other settings would have done")))
    assert lines[at + 1].startswith("(PyTorch's defaults)")
    assert lines[at + 1].split()[-5:] == ["as", "recorded", "out", "of", "memory"]
    assert lines[at + 2].startswith("expandable_segments:True")
    assert "5.00 GiB less" in lines[at + 2]
    assert lines[at + 2].endswith("RTX 4090, A, B, C and 1 more")
    assert lines[at + 4] == "With expandable_segments:True: so."
    assert lines[-1] == "`dryfit lint --explain DF502` says more."
    assert "A note." in lines


def test_what_would_not_have_helped_is_said() -> None:
    would_have = OnOtherSettings(
        torch="2.14.1", as_recorded=outcome("", 23, False), others=(outcome("max_split_size_mb:64", 24, False),),
        best=None, is_faithful=False, doubt="It differs by 2.00 MiB.",
    )  # fmt: skip
    text = printed(card(would_have))
    assert "1.00 GiB more" in text
    assert "None of these settings would have helped.\n" in text


def test_a_recording_without_a_failure_begins_with_the_next_step() -> None:
    explanation = dataclasses.replace(card(None), findings=(), next_step="Nothing failed. Do this.")
    explanation = dataclasses.replace(explanation, cards=(dataclasses.replace(explanation.cards[0], finding=None),))
    lines = printed(explanation).splitlines()
    assert lines[0] == "Nothing failed. Do this."
    assert lines[2].startswith("PEAK")


def test_cards_sold_under_one_name_are_named_once() -> None:
    others = (outcome("expandable_segments:True", 18, True, fits_on=("RTX 3080", "RTX 4090", "RTX 3080")),)
    would_have = OnOtherSettings(
        torch="2.14.1", as_recorded=outcome("", 23, False), others=others, best=0, is_faithful=True
    )
    assert "RTX 3080, RTX 4090\n" in printed(card(would_have))


def test_a_note_is_printed_once() -> None:
    assert printed(card(None, "A note.")).count("A note.") == 1
    assert "It was not asked for." not in printed(card(None, NOT_ASKED))

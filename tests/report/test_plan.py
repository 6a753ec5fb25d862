"""The report of a plan against goldens; `pytest tests/report --rewrite-goldens` rewrites them."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.measures.price import Price
from dryfit.rehearse.result import Communication, RankPeak
from dryfit.rehearse.world import World
from dryfit.report.plan import html, print_plan, verdict_line
from dryfit.search.planned import CardFor, Extent, NotTaken, Plan, ToWrite, Tried
from dryfit.search.trial import FAILED, FITS, STOPPED, TOO_BIG

GOLDEN = Path(__file__).parent / "golden"
MIB, GIB = 1 << 20, 1 << 30
CARD = find_card("rtx-3090")
FLOPS = 1000


def tried(*measures: str, gib: float, kind: str | None = None, flops: int = FLOPS, **fields: Any) -> Tried:
    size = int(gib * GIB)
    kind = kind or (FITS if size <= CARD.total_bytes else TOO_BIG)
    price = {name: fields.pop(name) for name in ("host_bytes", "changes", "cards", "is_counted") if name in fields}
    given: dict[str, Any] = {
        "command": ("train.py", "--lr", "3e-4"),
        "peak_allocated_bytes": size - 900 * MIB,
        "peak_reserved_bytes": size - 400 * MIB,
        "peak_total_bytes": size,
        "lacking_bytes": max(0, size - CARD.total_bytes),
        "phase": "backward",
        "phase_peaks": {"forward": size - 4 * GIB, "backward": size - 900 * MIB, "optimizer step": size - 2 * GIB},
        "price": Price(flops=flops, base_flops=FLOPS, measures=len(measures), **price),
        "sentence": "Stopped after 4 optimiser steps.",
    }
    return Tried(measures=measures, kind=kind, **given | fields)


def written(word: str, snippet: str, **fields: Any) -> ToWrite:
    return ToWrite(
        measure=word, title=f"{word.partition(':')[0]} (title)", what="It takes less.", snippet=snippet, **fields
    )


def extent(**fields: Any) -> Extent:
    given = {
        "measures": 4, "combinations": 11, "rehearsed": 6, "unanswered": 0, "cheaper": 4, "ruled_out": 0, "left": 0,
        "largest": 0, "most": 24,
    }  # fmt: skip
    return Extent(**given | fields)


def plan_of(as_it_is: Tried, *others: Tried, **fields: Any) -> Plan:
    cheapest = fields.get("cheapest")
    given: dict[str, Any] = {
        "program": ["train.py", "--lr", "3e-4"],
        "gpu": "rtx-3090",
        "card": CARD.to_dict(),
        "keep": "accuracy",
        "as_it_is": as_it_is,
        "tried": tuple(sorted(others, key=lambda each: each.order)),
        "surely": cheapest,
        "rehearsals": 21,
        "from_cache": 0,
        "wall_seconds": 17.25,
    }
    return Plan(**given | fields)


AS_IT_IS = tried(gib=31)
FUSED = tried("fused-optimizer", gib=29.5)
BLOCKS = tried("checkpoint-blocks", gib=22.5, flops=1330)
SECOND = tried("checkpoint-every-second", gib=25.8, flops=1160)
BOTH = tried("checkpoint-every-second", "fused-optimizer", gib=23.1, flops=1160)
ON_HOST = tried("offload-optimizer", gib=22.0, host_bytes=3 * GIB)
TO_WRITE = (
    written("checkpoint-every-second", "for block in blocks[::2]:\n    checkpointed(block)", not_counted="time."),
    written("fused-optimizer", "AdamW(..., fused=True)", needs="torch"),
)
NOT_TRIED = (
    NotTaken(measure="zero-grad", why="gradients are freed before the forward pass already"),
    NotTaken(measure="bf16-autocast", why="it computes or keeps numbers with fewer bits", how_to="--keep method"),
)
REJECTED = (
    NotTaken(measure="micro-batch:4", why="micro-batch cannot be switched on in train.py: it has a closure."),
    NotTaken(measure="adamw-8bit", why="adamw-8bit cannot be switched on: not installed.", how_to="pip install it"),
)
USUAL = plan_of(
    AS_IT_IS, FUSED, BLOCKS, SECOND, BOTH, ON_HOST,
    cheapest=BOTH.measures, to_write=TO_WRITE, not_tried=NOT_TRIED, rejected=REJECTED, searched=(extent(),),
    cards=(CardFor(measures=(), peak_total_bytes=31 * GIB, card="v100-32gb"),),
)  # fmt: skip
STEP = dataclasses.replace(AS_IT_IS, phase="optimizer step")
MICRO = dataclasses.replace(
    tried("micro-batch:2:placed", gib=31), peak_allocated_bytes=AS_IT_IS.peak_allocated_bytes, lacking_bytes=8 * GIB
)
CLOSE = dataclasses.replace(BOTH, is_close=True, margin_bytes=100 * MIB)


def in_world(each: Tried, sent_bytes: int, *, last_more_bytes: int = 0) -> Tried:
    """As the first and the last rank of eight, of which the last may take more."""
    total, price = each.peak_total_bytes, each.price
    assert price is not None
    ranks = tuple(
        RankPeak(rank=rank, verdict="fits", peak_allocated_bytes=less, peak_reserved_bytes=less, peak_total_bytes=less)
        for rank, less in ((0, total - last_more_bytes), (7, total))
    )
    return dataclasses.replace(
        each,
        rank=7 if last_more_bytes else 0,
        ranks=ranks,
        communication={"all-reduce": Communication(calls=4, payload_bytes=sent_bytes, sent_bytes=sent_bytes)},
        price=dataclasses.replace(price, sent_bytes=sent_bytes, base_sent_bytes=2 * GIB),
    )


PLANS = {
    "plan": USUAL,
    "plan-fits": plan_of(
        tried(gib=20), tried("fused-optimizer", gib=18.5), tried("checkpoint-blocks", gib=12, flops=1330),
        cheapest=(), not_tried=NOT_TRIED,
    ),
    "plan-optimizer-step": dataclasses.replace(
        plan_of(STEP, MICRO, tried("fused-optimizer", gib=21), cheapest=("fused-optimizer",), to_write=TO_WRITE[1:],
                searched=(extent(measures=2, combinations=1, rehearsed=0, cheaper=0),))),
    "plan-close": dataclasses.replace(
        USUAL, tried=(CLOSE, BLOCKS, SECOND, FUSED), cheapest=CLOSE.measures, surely=BLOCKS.measures,
        to_write=TO_WRITE[:1],
        searched=(extent(), extent(is_strict=True, cheaper=9, ruled_out=5)),
    ),
    "plan-close-only": dataclasses.replace(USUAL, tried=(CLOSE,), surely=None, as_it_is=dataclasses.replace(
        AS_IT_IS, is_close=True, margin_bytes=100 * MIB)),
    "plan-world": plan_of(
        in_world(AS_IT_IS, 2 * GIB),
        in_world(tried("zero-redundancy-optimizer", gib=22), 3 * GIB, last_more_bytes=GIB),
        in_world(tried("gradient-as-bucket-view", gib=25.8), 2 * GIB),
        in_world(BLOCKS, 2 * GIB), tried("fsdp-for-ddp", gib=0, kind=FAILED, sentence="train.py failed: no."),
        cheapest=("zero-redundancy-optimizer",), to_write=(written("zero-redundancy-optimizer", "write it"),),
        searched=(extent(measures=3, combinations=4, rehearsed=0, cheaper=0),), world=World(size=8, nodes=2),
        options={"longest": "max"},
    ),
    "plan-nothing": plan_of(
        tried(gib=61), tried("fused-optimizer", gib=55),
        tried("checkpoint-blocks", "fused-optimizer", gib=50, flops=1330),
        nearest=("checkpoint-blocks", "fused-optimizer"), to_write=TO_WRITE[1:], not_tried=NOT_TRIED,
        searched=(extent(rehearsed=6, cheaper=11, unanswered=1, ruled_out=4, left=1, largest=3),), reserve_bytes=GIB,
        cards=(CardFor(measures=(), peak_total_bytes=61 * GIB, card=None),
               CardFor(measures=("checkpoint-blocks", "fused-optimizer"), peak_total_bytes=50 * GIB, card="a100-80gb")),
    ),
    "plan-no-measure": plan_of(AS_IT_IS, nearest=(), not_tried=NOT_TRIED,
                               searched=(extent(measures=0, combinations=0, rehearsed=0, cheaper=0),)),
    "plan-changes": plan_of(
        tried(gib=25, phase="setup", phase_peaks={}), tried("lora:16", gib=20, flops=700, changes="method"),
        tried("fsdp:4", gib=12, cards=4, is_counted=False), tried("bf16-autocast", gib=21, changes="precision"),
        tried("torch-compile", gib=0, kind=FAILED, sentence="train.py failed: no compiler.\nmore"),
        cheapest=("fsdp:4",), keep="nothing", searched=(extent(left=2),), notes=("A note.",), from_cache=3,
    ),
    "plan-but": plan_of(
        AS_IT_IS, dataclasses.replace(ON_HOST, growth_bytes=50 * MIB, sizes_unknown=True), cheapest=ON_HOST.measures,
        searched=(extent(measures=1, combinations=0, rehearsed=0, cheaper=0),),
    ),
    "plan-failed": plan_of(
        tried(gib=0, kind=FAILED, sentence="train.py failed: ValueError: no. Its own output above says more.")
    ),
    "plan-stopped": plan_of(
        tried(gib=9, kind=STOPPED, sentence="train.py was stopped, at the limit of 5 seconds; --seconds sets another.")
    ),
}  # fmt: skip


def printed(plan: Plan) -> str:
    out = io.StringIO()
    print_plan(plan, file=out)
    return out.getvalue()


@pytest.mark.parametrize("name", PLANS)
def test_the_report_is_as_committed(name: str, rewrite_goldens: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if rewrite_goldens:
        path.write_text(printed(PLANS[name]))
    assert printed(PLANS[name]) == path.read_text()


@pytest.mark.parametrize("name", PLANS)
def test_the_answer_is_the_first_line_whatever_the_width(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert printed(PLANS[name]).splitlines()[0] == verdict_line(PLANS[name])


def test_no_line_ends_in_blanks() -> None:
    for plan in PLANS.values():
        assert [line for line in printed(plan).splitlines() if line != line.rstrip()] == []


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    for name, plan in PLANS.items():
        plan.save(tmp_path / name)
        assert Plan.load(tmp_path / name) == plan


def test_of_many_the_first_are_shown_and_the_rest_counted() -> None:
    many = [tried(f"measure-{n}", gib=24 + n / 8) for n in range(20)]
    lines = printed(plan_of(AS_IT_IS, *many, nearest=("measure-0",))).splitlines()
    assert sum(line.startswith("measure-") for line in lines) == 16
    assert "... and 4 more; --json has them all." in lines


def test_what_holds_more_than_is_needed_is_not_shown_and_of_what_is_too_big_the_nearest() -> None:
    more = tried("checkpoint-blocks", "fused-optimizer", gib=21, flops=1330)
    too_big = [tried(f"a{n}", "fused-optimizer", gib=30 - n / 8) for n in range(5)]
    shown = printed(plan_of(AS_IT_IS, BLOCKS, FUSED, more, *too_big, cheapest=BLOCKS.measures))
    assert "checkpoint-blocks + fused-optimizer" not in shown
    assert [word for word in ("a4 ", "a3 ", "a2 ", "a1 ", "a0 ") if word in shown] == ["a4 ", "a3 ", "a2 "]


def test_options_stronger_than_what_fits_are_not_shown_but_where_the_program_fits_as_it_is() -> None:
    options = [tried(f"micro-batch:{2**n}", gib=25 - n, flops=FLOPS + n) for n in (1, 2, 3)]
    shown = printed(plan_of(AS_IT_IS, *options, BLOCKS, cheapest=BLOCKS.measures))
    assert [n for n in (2, 4, 8) if f"micro-batch:{n} " in shown] == [2, 4]  # 2 does not fit
    shown = printed(plan_of(tried(gib=23), *options, cheapest=()))
    assert [n for n in (2, 4, 8) if f"micro-batch:{n} " in shown] == [2, 4, 8]


@pytest.mark.parametrize(
    ("saved_bytes", "what"),
    [
        (0, ", when activations are gone: a smaller batch gives nothing (micro-batch:2:placed was rehearsed)."),
        (
            5 * MIB,
            ", when activations are gone: a smaller batch gives next to nothing (micro-batch:2:placed: 5.00 MiB).",
        ),
        (GIB, "."),
    ],
)
def test_a_peak_in_the_optimizer_step_says_what_a_smaller_batch_gives(saved_bytes: int, what: str) -> None:
    micro = dataclasses.replace(MICRO, peak_allocated_bytes=STEP.peak_allocated_bytes - saved_bytes)
    assert f"The peak is in the optimizer step{what}\n" in printed(plan_of(STEP, micro, nearest=micro.measures))


def test_words_of_a_program_do_nothing_to_a_terminal_or_a_page() -> None:
    as_it_is = dataclasses.replace(AS_IT_IS, kind=FAILED, sentence="train.py failed: \x1b[2J<b>.")
    plan = plan_of(as_it_is)
    assert "\x1b" not in printed(plan)
    assert "<b>" not in html(plan)
    assert plan._repr_html_() == html(plan)

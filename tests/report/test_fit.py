"""The report of a search against goldens; `pytest tests/report --rewrite-goldens` rewrites them."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.rehearse.result import Communication
from dryfit.report.fit import html, print_fit, verdict_line
from dryfit.search.effective import even_splits, uneven_split
from dryfit.search.found import Answer, Fit, Need
from dryfit.search.law import law_of
from dryfit.search.trial import FAILED, FITS, STOPPED, TOO_BIG, Trial

GOLDEN = Path(__file__).parent / "golden"
MIB, GIB = 1 << 20, 1 << 30


def fits(value: int, need_bytes: int, **fields: Any) -> Trial:
    given: dict[str, Any] = {"phase": "backward", "step": 2, "seconds": 2.0, "how": "steady"}
    return Trial(
        value=value,
        kind=FITS,
        sentence="Stopped after 4 optimiser steps.",
        peak_allocated_bytes=need_bytes - 600 * MIB,
        peak_reserved_bytes=need_bytes - 300 * MIB,
        peak_total_bytes=need_bytes,
        **given | fields,
    )


def too_big(value: int, **fields: Any) -> Trial:
    given: dict[str, Any] = {"requested_bytes": 2 * GIB, "free_bytes": GIB, "phase": "backward", "step": 1}
    return Trial(value=value, kind=TOO_BIG, sentence="train.py ran out of memory.", **given | fields)


def failed(value: int) -> Trial:
    return Trial(
        value=value,
        kind=FAILED,
        sentence="train.py failed after 0 optimiser steps: ValueError: batch % 8. Its own output above says more.",
        error="ValueError: batch % 8",
    )


def fit_of(*answers: Answer, **fields: Any) -> Fit:
    given: dict[str, Any] = {
        "program": ["train.py", "--batch", "{batch}"],
        "searched": "batch",
        "lowest": 1,
        "highest": 4096,
        "rehearsals": 6,
        "from_cache": 0,
        "wall_seconds": 7.25,
    }
    return Fit(answers=answers, **given | fields)


def answer(*trials: Trial, gpu: str = "rtx-3090", **fields: Any) -> Answer:
    given: dict[str, Any] = {"surely": fields.get("largest"), "law": law_of(trials)}
    return Answer(gpu=gpu, card=find_card(gpu).to_dict(), trials=trials, **given | fields)


SENT = {"all-reduce": Communication(calls=4, payload_bytes=GIB, sent_bytes=GIB * 3 // 2)}
LINE = [fits(1, 4 * GIB, phase="optimizer step"), *(fits(n, 2 * GIB + n * GIB) for n in (4, 10, 21))]
USUAL = answer(*LINE, too_big(22), largest=21, beyond=22)
FITTED = {
    "fit": fit_of(USUAL),
    "fit-effective": fit_of(
        dataclasses.replace(USUAL, effective=next(even_splits(512, 2, range(1, 4097), 21))), reserve_bytes=GIB
    ),
    "fit-uneven": fit_of(dataclasses.replace(USUAL, effective=uneven_split(500, 3, 21))),
    "fit-prime": fit_of(dataclasses.replace(USUAL, effective=uneven_split(514, 2, 21))),
    "fit-range-ends": fit_of(answer(*LINE, largest=21), highest=21),
    "fit-close": fit_of(
        answer(
            *LINE, fits(22, 24 * GIB - 500 * MIB, is_close=True, margin_bytes=100 * MIB),
            too_big(23, is_close=True, margin_below_bytes=63 * MIB, requested_bytes=90 * MIB, free_bytes=50 * MIB),
            largest=22, surely=21, beyond=23,
        )
    ),
    "fit-nearly-full": fit_of(answer(*LINE, fits(23, 23 * GIB), too_big(24), too_big(22), largest=23, beyond=24,
                                     out_of_order=(22,))),
    "fit-nothing": fit_of(answer(too_big(1), too_big(4), largest=None, beyond=1,
                                 need=Need(value=1, peak_total_bytes=31 * GIB, card="a100-40gb"))),
    "fit-no-card": fit_of(answer(too_big(1), largest=None, need=Need(value=1, peak_total_bytes=900 * GIB, card=None))),
    "fit-multiples": fit_of(answer(failed(1), failed(4), fits(8, 10 * GIB), fits(16, 18 * GIB), failed(17), too_big(24),
                                   largest=16, beyond=17, multiple_of=8)),
    "fit-failed": fit_of(answer(failed(1), failed(4), largest=None, beyond=1)),
    "fit-stopped": fit_of(
        answer(Trial(value=1, kind=STOPPED, sentence="train.py was stopped after 1 optimiser step.", how="time limit"),
               largest=None, beyond=1),
        from_cache=1,
    ),
    "fit-but": fit_of(
        answer(*LINE[:-1], fits(21, 23 * GIB, growth_bytes=50 * MIB, sizes_unknown=True), too_big(22, is_caught=True),
               Trial(value=40, kind=STOPPED, sentence="train.py was stopped.", how="time limit"), largest=21, beyond=22)
    ),
    "fit-table": fit_of(
        *(
            dataclasses.replace(each, row={"seq": seq})
            for seq in ("512", "1024")
            for each in (USUAL, answer(too_big(1, step=0, phase="setup"), gpu="t4", largest=None))
        ),
        program=["train.py", "--batch", "{batch}", "--seq", "{seq}"],
    ),
    "fit-world": fit_of(
        dataclasses.replace(
            answer(*LINE[:-1], fits(21, 23 * GIB, sizes_unknown=True, rank=15), too_big(22), largest=21, beyond=22),
            world=16, rank=15, first_rank=fits(21, 22 * GIB, rank=0),
        ),
        nodes=4, options={"longest": "p99", "assume": ["nonzero=0.5", "item=0"], "skip_weights": True},
    ),
    "fit-worlds": fit_of(
        *(
            dataclasses.replace(each, gpu=gpu, card=find_card(gpu).to_dict())
            for gpu in ("a100-80gb", "h100")
            for each in (
                dataclasses.replace(answer(too_big(1), largest=None), world=1, rank=0),
                dataclasses.replace(answer(failed(1), failed(4), largest=None), world=3, rank=0),
                dataclasses.replace(
                    answer(*LINE[:-1], fits(16, 18 * GIB, communication=SENT), too_big(17), largest=16, beyond=17),
                    world=4, rank=0, effective=next(even_splits(512, 4, range(1, 4097), 16)),
                ),
                dataclasses.replace(USUAL, world=8, rank=0, effective=uneven_split(516, 8, 21)),
            )
        )
    ),
}  # fmt: skip


def printed(fit: Fit) -> str:
    out = io.StringIO()
    print_fit(fit, file=out)
    return out.getvalue()


@pytest.mark.parametrize("name", FITTED)
def test_the_report_is_as_committed(name: str, rewrite_goldens: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if rewrite_goldens:
        path.write_text(printed(FITTED[name]))
    assert printed(FITTED[name]) == path.read_text()


@pytest.mark.parametrize("name", [name for name in FITTED if name not in ("fit-table", "fit-worlds")])
def test_the_answer_is_the_first_line_whatever_the_width(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    fit = FITTED[name]
    assert printed(fit).splitlines()[0] == verdict_line(fit, fit.answers[0])


def test_no_line_ends_in_blanks() -> None:
    for fit in FITTED.values():
        assert [line for line in printed(fit).splitlines() if line != line.rstrip()] == []


def test_words_of_a_program_do_nothing_to_a_terminal_or_a_page() -> None:
    trial = dataclasses.replace(failed(1), error="ValueError: \x1b[2J<b>", sentence="train.py failed: \x1b[2J<b>.")
    fit = fit_of(answer(trial, largest=None))
    assert "\x1b" not in printed(fit)
    assert "<b>" not in html(fit)
    assert fit._repr_html_() == html(fit)

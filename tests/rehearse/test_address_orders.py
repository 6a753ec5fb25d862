"""A recording under other orders of addresses: to the byte what a rehearsal in that order takes."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.errors import DryfitError
from dryfit.recording.model import Recording
from dryfit.recording.stacks import Stacks
from dryfit.rehearse import address_orders, ties
from dryfit.rehearse.address_orders import Played, allocator_on_standby, doubt, with_address_orders
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.launch import rehearse
from dryfit.rehearse.result import Ending, OrderPeaks, Result
from dryfit.rehearse.retrace import AllocatorProcess, allocator_process
from dryfit.rehearse.total import TAKEN, Part
from dryfit.report.text import print_result, verdict_line
from dryfit.virtual_card import installed_torch
from dryfit.virtual_card.settings import ADDRESS_ORDERS, settings_of

from ..analyse.build import Script, at
from ..results import PLAIN_RESULT

MIB, GIB = 1 << 20, 1 << 30
EXAMPLES, PROGRAMS = Path(__file__).parents[2] / "examples", Path(__file__).parent / "programs"
CARD = "sm=86,sms=28,memory=12622168064"

CONVOLUTIONS = """
    import torch, torchvision
    model = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        model(torch.randn(8, 3, 96, 96).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
STREAMS = """
    import torch
    side = torch.cuda.Stream()
    weight = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(weight.parameters())
    for step in range(4):
        made = [torch.empty(3 + step * n << 20, dtype=torch.uint8, device="cuda") for n in range(1, 6)]
        with torch.cuda.stream(side):
            other = [torch.empty(5 * n << 20, dtype=torch.uint8, device="cuda") for n in range(1, 4)]
            for tensor in made:
                tensor.record_stream(side)
        del made
        weight(torch.randn(4096, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        del other
"""
CAUGHT = """
    import torch
    weight = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(weight.parameters())
    for step in range(3):
        held = [torch.empty(600 << 20, dtype=torch.uint8, device="cuda") for _ in range(12)]
        try:
            held.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            del held
        weight(torch.randn(4096, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
RETRIED = """
    import torch
    weight = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(weight.parameters())
    for step in range(3):
        for mebibytes in (700, 900, 1100, 1300, 1500, 1700, 1900, 2100, 2300):
            torch.empty(mebibytes << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache() if step == 1 else None
        weight(torch.randn(4096, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
UNCAUGHT = """
    import torch
    held = [torch.empty(n * 100 << 20, dtype=torch.uint8, device="cuda") for n in range(1, 100)]
"""
CASES = {
    "gpt2": [str(EXAMPLES / "gpt2.py"), "--batch", "2", "--length", "256"],
    "language": [str(PROGRAMS / "of_language.py"), "distilgpt2", "15", "--steps", "3"],
    "convolutions": CONVOLUTIONS,
    "streams": STREAMS,
    "expandable": [str(EXAMPLES / "gpt2.py"), "--batch", "2", "--length", "256"],
    "caught": CAUGHT,
    "retried": RETRIED,
    "uncaught": UNCAUGHT,
}


@pytest.fixture(scope="module")
def process() -> Iterator[AllocatorProcess]:
    with allocator_process() as started:
        yield started


@pytest.mark.parametrize("case", CASES)
def test_played_again_it_is_the_rehearsal_to_the_byte_in_its_own_order_and_in_another(
    case: str, process: AllocatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "expandable":
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    program = CASES[case]
    if isinstance(program, str):
        (tmp_path / "train.py").write_text(textwrap.dedent(program))
        program = [str(tmp_path / "train.py")]
    found: dict[str, Result] = {
        order: rehearse(program, gpu=CARD, steps=3, quiet=True, address_order=order) for order in ("linux", "up")
    }
    assert {result.ending.how for result in found.values()} <= {"finished", "steps", "out of memory"}
    for order, result in found.items():
        assert result.recording is not None
        card = find_card(CARD)
        settings = settings_of(card, address_order=order)
        played = address_orders.play_recording(process, result.recording, result, card, settings)
        assert played.why_not == ""
        assert set(played.orders) == set(ADDRESS_ORDERS)
        for other, of_other in found.items():
            assert played.orders[other] == OrderPeaks(
                peak_allocated_bytes=of_other.peak_allocated_bytes, peak_reserved_bytes=of_other.peak_reserved_bytes
            )
        if not ties.go_by_address(installed_torch().version):
            assert len(set(played.orders.values())) == 1
            assert result.peaks_by_address_order == {}


SMALLER = OrderPeaks(peak_allocated_bytes=3 * GIB, peak_reserved_bytes=4 * GIB)
OWN = OrderPeaks(peak_allocated_bytes=3 * GIB, peak_reserved_bytes=5 * GIB)
LARGER = OrderPeaks(peak_allocated_bytes=4 * GIB, peak_reserved_bytes=6 * GIB)
RECORDING = Recording(source="rehearsal", devices=(), stacks=Stacks())


def result(verdict: str = "fits", how: str = "finished", card: str | None = "rtx-4090", **changes: Any) -> Result:
    plain = dataclasses.replace(
        PLAIN_RESULT,
        verdict=verdict,
        card=find_card(card).to_dict() if card is not None else None,
        peak_allocated_bytes=OWN.peak_allocated_bytes,
        peak_reserved_bytes=OWN.peak_reserved_bytes,
        peak_total_bytes=OWN.peak_reserved_bytes,
        total_parts=[Part(what=TAKEN, low_bytes=5 * GIB, expected_bytes=5 * GIB, high_bytes=5 * GIB)],
        ending=Ending(how=how, sentence="It is over."),
        processes=[{"pid": 7, "peak_used_bytes": OWN.peak_reserved_bytes}],
        versions={"torch": "2.6.0+cu124"},
        exit_code={"fits": 0, "does not fit": 1, "unknown": 3}[verdict],
    )
    return dataclasses.replace(plain, **changes)


def observed(devices: int = 1, recordings: dict[int, Recording] | None = None) -> Observed:
    return Observed(
        program=["train.py"],
        processes=[],
        status=0,
        signal=None,
        stopped_by=None,
        limit="",
        crash_place=None,
        wall_seconds=1.0,
        devices=devices,
        total_bytes=24 * GIB,
        notes=[],
        recordings={7: RECORDING} if recordings is None else recordings,
    )


def judged(
    monkeypatch: pytest.MonkeyPatch, first: Result, played: Played | DryfitError, *second: Result
) -> tuple[Result, list[str]]:
    """The result after these plays, with the orders that it was rehearsed in again."""
    asked: list[str] = []

    def play(*_: Any) -> Played:
        if isinstance(played, DryfitError):
            raise played
        return played

    def run_again(order: str) -> Result:
        asked.append(order)
        return second[len(asked) - 1]

    monkeypatch.setattr(address_orders, "play", play)
    card = find_card("rtx-4090")
    return with_address_orders(first, observed(), card, settings_of(card), None, run_again), asked


def test_the_span_is_a_part_of_the_total_and_told_beside_reserved_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = {"linux": OWN, "up": LARGER, "down": SMALLER}
    found, asked = judged(monkeypatch, result(), Played(orders=orders))
    assert (found.verdict, found.exit_code, asked) == ("fits", 0, [])
    assert found.peaks_by_address_order == orders
    part = found.total_parts[-1]
    assert (part.what, part.low_bytes, part.expected_bytes, part.high_bytes) == (
        "the order of addresses", -GIB, 0, GIB,
    )  # fmt: skip
    assert found.peak_total_range_bytes == {"low": 4 * GIB, "expected": 5 * GIB, "high": 6 * GIB}
    assert found.notes == [
        "The addresses of segments decide between free blocks that fit equally well: PyTorch reserves 4.00 GiB with "
        "segments placed downwards, 6.00 GiB with segments placed upwards. The figures are of the order linux; "
        "--address-order chooses."
    ]
    print_result(found)
    reserved = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("reserved by PyTorch"))
    assert reserved.endswith(" 5.00 GiB  4.00 GiB to 6.00 GiB by the order of addresses")


def test_orders_that_agree_leave_all_but_the_figures_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = {"linux": OWN, "up": OWN, "down": OWN}
    found, _ = judged(monkeypatch, result(), Played(orders=orders))
    assert found == dataclasses.replace(result(), peaks_by_address_order=orders)
    nothing, _ = judged(monkeypatch, result(), Played())
    assert nothing == result()


def test_a_span_below_one_percent_is_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    near = dataclasses.replace(OWN, peak_reserved_bytes=OWN.peak_reserved_bytes + 2 * MIB)
    found, _ = judged(monkeypatch, result(), Played(orders={"linux": OWN, "up": near}))
    assert found.total_parts[-1].high_bytes == 2 * MIB
    assert found.notes == []


def test_an_order_that_runs_out_of_memory_leaves_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = {"linux": OWN, "up": dataclasses.replace(LARGER, ending="out of memory"), "down": OWN}
    found, asked = judged(monkeypatch, result(), Played(orders=orders))
    assert (found.verdict, found.exit_code, asked) == ("unknown", 3, [])
    assert found.notes == ["With segments placed upwards (--address-order up) it runs out of memory on this card."]
    assert len(found.total_parts) == 1  # its peak is that until it failed, and no end of a span
    assert verdict_line(found) == (
        "TOO CLOSE TO CALL on NVIDIA GeForce RTX 4090: needs 5.00 GiB of 23.52 GiB; "
        "with segments placed upwards it runs out of memory"
    )


def test_an_order_that_runs_out_with_all_that_may_be_outside_leaves_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(orders={"linux": OWN, "up": LARGER, "down": OWN}, runs_out_with_margin=("up",))
    found, _ = judged(monkeypatch, result(), played)
    assert (found.verdict, found.exit_code) == ("unknown", 3)
    assert found.notes[0] == (
        "With segments placed upwards (--address-order up), and as much outside PyTorch's allocator as there may be, "
        "it runs out of memory on this card."
    )
    assert doubt(found) == "with segments placed upwards it runs out of memory"


SERVED = {"linux": OWN, "up": dataclasses.replace(OWN, ending="served"), "down": OWN}


def test_an_out_of_memory_that_another_order_does_not_have_is_rehearsed_in_that_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = result("does not fit", "out of memory")
    found, asked = judged(monkeypatch, first, Played(orders=SERVED), result())
    assert (found.verdict, found.exit_code, asked) == ("unknown", 3, ["up"])
    assert found.notes[0] == (
        "With segments placed upwards (--address-order up) the request that failed is served, and the program runs on: "
        "a second run said so."
    )
    assert doubt(found) == "with segments placed upwards it does not"
    assert found.wall_seconds == 2.0


def test_an_out_of_memory_that_comes_later_in_another_order_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    first = result("does not fit", "out of memory")
    later = result("does not fit", "out of memory", peak_reserved_bytes=LARGER.peak_reserved_bytes)
    found, asked = judged(monkeypatch, first, Played(orders=SERVED), later)
    assert (found.verdict, found.exit_code, asked) == ("does not fit", 1, ["up"])
    assert found.peaks_by_address_order["up"].peak_reserved_bytes == LARGER.peak_reserved_bytes
    assert found.notes[0].endswith("the request that failed is served, and a later one fails: a second run said so.")


def test_a_second_run_without_an_answer_leaves_the_verdict_open(monkeypatch: pytest.MonkeyPatch) -> None:
    first = result("does not fit", "out of memory")
    found, _ = judged(monkeypatch, first, Played(orders=SERVED), result("unknown", "time limit"))
    assert (found.verdict, found.exit_code) == ("unknown", 3)
    assert found.notes[0].endswith("the request that failed is served; a second run came to no answer: It is over.")


def test_without_a_card_those_that_hold_it_under_some_orders_only_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = dataclasses.replace(OWN, peak_reserved_bytes=30 * GIB)
    first = result("unknown", card=None, fits_on=["rtx-4090"])
    found, _ = judged(monkeypatch, first, Played(orders={"linux": OWN, "up": huge}))
    assert "rtx-4090" in found.close_on
    assert "a100-40gb" in found.fits_on
    assert all(find_card(key).total_bytes < 6 * GIB for key in found.does_not_fit_on)
    assert found.verdict == "unknown"


def test_a_process_that_ended_costs_the_span_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = judged(monkeypatch, result(), DryfitError("It has ended."))
    assert found.verdict == "fits"
    assert found.notes == ["How far the peaks depend on the order of segment addresses is not known. It has ended."]


@pytest.mark.parametrize(
    ("changes", "seen", "sentence"),
    [
        (
            {"allocator_settings": {"backend": "cudaMallocAsync"}}, {},
            "It is the driver that places blocks with PyTorch's backend cudaMallocAsync.",
        ),
        ({}, {"recordings": {}}, "There is no recording of the process."),
        (
            {}, {"recordings": {7: dataclasses.replace(RECORDING, about={"is_cut": True})}},
            "There were more events than a recording keeps.",
        ),
        (
            {"processes": [{"pid": 7, "peak_used_bytes": 1}, {"pid": 8, "peak_used_bytes": 1}]}, {},
            "Several processes share the card, and their requests took turns.",
        ),
    ],
)  # fmt: skip
def test_why_there_is_no_span_is_said(
    changes: dict[str, Any], seen: dict[str, Any], sentence: str, process: AllocatorProcess
) -> None:
    card = find_card("rtx-4090")
    played = address_orders.play(result(**changes), observed(**seen), card, settings_of(card), process)
    assert played == Played(why_not=sentence)


@pytest.mark.parametrize(
    "changes",
    [{"how": "time limit", "verdict": "unknown"}, {"peak_reserved_bytes": 0}, {}],
    ids=["no whole run", "nothing reserved", "no event, so no tie"],
)
def test_nothing_is_played_where_it_would_say_nothing(changes: dict[str, Any], process: AllocatorProcess) -> None:
    card = find_card("rtx-4090")
    assert address_orders.play(result(**changes), observed(), card, settings_of(card), process) == Played()


def test_an_allocator_is_had_only_for_a_torch_that_goes_by_address() -> None:
    for version, is_had in (("2.11.0+cu128", True), ("2.12.1+cu130", False)):
        torch = dataclasses.replace(installed_torch(), version=version)
        with allocator_on_standby(torch) as found:
            assert (found is not None) is is_had


def test_a_recording_that_comes_to_other_bytes_says_nothing_of_other_orders(process: AllocatorProcess) -> None:
    script = Script()
    script.alloc(4 * MIB, at("train.py", 1))
    card = find_card("rtx-4090")
    played = address_orders.play_recording(process, script.recording(), result(), card, settings_of(card))
    assert played.orders == {}
    assert played.why_not == (
        "Played again as it was, the recording comes to 4,194,304 bytes allocated and 20,971,520 reserved, against "
        "3,221,225,472 and 5,368,709,120."
    )


@pytest.mark.skipif(not ties.go_by_address(installed_torch().version), reason="this torch goes by the age of segments")
@pytest.mark.parametrize(
    ("program", "memory", "alone", "sentence"),
    [
        (["distilgpt2", "15"], "4040MiB", {"linux": "fits", "up": "does not fit"}, "upwards it runs out of memory"),
        (["gpt2", "35"], "11240MiB", {"linux": "does not fit", "up": "fits"}, "upwards it does not"),
    ],
)
def test_on_a_card_where_the_order_decides_there_is_no_verdict(
    program: list[str], memory: str, alone: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [str(PROGRAMS / "of_language.py"), *program, "--steps", "3"]
    card = f"sm=86,sms=28,memory={memory}"
    found = rehearse(words, gpu=card, quiet=True)
    assert (found.verdict, found.exit_code) == ("unknown", 3)
    assert verdict_line(found).startswith("TOO CLOSE TO CALL")
    assert verdict_line(found).endswith(f"; with segments placed {sentence}")
    monkeypatch.setattr(address_orders, "play", lambda *_: Played())
    for order, verdict in alone.items():
        assert rehearse(words, gpu=card, quiet=True, address_order=order).verdict == verdict

"""Contexts and NCCL's buffers in the total: events in, a result out; and one program that makes a communicator."""

from __future__ import annotations

from typing import Any

import pytest

from dryfit.cards import Card, find_card, with_eager_loading
from dryfit.rehearse import settle
from dryfit.rehearse.assemble import Observed, assemble
from dryfit.rehearse.result import Result
from dryfit.rehearse.total import NCCL, OUTSIDE, Part

from .conftest import Rehearse

MIB = 1 << 20
GIB = 1 << 30
CARD = find_card("a100-80gb")


def use(board: int, most_used_bytes: int, nccl: tuple[int, int, int] = (0, 0, 0)) -> dict[str, int]:
    low, expected, high = nccl
    return {
        "device": board,
        "board": board,
        "most_used_bytes": most_used_bytes,
        "nccl_low_bytes": low,
        "nccl_expected_bytes": expected,
        "nccl_high_bytes": high,
    }


def process(pid: int, used_bytes: int, *devices: dict[str, int], **end: Any) -> list[dict[str, Any]]:
    step = {"step": 1, "phases": {"backward": [used_bytes, used_bytes, used_bytes]}}
    return [
        {"event": "python", "pid": pid},
        {"event": "torch", "versions": {"torch": "2.14.1"}},
        {"event": "step", "seconds": 0.5, **step},
        {"event": "end", "how": "finished", "error": None, "steps": [step], "devices": list(devices), **end},
    ]


def result_of(*processes: list[dict[str, Any]], devices: int, card: Card = CARD, named: bool = True) -> Result:
    observed = Observed(
        program=["train.py"],
        processes=processes,
        status=0,
        signal=None,
        stopped_by=None,
        limit="",
        crash_place=None,
        wall_seconds=1.0,
        devices=devices,
        total_bytes=card.total_bytes,
        notes=[],
        recordings={},
    )
    return assemble(observed, card, card_was_named=named)


def part(result: Result, what: str) -> Part:
    return next(each for each in result.total_parts if each.what == what)


def test_a_run_without_a_communicator_has_no_such_part() -> None:
    result = result_of(process(1, GIB, use(0, GIB)), devices=1)
    assert [each.what for each in result.total_parts[1:]] == [OUTSIDE]
    assert part(result, OUTSIDE).low_bytes == CARD.outside_low_bytes
    assert part(result, OUTSIDE).high_bytes == CARD.outside_bytes + CARD.outside_margin_bytes
    assert not any("NCCL" in note for note in result.notes)


def test_nccls_buffers_are_a_part_of_the_total() -> None:
    run = process(1, GIB, use(0, GIB, (20 * MIB, 700 * MIB, 900 * MIB)), communicators=[{"ranks": 8}, {"ranks": 2}])
    result = result_of(run, devices=8)
    nccl = part(result, NCCL)
    assert (nccl.low_bytes, nccl.expected_bytes, nccl.high_bytes) == (20 * MIB, 700 * MIB, 900 * MIB)
    assert result.peak_total_bytes == GIB + CARD.outside_bytes + 700 * MIB
    assert result.verdict == "fits"
    assert (
        "NCCL's buffers are those of 2 communicators, by NCCL's source. The links between the cards decide them, and "
        "are not known here: 20.00 MiB to 900.00 MiB." in result.notes
    )


def test_a_context_that_every_rank_makes_on_the_first_card_is_counted_there_and_only_there() -> None:
    """As ranks do that load a checkpoint to cuda:0: nvidia-smi shows all of them on that card."""
    first = process(1, 5 * GIB, use(0, 5 * GIB))
    others = [process(rank, 4 * GIB, use(0, 2 * MIB), use(rank, 4 * GIB)) for rank in (2, 3)]
    elsewhere = process(4, 4 * GIB, use(7, 4 * GIB))
    result = result_of(first, *others, elsewhere, devices=8)
    assert result.total_parts[0].expected_bytes == 5 * GIB + 2 * 2 * MIB
    assert part(result, OUTSIDE).expected_bytes == 3 * CARD.outside_bytes


def test_a_process_on_two_cards_has_a_context_on_each_and_is_judged_by_the_fuller_one() -> None:
    result = result_of(process(1, 4 * GIB, use(0, GIB), use(1, 4 * GIB, (1, 2, 3))), devices=2)
    assert result.total_parts[0].expected_bytes == 4 * GIB
    assert part(result, OUTSIDE).expected_bytes == CARD.outside_bytes
    assert part(result, NCCL).high_bytes == 3


def test_without_a_card_those_are_named_that_hold_nccls_buffers_too() -> None:
    """An RTX 3090 has 23.25 GiB beside its context, 100 MiB of which may be the context's."""
    unlimited = find_card("unlimited")

    def place_of_a_3090(nccl: tuple[int, int, int]) -> str:
        result = result_of(process(1, 22 * GIB, use(0, 22 * GIB, nccl)), devices=1, card=unlimited, named=False)
        groups = {"fits": result.fits_on, "close": result.close_on, "too small": result.does_not_fit_on}
        (group,) = (name for name, cards in groups.items() if "rtx-3090" in cards)
        return group

    assert place_of_a_3090((0, 0, 0)) == "fits"
    assert place_of_a_3090((MIB, 64 * MIB, GIB)) == "fits"
    assert place_of_a_3090((MIB, 64 * MIB, 2 * GIB)) == "close"
    assert place_of_a_3090((2 * GIB, 3 * GIB, 4 * GIB)) == "too small"


def test_processes_that_share_one_card_have_a_context_each() -> None:
    result = result_of(process(1, GIB), process(2, GIB), devices=1)
    assert part(result, OUTSIDE).expected_bytes == 2 * CARD.outside_bytes


def test_the_high_end_of_nccl_has_to_fit_and_a_second_run_takes_it() -> None:
    room = CARD.usable_bytes - CARD.outside_margin_bytes
    nccl = (20 * MIB, 700 * MIB, 900 * MIB)
    assert result_of(process(1, room - 900 * MIB, use(0, room, nccl)), devices=1).verdict == "fits"
    close = result_of(process(1, room - 800 * MIB, use(0, room, nccl)), devices=1)
    assert close.verdict == "unknown"
    assert settle.needs(close, CARD) == CARD.outside_bytes + CARD.outside_margin_bytes + 200 * MIB


def test_nccl_without_room_asks_for_a_second_run_with_the_least_it_may_take() -> None:
    run = process(1, GIB, use(0, GIB, (20 * MIB, 700 * MIB, 900 * MIB)))
    run[-1]["error"] = {
        "type": "DistBackendError",
        "message": "NCCL error",
        "is_out_of_memory": True,
        "file": "train.py",
        "line": 3,
    }
    result = result_of(run, devices=1)
    assert (result.verdict, result.ending.sentence) == ("does not fit", "train.py ran out of memory (train.py:3).")
    assert settle.needs(result, CARD) == max(0, CARD.outside_low_bytes - 680 * MIB)


@pytest.mark.parametrize("counted", [True, False])
def test_eager_loading_is_said(counted: bool) -> None:
    card = with_eager_loading(CARD) if counted else CARD
    result = result_of(process(1, GIB, module_loading="EAGER"), devices=1, card=card)
    said = next(note for note in result.notes if "CUDA_MODULE_LOADING" in note)
    assert "461.00 MiB to 806.00 MiB" in said
    assert ("is not counted. Set it in the environment" in said) is not counted
    assert part(result, OUTSIDE).expected_bytes == CARD.outside_bytes + (706 * MIB if counted else 0)


def test_a_rehearsed_program_has_the_buffers_of_its_communicators(rehearse: Rehearse) -> None:
    program = """
        import torch
        import torch.distributed as dist

        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        weight = torch.ones(8, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            weight.sum().backward()
            dist.all_reduce(weight.grad)
            optimizer.step()
        dist.destroy_process_group()
    """
    found = rehearse(program)
    parts = {each["what"]: each for each in found.result["total_parts"]}
    assert parts["NCCL's buffers"]["expected_bytes"] == 100 * MIB, "a world of one has NCCL's kernels alone"
    assert "NCCL's buffers" in found.stdout


def test_a_program_whose_environment_loads_eagerly_has_more_outside(rehearse: Rehearse) -> None:
    program = """
        import torch

        weight = torch.ones(8, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
    """
    found = rehearse(program, environment={"CUDA_MODULE_LOADING": "EAGER"})
    assert found.result["card"]["outside_bytes"] - CARD.outside_bytes == 706 * MIB
    assert found.result["usable_bytes"] == 40 * GIB - CARD.outside_bytes - 706 * MIB
    assert any("loads every kernel at the start" in note for note in found.result["notes"])

"""Memory of libraries that nobody can be asked for without a card: figures, their range, and what is said of it."""

from __future__ import annotations

import dataclasses

import pytest

from dryfit.rehearse import guessed, unknowns
from dryfit.rehearse.result import Unknown

from ..results import PLAIN_RESULT
from .conftest import Rehearse

MIB = 1 << 20
STEPS = """
    import torch
    from torch import nn
    from torch.nn.utils.rnn import pack_padded_sequence

    torch.manual_seed(0)
    network = {network}.to("cuda", torch.{dtype})
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(256, 64, 64, device="cuda", dtype=torch.{dtype})
        y, _ = network({input})
        (y.data if {packs} else y).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
UNIT = 256 * 64 * 64 * 4  # one vector for each step and sequence, 64 wide, in fp32
STATES = 108 * 2048 * 48 / UNIT  # of dropout, on CARD
WHAT = "reserve and workspace of cuDNN's recurrent networks"


def program(network: str, dtype: str = "float32", input: str = "x") -> str:
    return STEPS.format(network=network, dtype=dtype, input=input, packs="pack" in input)


@pytest.mark.parametrize(
    ("network", "dtype", "input", "kept"),
    [
        ("nn.LSTM(64, 64)", "float32", "x", 5),
        ("nn.LSTM(64, 64, 2)", "float32", "x", 11),
        ("nn.GRU(64, 64, 2)", "float32", "x", 13),
        ("nn.RNN(64, 64, 2)", "float32", "x", 3),
        ("nn.LSTM(64, 32, 2, bidirectional=True)", "float32", "x", 11),
        ("nn.LSTM(64, 64, 2, proj_size=32)", "float32", "x", 12.5),
        ("nn.LSTM(64, 64, 2, dropout=0.2)", "float32", "x", 12 + STATES),
        ("nn.LSTM(64, 64, 2)", "float16", "x", 5.5),
        ("nn.LSTM(64, 64, 2)", "float32", "pack_padded_sequence(x, [256] * 32 + [128] * 32)", 11),
    ],
)  # fmt: skip
def test_every_kind_of_recurrent_network(rehearse: Rehearse, network: str, dtype: str, input: str, kept: float) -> None:
    """Beside the `kept` vectors of each step and sequence there are input, output and their gradients."""
    found = rehearse(program(network, dtype, input))
    assert found.code == 0, found.stderr
    assert kept + 2 <= found.result["peak_allocated_bytes"] / UNIT <= kept + 4.5
    parts = {part["what"]: part for part in found.result["total_parts"]}
    part = parts["workspaces of recurrent networks"]
    assert part["low_bytes"] < 0 == part["expected_bytes"] < part["high_bytes"]
    assert not part["gives_way"]
    unknown = next(each for each in found.result["unknowns"] if each["what"] == WHAT)
    assert unknown["decides_size"] and unknown["count"] >= 6  # forward and backward of each step


def test_the_range_of_a_network_is_that_of_what_is_held_at_a_time(rehearse: Rehearse) -> None:
    """Two GRUs one after the other are held both until the backward pass; 20 steps hold no more than one."""
    two = """
        import torch
        a, b = torch.nn.GRU(64, 64).cuda(), torch.nn.GRU(64, 64).cuda()
        for step in range({steps}):
            x = torch.randn(100, 100, 64, device="cuda")
            b(a(x)[0])[0].sum().backward()
    """
    once, often = (rehearse(two.format(steps=steps), options=("--steps", "all")).result for steps in (1, 20))
    for result in (once, often):
        (part,) = (each for each in result["total_parts"] if each["what"] == "workspaces of recurrent networks")
        matrices, states = 2 * 3 * 64 * 64 * 4, 8 * 100 * 64 * 4
        workspace_less = matrices + states - 3 * 100 * 64 * 4
        assert part["low_bytes"] == -(2 * (6 - 4) * 100 * 100 * 64 * 4 + workspace_less)


def test_evaluation_keeps_no_reserve(rehearse: Rehearse) -> None:
    found = rehearse(
        """
        import torch
        network = torch.nn.LSTM(64, 512).cuda().eval()
        with torch.no_grad():
            network(torch.empty(512, 64, 64, device="cuda"))
        """,
        options=("--steps", "all"),
    )
    unit = 512 * 64 * 512 * 4
    assert found.result["peak_allocated_bytes"] < 2 * unit


def test_batch_normalisation_asks_for_a_range_where_it_is_channels_last(rehearse: Rehearse) -> None:
    text = """
        import torch
        layout = torch.{layout}
        norm = torch.nn.BatchNorm2d(64).cuda()
        for step in range(3):
            x = torch.randn(8, 64, 128, 128, device="cuda").to(memory_format=layout).requires_grad_()
            norm(x).sum().backward()
    """
    plain, last = (
        rehearse(text.format(layout=layout), options=("--steps", "all")).result
        for layout in ("contiguous_format", "channels_last")
    )
    assert not any("normalisation" in unknown["what"] for unknown in plain["unknowns"])
    (part,) = (each for each in last["total_parts"] if "normalisation" in each["what"])
    sums = 108 * 64 * 2 * 4  # of an A100's multiprocessors
    assert part["low_bytes"] == -sums
    assert part["high_bytes"] == 3 * sums + 8 * 64 * 128 * 128 // 8  # a bit for each element


def test_ctc_loss_keeps_its_sums(rehearse: Rehearse) -> None:
    found = rehearse(
        """
        import torch
        x = torch.randn(200, 32, 40, device="cuda").log_softmax(2).detach().requires_grad_()
        targets = torch.ones(32 * 30, dtype=torch.int32)
        torch.nn.functional.ctc_loss(x, targets, (200,) * 32, (30,) * 32).backward()
        """,
        options=("--steps", "all"),
    )
    (part,) = (each for each in found.result["total_parts"] if each["what"] == "workspaces of CTC loss")
    assert part["low_bytes"] == -200 * 32 * (2 * 30 + 1) * 4
    assert part["high_bytes"] == 200 * 32 * 40 * 4


def test_a_fourier_transform_has_room_for_its_values(rehearse: Rehearse) -> None:
    text = """
        import torch
        torch.fft.fft(torch.empty(512, {n}, dtype=torch.complex64, device="cuda"))
    """
    smooth, prime = (rehearse(text.format(n=n), options=("--steps", "all")).result for n in (1024, 1021))
    values = {n: 512 * n * 8 for n in (1024, 1021)}
    assert smooth["peak_allocated_bytes"] == 3 * values[1024]  # input, output, work area
    ranges = [
        (part["low_bytes"], part["high_bytes"])
        for result in (smooth, prime)
        for part in result["total_parts"]
        if part["what"] == "work areas of Fourier transforms"
    ]
    assert ranges == [(-values[1024], 0), (-values[1021], 7 * values[1021])]


# ---- what is said ---------------------------------------------------------------------------------------------------
END = {
    "event": "end",
    "guessed": [
        {"kind": "recurrent networks", "calls": 6, "less_bytes": 16 * MIB, "more_bytes": 469 * MIB},
        {"kind": "batch normalisation", "calls": 2, "less_bytes": 55296, "more_bytes": 165888},
    ],
}


def test_what_is_said_of_a_range() -> None:
    assert guessed.notes(END) == [
        "NVIDIA's libraries tell the size of the reserve and workspace of cuDNN's recurrent networks on a card only. "
        "Counted: what a cuDNN of 2017 took. The peak of tensors may be up to 16.00 MiB lower or 469.00 MiB higher."
    ]  # the other is too small for a sentence


def test_each_kind_is_a_part_and_an_unknown() -> None:
    assert [(part.what, part.low_bytes, part.high_bytes) for part in guessed.parts(END)] == [
        ("workspaces of recurrent networks", -16 * MIB, 469 * MIB),
        ("workspaces of channels-last batch normalisation", -55296, 165888),
    ]
    assert unknowns.of(END)[0] == Unknown(
        kind="memory", what=WHAT, answer="what a cuDNN of 2017 took", decides_size=True, count=6
    )


def test_a_process_without_a_last_word_has_none() -> None:
    assert guessed.of(None) == [] == guessed.parts({"event": "end"})


@pytest.mark.parametrize("kind", guessed.KINDS.values(), ids=guessed.KINDS)
@pytest.mark.parametrize(("high_bytes", "is_apart"), [(10, False), (1000, True)])
def test_a_range_that_the_card_holds_whole_leaves_nothing_open(
    kind: guessed.Kind, high_bytes: int, is_apart: bool
) -> None:
    unknown = Unknown(kind="memory", what=kind.what, answer=kind.answer, decides_size=True, count=1)
    result = dataclasses.replace(
        PLAIN_RESULT,
        card={"total_bytes": 100},
        peak_total_range_bytes={"low": 1, "expected": 5, "high": high_bytes},
        unknowns=[unknown],
    )
    assert result.is_apart_from_unknowns is is_apart

"""cuDNN's recurrent networks: the sizes that the virtual card answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dryfit.virtual_card import CardSettings, environment

from .conftest import GIB, PROGRAMS

CARD = CardSettings(name="NVIDIA A100", sm=80, sms=108, memory_bytes=8 * GIB)
MODULES = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
Ask = Callable[..., dict[str, int]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Sizes of one layer of LSTM in fp32, 8 wide, for 3 sequences of 5 steps; what differs is given by name."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "recurrent.py")],
        env=os.environ | environment(CARD),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        writing, reading = process.stdin, process.stdout

        def answer(**changes: Any) -> dict[str, int]:
            asked = {
                "cell": "lstm", "type": 4, "input": 8, "hidden": 8, "output": changes.get("hidden", 8), "layers": 1,
                "directions": 1, "dropout": 0.0, "lengths": [5] * 3, "training": True,
            }  # fmt: skip
            print(json.dumps(asked | changes), file=writing, flush=True)
            found: dict[str, int] = json.loads(reading.readline())
            return found

        yield answer
        writing.close()


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """Any network that torch can have."""
    cell = draw(st.sampled_from(sorted(MODULES)))
    hidden = draw(st.integers(2, 300))
    return {
        "cell": cell,
        "input": draw(st.integers(1, 300)),
        "hidden": hidden,
        "output": draw(st.integers(1, hidden)) if cell == "lstm" else hidden,
        "layers": draw(st.integers(1, 5)),
        "directions": draw(st.integers(1, 2)),
        "type": draw(st.sampled_from([2, 4, 8])),
        "dropout": draw(st.sampled_from([0.0, 0.5])),
    }


def test_the_sizes_that_a_card_has_shown(ask: Ask) -> None:
    """A P100 in 2017: github.com/pytorch/pytorch/issues/2895. How many sequences there were is not said: 100."""
    network = {"input": 123, "hidden": 320, "layers": 4, "lengths": [250] * 100}
    lstm, gru = (ask(cell=cell, **network) for cell in ("lstm", "gru"))
    assert (lstm["reserve"], gru["reserve"]) == (736_000_000, 864_000_000)
    assert (lstm["workspace"], gru["workspace"]) == (17_730_560, 13_169_920)


@given(networks())
def test_weights_are_as_many_as_torch_has_parameters(ask: Ask, network: dict[str, Any]) -> None:
    projected = network["output"] if network["output"] != network["hidden"] else 0
    module = MODULES[network["cell"]](
        network["input"],
        network["hidden"],
        network["layers"],
        bidirectional=network["directions"] == 2,
        device="meta",
        **({"proj_size": projected} if projected else {}),
    )
    elements = sum(parameter.numel() for parameter in module.parameters())
    assert ask(**network)["weights"] == elements * network["type"]


@given(networks(), st.integers(1, 60), st.integers(1, 60))
def test_the_reserve_is_one_of_steps_and_sequences_alike(
    ask: Ask, network: dict[str, Any], steps: int, sequences: int
) -> None:
    one = ask(**network, lengths=[1])["reserve"]
    assert ask(**network, lengths=[steps] * sequences)["reserve"] == steps * sequences * one
    assert ask(**network, lengths=[steps] * sequences, training=False)["reserve"] == 0


@given(networks())
def test_more_of_anything_takes_more(ask: Ask, network: dict[str, Any]) -> None:
    before = ask(**network)
    larger = [
        {"layers": network["layers"] + 1},
        {"hidden": network["hidden"] + 1, "output": network["output"] + 1},
        {"input": network["input"] + 1},
        {"lengths": [5] * 4},
    ]
    if network["directions"] == 1:
        larger.append({"directions": 2})
    for change in larger:
        after = ask(**(network | change))
        assert all(after[what] >= before[what] for what in before), change


@given(networks())
def test_half_the_type_takes_half(ask: Ask, network: dict[str, Any]) -> None:
    """But for the bits of dropout's masks."""
    network |= {"dropout": 0.0}
    sizes = [ask(**(network | {"type": width})) for width in (2, 4, 8)]
    for what in sizes[0]:
        assert sizes[2][what] == 2 * sizes[1][what] == 4 * sizes[0][what]


def test_padding_counts_as_cudnn_takes_the_longest_sequence(ask: Ask) -> None:
    assert ask(lengths=[5, 2, 1]) == ask(lengths=[5, 5, 5])


def test_dropout_keeps_a_mask_and_what_it_let_through(ask: Ask) -> None:
    without, with_dropout = (ask(layers=3, dropout=p)["reserve"] for p in (0.0, 0.5))
    assert with_dropout - without == 15 * 2 * (8 * 4 + 1)  # 15 vectors, between three layers
    assert ask(dropout=0.5) == ask()  # one layer has none

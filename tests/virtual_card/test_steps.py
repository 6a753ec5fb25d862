"""Calls without a faithful answer are counted by name, and only those; graphs are captured."""

from __future__ import annotations

import pytest

from .conftest import Card, torch_release

WORKSPACE = "cudnnBackendGetAttribute(EXECUTION_PLAN_WORKSPACE_SIZE) of "


def test_a_plain_training_step_is_answered_faithfully(card: Card) -> None:
    assert card.run("steps.py", "mlp").said == {}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("convolution", WORKSPACE + "a convolution"),
    ],
)
def test_sizes_that_only_the_library_knows_are_counted(card: Card, kind: str, name: str) -> None:
    counts = card.run("steps.py", kind).said
    assert set(counts) == {name}
    assert counts[name] >= 1


@pytest.mark.skipif(torch_release() < (2, 5), reason="torch 2.4 cannot be told to use cuDNN's attention")
def test_attention_of_cudnn_is_told_apart_from_convolutions(card: Card) -> None:
    counts = card.run("steps.py", "attention", sm=90, sms=132).said
    assert set(counts) == {WORKSPACE + "attention"}


def test_capture_spreads_over_streams_and_forbids_waiting(card: Card) -> None:
    said = card.run("steps.py", "graph").said
    assert [said[when] for when in ("before", "inside", "forked", "after")] == [False, True, True, False]
    assert said["private_pool"]
    assert said["grew"]
    assert "operation not permitted when stream is capturing" in said["item_inside"]


def test_ctc_loss_works_with_a_row_of_sums_for_each_step_and_sequence(card: Card) -> None:
    row = [(2 * labels + 1) * 4 for labels in (255, 10, 20)]  # 255 where nothing says how many labels there are
    assert card.run("ctc.py").said == [50 * 16 * bytes_ * ways for bytes_ in row for ways in (1, 2)]

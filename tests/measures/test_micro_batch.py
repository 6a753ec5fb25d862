"""micro-batch: equal to accumulation by hand, in plain PyTorch and in each framework; the numbers are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.measure import METHOD, NOTHING
from dryfit.measures.micro_batch import MEASURES, micro_batches_of, placed_options

from .conftest import figures

(MEASURE,) = MEASURES
ADAM = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)


def test_is_as_written_by_hand_where_the_words_hold_the_batch(rehearse) -> None:
    plain = rehearse("micro_loop", "16")
    switched = rehearse("micro_loop", "4", "20", measures=["micro-batch:4:placed"])
    by_hand = rehearse("micro_loop_by_hand", "4")
    assert switched.measures == {"micro-batch": True}
    assert switched.steps == by_hand.steps == 4
    assert figures(switched) == figures(by_hand)
    assert switched.phase_peaks["backward"] < plain.phase_peaks["backward"] / 2


@pytest.mark.parametrize("arguments", [("", ""), ("scaled", ""), ("", "shuffle")], ids=["fp32", "scaled", "shuffled"])
def test_makes_the_batches_smaller_that_are_trained_from(assert_same_bytes, arguments) -> None:
    switched, plain = assert_same_bytes("micro_loader", ["micro-batch:4"], "micro_loader_by_hand", arguments=arguments)
    assert switched.phase_peaks["forward"] < plain.phase_peaks["forward"] / 2
    assert switched.phase_peaks["evaluation"] > plain.phase_peaks["evaluation"] / 2


@pytest.mark.stacks
@pytest.mark.parametrize("name", ["micro_trainer", "micro_lightning", "micro_accelerate"])
def test_is_as_the_framework_does_it(rehearse_stack, name) -> None:
    switched = rehearse_stack(name, "1", measures=["micro-batch:4"])
    by_hand = rehearse_stack(name, "4")
    assert switched.ending.how in ("steady", "finished")
    assert switched.measures == {"micro-batch": True}
    assert figures(switched) == figures(by_hand)


@pytest.mark.stacks
def test_accumulates_where_an_accelerated_loop_does_not(rehearse_stack) -> None:
    assert figures(rehearse_stack("micro_accelerate", "1", "", measures=["micro-batch:4"])) == figures(
        rehearse_stack("micro_accelerate", "4")
    )


def test_the_numbers_are_those_of_the_whole_batch() -> None:
    program = Path(__file__).parent / "programs" / "micro_numbers.py"
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=120)
    said = json.loads(done.stdout)
    assert said["sizes"] == [16] * 3
    assert said["micro_sizes"] == [4] * 12
    assert said["difference"] < 1e-12


def test_says_why_it_cannot_be_switched_on(rehearse) -> None:
    lost = rehearse("micro_loader", "", "", "none", measures=["micro-batch:4"])
    assert "the program sets gradients to None otherwise than by zero_grad() after every backward pass" in (
        lost.ending.sentence
    )
    uneven = rehearse("micro_loader", measures=["micro-batch:3"])
    assert "the DataLoader's batch of 16 cannot be cut into 3 equal parts; choose one of 2, 4, 8, 16." in (
        uneven.ending.sentence
    )


def test_finds_nothing_to_do_where_no_loader_gives_the_batch(rehearse) -> None:
    plain = rehearse("micro_loop", "4")
    switched = rehearse("micro_loop", "4", measures=["micro-batch:4"])
    assert switched.measures == {"micro-batch": False}
    assert figures(switched) == figures(plain)


def test_options_are_divisors_of_the_batch() -> None:
    assert MEASURE.options(Facts(loader_batch=16)) == ["2", "4", "8", "16"]
    assert MEASURE.options(Facts(loader_batch=12)) == ["2", "4", "12"]
    assert MEASURE.options(Facts(loader_batch=9)) == ["3", "9"]
    assert [micro_batches_of(option) for option in placed_options(4)] == [2, 4]


def test_applies_where_the_batch_can_be_made_smaller() -> None:
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), loader_batch=8)) == ""
    assert MEASURE.why_not(Facts(loader_batch=8)) == (
        "the program makes no optimizer, so there are no gradients to accumulate"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), loader_batch=1)) == "the batch is a single sample already"
    assert MEASURE.why_not(Facts(optimizers=(ADAM,))) == (
        "the batch is made in the program's own code and cannot be changed from outside; write {batch} in place of the "
        "number on the command line, and it can be made smaller there"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), loader_batch=8, loader_samplers=True)).startswith(
        "the DataLoader has a batch sampler of the program's own; write {batch}"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), loader_batch=8, has_closure=True)).startswith(
        "an optimizer is given a closure"
    )


def test_changes_the_method_only_where_batch_norms_see_the_batch() -> None:
    normed = ModelFacts(kind="resnet.ResNet", parameters=8, trainable=8, batch_norms=3)
    assert MEASURE.changes(Facts(models=(normed,))) == METHOD
    assert MEASURE.changes(Facts()) == NOTHING

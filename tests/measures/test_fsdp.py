"""fsdp: equal to a program that shards its model by hand, and is played as the first of as many ranks."""

from __future__ import annotations

import pytest

from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.fsdp import MEASURES

from .conftest import figures

(MEASURE,) = MEASURES
ADAM = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)


@pytest.mark.parametrize(("place", "cards"), [("host", "4"), ("card", "2")])
def test_is_as_written_by_hand(rehearse, place, cards) -> None:
    switched = rehearse("fsdp_loop", place, measures=[f"fsdp:{cards}"])
    assert switched.ending.how == "steady"
    assert switched.measures == {"fsdp": True}
    by_hand = rehearse("fsdp_loop", place, cards, world=int(cards))
    assert figures(switched) == figures(by_hand)
    assert switched.communication == by_hand.communication
    assert set(switched.communication) == {"all-gather", "reduce-scatter"}


def test_blocks_are_checkpointed_within_their_shards(rehearse) -> None:
    switched = rehearse("fsdp_loop", measures=["checkpoint-blocks", "fsdp:4"])
    assert switched.measures == {"checkpoint-blocks": True, "fsdp": True}
    assert figures(switched) == figures(rehearse("fsdp_checkpointed", world=4))


def test_more_cards_take_less_of_each(rehearse) -> None:
    two, eight = (rehearse("fsdp_loop", measures=[f"fsdp:{cards}"]) for cards in (2, 8))
    assert eight.phase_peaks["after the step"] < two.phase_peaks["after the step"] / 2


def test_applies_to_loops_on_one_card() -> None:
    def model(**others) -> ModelFacts:
        return ModelFacts(kind="m.M", parameters=8, trainable=8, **others)

    blocks = model(blocks={"Block": 4})
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(blocks,))) == ""
    assert MEASURE.options(Facts()) == ("2", "4", "8")
    assert MEASURE.why_not(Facts(models=(blocks,))) == "the program makes no optimizer, so nothing is trained"
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(blocks,), world=2)) == (
        "the program is spread over several cards already"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(blocks,), way="transformers")) == (
        "transformers' Trainer shards a model by settings of its own; rehearse it with these, as ranks of a --world"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(model(),))) == (
        "nothing in the model is repeated, and a model sharded as a whole is gathered as a whole"
    )

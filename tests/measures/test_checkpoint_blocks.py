"""Checkpointing of blocks: equal to what is written by hand, in any model, and to the same gradients."""

from __future__ import annotations

import functools

import pytest

from dryfit.measures.checkpoint_blocks import MEASURES
from dryfit.measures.facts import Facts, ModelFacts
from dryfit.measures.measure import Measure
from dryfit.measures.moments import Moments

from .conftest import figures

torch = pytest.importorskip("torch")
nn = torch.nn

NAMES = [measure.name for measure in MEASURES]
WAYS = {"checkpoint-blocks": "all", "checkpoint-every-second": "every second", "checkpoint-selective": "selective"}
each_measure = pytest.mark.parametrize("measure", MEASURES, ids=NAMES)


@each_measure
def test_is_as_written_by_hand_and_as_its_snippet(rehearse, measure: Measure) -> None:
    switched = rehearse("language_model", measures=[measure.name])
    by_hand = rehearse("checkpoint_by_hand", WAYS[measure.name])
    by_snippet = rehearse("checkpoint_by_snippet", measure.name)
    for result in (switched, by_hand, by_snippet):
        assert result.ending.how == "steady", result.ending
    assert switched.measures == {measure.name: True}
    assert figures(switched) == figures(by_hand) == figures(by_snippet)


def test_a_convolutional_net_with_batch_norms(rehearse) -> None:
    plain, switched = (rehearse("checkpoint_convolutions", measures=on) for on in ([], ["checkpoint-blocks"]))
    by_hand = rehearse("checkpoint_convolutions", "by hand")
    assert all(result.ending.how == "finished" for result in (plain, switched, by_hand))
    assert figures(switched) == figures(by_hand)
    assert switched.peak_allocated_bytes < plain.peak_allocated_bytes


@pytest.mark.parametrize(
    ("kind", "name"),
    [("gpt2", "checkpoint-every-second"), ("llama", "checkpoint-selective"), ("lora", "checkpoint-blocks")],
)
def test_is_as_the_trainers_own_setting(rehearse_stack, kind: str, name: str) -> None:
    pytest.importorskip("peft" if kind == "lora" else "transformers")
    pytest.importorskip("accelerate")
    switched = rehearse_stack("checkpoint_trainer", kind, "plain", measures=[name])
    by_hand = rehearse_stack("checkpoint_trainer", kind, WAYS[name])
    assert (switched.ending.how, by_hand.ending.how) == ("finished", "finished")
    assert switched.measures == {name: True}
    assert figures(switched) == figures(by_hand)


class Block(nn.Module):
    """Takes its input by name or place, and gives a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.one, self.two = nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.dropout = nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x, *, scale):
        self.calls += 1
        return x + scale * self.two(self.dropout(torch.relu(self.one(self.norm(x))))), self.calls


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 8).requires_grad_(False)  # so the first block's input wants no gradient
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x, _ = block(x, scale=2.0)
        return x


def trained_once(model: nn.Module, call=lambda model: None):
    torch.manual_seed(1)
    call(model)
    model(torch.arange(5)).square().sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.requires_grad]


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def switched_on(measure: Measure) -> Moments:
    moments = Moments(name=measure.name, after_import=lambda *_: None)
    measure.switch_on(moments, "")
    return moments


def called(moments: Moments, model: nn.Module) -> None:
    for do in moments.on_model_called:
        do(model, (), {})


@each_measure
def test_gradients_are_the_same(measure: Measure, model: Model) -> None:
    torch.manual_seed(0)
    as_it_is = trained_once(Model())
    gradients = trained_once(model, functools.partial(called, switched_on(measure)))
    assert len(gradients) == len(as_it_is) == 24
    assert all(torch.equal(one, other) for one, other in zip(gradients, as_it_is, strict=True))
    computed = [1, 2, 1, 2] if measure.name == "checkpoint-every-second" else [2, 2, 2, 2]
    assert sorted(block.calls for block in model.blocks) == sorted(computed)


def test_batch_norms_can_be_told_to_move_twice_as_once(model: Model) -> None:
    torch.manual_seed(0)
    other = Model()
    for block in model.blocks:
        block.norm.momentum = 1 - (1 - block.norm.momentum) ** 0.5
    trained_once(other)
    trained_once(model, functools.partial(called, switched_on(MEASURES[NAMES.index("checkpoint-blocks")])))
    for block, same in zip(model.blocks, other.blocks, strict=True):
        torch.testing.assert_close(block.norm.running_var, same.norm.running_var)
        assert block.norm.num_batches_tracked == 2 * same.norm.num_batches_tracked


@each_measure
def test_what_is_not_trained_is_left_alone(measure: Measure, model: Model) -> None:
    moments = switched_on(measure)
    called(moments, model.eval())
    with torch.no_grad():
        called(moments, model.train())
    called(moments, Model().requires_grad_(False))
    called(moments, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    assert not moments.has_acted
    assert not any("forward" in block.__dict__ for block in model.blocks)


def test_parts_that_are_called_by_themselves_are_checkpointed_once(model: Model) -> None:
    moments = switched_on(MEASURES[NAMES.index("checkpoint-blocks")])
    for part in (model.blocks, model, model, model.blocks[0]):
        called(moments, part)
    trained_once(model)
    assert [block.calls for block in model.blocks] == [2, 2, 2, 2]


@each_measure
def test_a_model_of_transformers_checkpoints_itself_unless_it_does_already(measure: Measure) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=3, n_embd=8, n_head=2, vocab_size=16)
    whole = nn.ModuleDict({"gpt2": transformers.GPT2LMHeadModel(config), "own": nn.ModuleList([Block(), Block()])})
    language_model, own = whole.values()
    called(switched_on(measure), language_model)
    every = 2 if measure.name == "checkpoint-every-second" else 1
    assert [block.gradient_checkpointing for block in language_model.transformer.h] == [True, every == 1, True]

    again = switched_on(measure)
    called(again, language_model)
    assert not again.has_acted
    called(again, nn.ModuleList([whole]))
    assert ["forward" in block.__dict__ for block in own] == [True, every == 1]
    assert not any("forward" in block.__dict__ for block in language_model.modules())


@each_measure
def test_applies_to_models_with_blocks_that_are_not_checkpointed(measure: Measure) -> None:
    def facts(**known) -> Facts:
        return Facts(models=(ModelFacts(kind="m.Model", parameters=8, trainable=8, **known),))

    assert measure.why_not(facts(blocks={"Block": 4})) == ""
    assert measure.why_not(facts(blocks={"Block": 4}, is_checkpointed=True)) == (
        "the program's model is checkpointed already"
    )
    nothing = "nothing in the program's model is repeated, so there are no blocks to checkpoint"
    assert measure.why_not(facts()) == measure.why_not(Facts()) == nothing


@each_measure
def test_snippets_name_the_blocks(measure: Measure) -> None:
    assert "isinstance(module, (Encoder, Decoder))" in measure.snippet("pytorch", blocks="(Encoder, Decoder)")
    assert "isinstance(module, Block)" in measure.snippet("lightning")
    assert "{blocks}" not in measure.snippet("transformers")

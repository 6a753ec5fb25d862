"""`checkpoint_blocks`: what goes wrong by hand, shown wrong, and right here; what it keeps, and what it refuses."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.blocks import (
    WIDTH,
    WORDS,
    WORDS_GIVEN,
    Block,
    Found,
    FrozenEmbedding,
    assert_bit_equal,
    by_hand,
    loss_of,
    model_of,
    trained,
)
from torch import nn
from torch.utils.checkpoint import checkpoint

from dryfit.train import checkpoint_blocks
from dryfit.train.checkpointed_forward import BUFFERS_MOVE_TWICE_IF_COMPILED


@pytest.fixture
def forwards() -> Iterator[list[nn.Module]]:
    """Each time that a block's own forward runs, the block."""
    ran: list[nn.Module] = []
    own = Block.forward

    def noting(self: Block, x: torch.Tensor, *, scale: float) -> torch.Tensor:
        ran.append(self)
        return own(self, x, scale=scale)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Block, "forward", noting)
        yield ran


# What goes wrong by hand.


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_reentrant_with_a_frozen_embedding_loses_gradients_and_ours_does_not() -> None:
    by_hand = trained(FrozenEmbedding(reentrant=True))
    assert list(by_hand[1]) == ["head.weight", "head.bias"]  # and not a word said

    torch.manual_seed(0)
    model = FrozenEmbedding(reentrant=False)
    plain = trained(model)
    assert len(plain[1]) == 14
    checkpointed = checkpoint_blocks(model, blocks=list(model.layers), verify=WORDS_GIVEN, loss_of=loss_of)
    assert_bit_equal(trained(model), plain)
    assert checkpointed.verified == (
        "Verified on one batch: loss, 14 gradients and 0 buffers are bit-equal with and without checkpointing."
    )


def test_random_numbers_not_kept_change_gradients_and_ours_are_kept() -> None:
    plain = trained(model_of())
    wrong = trained(by_hand(model_of(), preserve_rng_state=False))
    name = "blocks.0.down.weight"
    assert torch.equal(wrong[0], plain[0])  # the loss says nothing
    assert (wrong[1][name] - plain[1][name]).norm() > 0.3 * plain[1][name].norm()

    model = model_of()
    checkpoint_blocks(model)
    assert_bit_equal(trained(model), plain)


NORMS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm": lambda: nn.BatchNorm1d(WIDTH),
    "BatchNorm, cumulative": lambda: nn.BatchNorm1d(WIDTH, momentum=None),
    "BatchNorm, frozen": lambda: nn.BatchNorm1d(WIDTH).eval(),
    "BatchNorm, without statistics": lambda: nn.BatchNorm1d(WIDTH, track_running_stats=False),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral norm, old": lambda: nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH)),
}


class Counter(nn.Module):
    """Keeps a moving average in a buffer that it puts another tensor in place of, and has no say in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
        self.calls += 1
        return x


@pytest.mark.parametrize("norm", [*NORMS, "counter"])
def test_buffers_move_once(norm: str) -> None:
    make = {**NORMS, "counter": Counter}[norm]
    plain, wrong, ours = (model_of(lambda: Block(make())) for _ in range(3))
    by_hand(wrong)
    checkpointed = checkpoint_blocks(ours)
    expected = [trained(plain, seed) for seed in range(3)]
    moved_twice = [trained(wrong, seed) for seed in range(3)]
    for seed, each in enumerate(expected):
        assert_bit_equal(trained(ours, seed), each)
    assert expected[0][2].keys() == moved_twice[0][2].keys()
    differ = [name for name in expected[-1][2] if not torch.equal(expected[-1][2][name], moved_twice[-1][2][name])]
    assert bool(differ) == (norm not in ("BatchNorm, frozen", "BatchNorm, without statistics"))
    if norm == "BatchNorm":
        assert moved_twice[0][2]["blocks.0.norm.num_batches_tracked"] == 2
        assert expected[0][2]["blocks.0.norm.num_batches_tracked"] == 1
    checkpointed.undo()
    assert_bit_equal(trained(ours), trained(plain))


def test_buffers_move_once_though_the_graph_is_gone_through_twice() -> None:
    model = model_of()
    checkpoint_blocks(model)
    loss = loss_of(model, WORDS_GIVEN)
    loss.backward(retain_graph=True)
    loss.backward()
    assert model.blocks[0].norm.num_batches_tracked == 1


# What it keeps, and leaves as it was.


@pytest.mark.parametrize("keep", [None, "matmuls", "attention"])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_gradients_are_bit_equal_and_blocks_run_twice(keep: Any, every: int, forwards: list[nn.Module]) -> None:
    plain = trained(model_of())
    del forwards[:]
    model = model_of()
    checkpointed = checkpoint_blocks(model, every=every, keep=keep)
    assert_bit_equal(trained(model), plain)
    assert [forwards.count(block) for block in model.blocks] == {1: [2, 2, 2, 2], 2: [2, 1, 2, 1], 3: [2, 1, 1, 2]}[
        every
    ]
    assert checkpointed.blocks == tuple(f"blocks.{at}" for at in range(0, 4, every))


@pytest.mark.parametrize(("keep", "again"), [(None, {"addmm": 12, "attention": 4}), ("attention", {"addmm": 12})])
def test_what_is_kept_is_not_computed_again(keep: Any, again: dict[str, int]) -> None:
    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[str, int] = {}

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = operator.name().removeprefix("aten::")
            name = "attention" if name.startswith("_scaled_dot_product") and "backward" not in name else name
            if name in ("addmm", "attention"):
                self.found[name] = self.found.get(name, 0) + 1
            return operator(*args, **(kwargs or {}))

    def counted(keep: Any) -> dict[str, int]:
        model = model_of()
        checkpoint_blocks(model, keep=keep)
        loss = loss_of(model, WORDS_GIVEN)
        with Counting() as counting:
            loss.backward()
        return counting.found

    assert counted("matmuls") == {}
    assert counted(keep) == again


def test_nothing_is_checkpointed_in_eval_mode_or_without_gradients(forwards: list[nn.Module]) -> None:
    model = model_of()
    checkpoint_blocks(model)
    with torch.no_grad():
        model(WORDS_GIVEN)
    assert len(forwards) == 4
    model.eval()
    loss = loss_of(model, WORDS_GIVEN)
    del forwards[:]
    loss.backward()
    assert forwards == []


def test_names_state_copies_and_pickles_stay(forwards: list[nn.Module]) -> None:
    model, plain = model_of(), model_of()
    checkpoint_blocks(model, keep="matmuls")
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    expected = trained(plain)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # copies have nothing of the model's
    for each in (copied, pickled):
        del forwards[:]
        assert_bit_equal(trained(each), expected)
        assert [forwards.count(block) for block in each.blocks] == [2, 2, 2, 2]


def test_a_model_is_freed_when_it_is_deleted() -> None:
    model = model_of()
    checkpoint_blocks(model)
    trained(model)
    there = weakref.ref(model.blocks[0])
    gc.disable()
    try:
        del model
        assert there() is None
    finally:
        gc.enable()


def test_undo_gives_each_block_its_own_forward_back() -> None:
    model = model_of()

    def own(x: torch.Tensor, *, scale: float) -> torch.Tensor:
        return x * scale

    model.blocks[1].forward = own
    with checkpoint_blocks(model) as checkpointed:
        assert all("forward" in vars(block) for block in model.blocks)
        trained(model)
    assert vars(model.blocks[1])["forward"] is own
    assert [at for at, block in enumerate(model.blocks) if "forward" in vars(block)] == [1]
    checkpointed.undo()
    checkpoint_blocks(model)


def test_undo_reaches_below_a_forward_that_is_put_around(forwards: list[nn.Module]) -> None:
    model = model_of()
    checkpointed = checkpoint_blocks(model)
    for block in model.blocks:
        block.forward = functools.partial(block.forward)  # as accelerate's hooks do
    trained(model)
    assert len(forwards) == 8
    checkpointed.undo()
    trained(model)
    assert len(forwards) == 12


def test_tensors_given_by_name_say_which_cards_random_numbers_are_kept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch looks for devices in positional arguments, and keeps no generator of a card that it does not see."""
    seen: list[Any] = []

    def looking(function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        seen.extend(args)
        return checkpoint(function, *args, **settings)

    monkeypatch.setattr("dryfit.train.checkpointed_forward.checkpoint", looking)
    block = Block()
    checkpoint_blocks(block, blocks=block)
    x = torch.ones(4, WIDTH)
    assert block(scale=2.0, x=x).requires_grad
    assert len(seen) == 2 and seen[0] == 2.0 and seen[1] is x


def test_autocast_is_in_the_second_computation_what_it_was_in_the_first() -> None:
    def low(model: nn.Module) -> Found:
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, WORDS_GIVEN)
        loss.backward()  # outside of autocast, as it should be
        return loss.detach(), {name: p.grad for name, p in model.named_parameters()}, {}

    model = model_of()
    checkpoint_blocks(model)
    assert_bit_equal(low(model), low(model_of()))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_model() -> None:
    def compiled(model: nn.Module) -> Found:
        torch._dynamo.reset()
        return trained(torch.compile(model, backend="aot_eager", fullgraph=not BUFFERS_MOVE_TWICE_IF_COMPILED))

    expected = compiled(model_of(lambda: Block(dropout=0.0)))
    for keep in (None, "matmuls"):
        model = model_of(lambda: Block(dropout=0.0))
        checkpoint_blocks(model, keep=keep)
        found = compiled(model)
        for some, others in zip(found[1:], expected[1:], strict=True):
            for name, tensor in others.items():
                torch.testing.assert_close(some[name], tensor)
        assert found[2]["_orig_mod.blocks.0.norm.num_batches_tracked"] == 1


def test_printed_it_says_what_is_checkpointed() -> None:
    assert str(checkpoint_blocks(model_of())) == (
        "4 Block keep their inputs alone for the backward pass: blocks.0, blocks.1, blocks.2, blocks.3."
    )
    assert str(checkpoint_blocks(model_of(), every=2, keep="attention")) == (
        "2 Block keep their inputs and what attention gave for the backward pass: blocks.0, blocks.2."
    )
    assert str(checkpoint_blocks(model_of(), keep="matmuls")).startswith(
        "4 Block keep their inputs and what matrix products, convolutions and attention gave for the backward pass: "
    )


def draws(of: str) -> Callable[[], float]:
    return {"random": random.random, "numpy": np.random.random}[of]


@pytest.mark.parametrize("of", ["random", "numpy"])
def test_random_numbers_of_python_and_numpy_are_replayed(of: str) -> None:
    class Scaled(Block):
        def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
            return torch.tanh(super().forward(x, scale=scale) * draws(of)())

    def seeded(model: nn.Module) -> tuple[Found, float]:
        random.seed(0)
        np.random.seed(0)
        return trained(model), draws(of)()

    plain, then = seeded(model_of(Scaled))
    for keep in (None, "matmuls"):
        model = model_of(Scaled)
        checkpoint_blocks(model, keep=keep)
        found, afterwards = seeded(model)
        assert_bit_equal(found, plain)
        assert afterwards == then  # each number was drawn once
    assert not torch.equal(seeded(by_hand(model_of(Scaled)))[0][1]["embed.weight"], plain[1]["embed.weight"])


class Dense(nn.Module):
    """As DenseNet has it: each block is given the list of all before it, which grows."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Gathering() for _ in range(3))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        features = [self.embed(words)]
        for block in self.blocks:
            features.append(block({"all": (features,)}))
        return features[-1]


class Gathering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, given: dict[str, tuple[list[torch.Tensor]]]) -> torch.Tensor:
        (features,) = given["all"]
        total = torch.stack(features).sum(0)
        features.append(total)  # which the caller sees once
        return self.down(torch.tanh(self.up(total)))


def test_lists_that_grow_later_are_what_they_were() -> None:
    torch.manual_seed(0)
    model = Dense()
    plain = trained(model)
    checkpoint_blocks(model)
    assert_bit_equal(trained(model), plain)
    loss = loss_of(model, WORDS_GIVEN)
    loss.backward(retain_graph=True)
    once = model.embed.weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(model.embed.weight.grad, 2 * once)


def test_a_block_that_is_called_several_times() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.block = nn.Embedding(WORDS, WIDTH), Block()
            self.block.up = nn.utils.parametrizations.spectral_norm(self.block.up)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            x = self.embed(words)
            for _ in range(3):
                x = self.block(x, scale=2.0)
            return x

    torch.manual_seed(0)
    model = Shared()
    plain = copy.deepcopy(model)
    assert checkpoint_blocks(model, blocks=Block).blocks == ("block",)
    assert_bit_equal(trained(model), trained(plain))


def test_hooks_of_a_block_run_once() -> None:
    model = model_of()
    ran: list[str] = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda *_: ran.append("before"))
        block.register_forward_hook(lambda *_: ran.append("after"))
        block.register_full_backward_hook(lambda *_: ran.append("backward"))
    checkpoint_blocks(model)
    trained(model)
    assert sorted(ran) == ["after"] * 4 + ["backward"] * 4 + ["before"] * 4


def test_parts_are_undone_in_any_order() -> None:
    model = model_of()
    plain = trained(model_of())
    first, second = (checkpoint_blocks(model.blocks[at], blocks=model.blocks[at]) for at in (0, 2))
    first.undo()
    assert "forward" not in vars(model.blocks[0]) and "forward" in vars(model.blocks[2])
    assert_bit_equal(trained(model), plain)
    second.undo()
    assert not any("forward" in vars(block) for block in model.blocks)

"""`checkpoint_blocks`: what goes wrong by hand, shown wrong, and right here; what it keeps, and what it refuses."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from dryfit.errors import UsageError
from dryfit.train import checkpoint_blocks

WIDTH, WORDS = 16, 32


class Block(nn.Module):
    """Has dropout, a BatchNorm, attention, and arguments by place and by name."""

    def __init__(self, norm: nn.Module | None = None, dropout: float = 0.3) -> None:
        super().__init__()
        self.norm = norm or nn.BatchNorm1d(WIDTH)
        self.attention, self.up, self.down = (nn.Linear(WIDTH, n * WIDTH) for n in (3, 2, 1))
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
        q, k, v = (part[None, None] for part in self.attention(self.norm(x)).chunk(3, dim=-1))
        x = x + scale * scaled_dot_product_attention(q, k, v)[0, 0]
        return x + self.dropout(self.down(torch.relu(self.up(x))))


class Model(nn.Module):
    def __init__(self, make: Callable[[], nn.Module] = Block) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(make() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x, scale=2.0)
        return self.head(x)


def model_of(make: Callable[[], nn.Module] = Block) -> Model:
    torch.manual_seed(0)
    return Model(make)


def loss_of(model: nn.Module, words: torch.Tensor) -> torch.Tensor:
    return model(words).square().mean()


WORDS_GIVEN = torch.arange(WORDS)
Found = tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, torch.Tensor]]


def trained(model: nn.Module, seed: int = 1) -> Found:
    """Loss, gradients and buffers after one pass from a seed."""
    torch.manual_seed(seed)
    loss = loss_of(model, WORDS_GIVEN)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    return loss.detach(), gradients, {name: buffer.clone() for name, buffer in model.named_buffers()}


def assert_bit_equal(found: Found, expected: Found) -> None:
    assert torch.equal(found[0], expected[0])
    for some, others in zip(found[1:], expected[1:], strict=True):
        assert list(some) == list(others)
        assert [name for name in some if not torch.equal(some[name], others[name])] == []


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


class FrozenEmbedding(nn.Module):
    """As LoRA has it: nothing before the first block requires a gradient."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.embed = nn.Embedding(WORDS, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True) if self.reentrant else layer(x)
        return self.head(x)


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


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_tensors_without_a_gradient_are_an_error_before_training() -> None:
    model = FrozenEmbedding(reentrant=True)
    with pytest.raises(UsageError) as error:
        checkpoint_blocks(model, blocks=[model.head], verify=WORDS_GIVEN, loss_of=loss_of)
    assert str(error.value) == (
        "12 of 14 trainable tensors get no gradient, with checkpointing or without: layers.0.0.weight, "
        "layers.0.0.bias, layers.0.2.weight, layers.0.2.bias and 8 more. The loss does not depend on them, or "
        "something cuts the graph: a reentrant checkpoint whose inputs require no gradient (frozen embeddings, LoRA), "
        "detach(), no_grad. Freeze what is not to be trained (requires_grad_(False)), or give allow_unused=True if "
        "other batches use them."
    )
    assert "forward" not in vars(model.head)  # undone
    checkpoint_blocks(model, blocks=[model.head], verify=WORDS_GIVEN, loss_of=loss_of, allow_unused=True).undo()


def by_hand(model: Model, **settings: Any) -> Model:
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **settings)
    return model


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
        return trained(torch.compile(model, backend="aot_eager", fullgraph=True))

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


# Verification.


def test_verification_puts_everything_back_bit_for_bit() -> None:
    model = model_of()
    loss_of(model, WORDS_GIVEN).backward()
    model.blocks[2].norm.eval()
    model.head.eval()

    def state() -> list[torch.Tensor]:
        gradients = [parameter.grad for parameter in model.parameters()]
        return [*model.parameters(), *model.buffers(), *gradients, torch.get_rng_state()]

    before = [tensor.detach().clone() for tensor in state()]
    gradients = [parameter.grad for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    checkpoint_blocks(model, verify=WORDS_GIVEN[:5], loss_of=loss_of)
    assert all(torch.equal(now, then) for now, then in zip(state(), before, strict=True))
    assert all(p.grad is kept for p, kept in zip(model.parameters(), gradients, strict=True))
    assert [module.training for module in model.modules()] == modes


def test_a_model_in_eval_mode_is_verified_in_train_mode() -> None:
    model = model_of().eval()
    checkpointed = checkpoint_blocks(model, verify=WORDS_GIVEN, loss_of=loss_of)
    assert not any(module.training for module in model.modules())
    assert checkpointed.verified == (
        "Verified on one batch: loss, 35 gradients and 12 buffers are bit-equal with and without checkpointing."
    )
    assert str(checkpointed).endswith(checkpointed.verified)


class Remembering(Block):
    """What it computes depends on how often it has been called, which is in no buffer."""

    calls, by = 0, 1.0

    def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
        self.calls += 1
        return torch.tanh(x * (1 + self.by * (self.calls % 2))) * torch.tanh(self.up(x)[:, :WIDTH])


def loss_from_zero(model: nn.Module, words: torch.Tensor) -> torch.Tensor:
    for block in model.blocks:
        block.calls = 0
    return loss_of(model, words)


def test_a_block_that_computes_something_else_the_second_time_is_an_error() -> None:
    model = model_of(lambda: Remembering(nn.Identity(), dropout=0.0))

    with pytest.raises(UsageError) as error:
        checkpoint_blocks(model, verify=WORDS_GIVEN, loss_of=loss_from_zero, allow_unused=True)
    assert str(error.value).startswith("Checkpointing changes what the model computes: largest relative difference ")
    assert str(error.value).endswith(
        " A block computed again does not give what its forward gave: it draws random numbers from a generator of its "
        "own, or changes and reads an attribute that is no buffer. Register it as a buffer, or give blocks= without "
        "that block."
    )
    assert not any("forward" in vars(block) for block in model.blocks)

    with pytest.raises(UsageError) as error:
        checkpoint_blocks(
            model, verify=WORDS_GIVEN, loss_of=lambda *given: loss_of(*given) * torch.rand((), generator=own)
        )
    assert str(error.value).startswith("The model cannot be verified: two passes without checkpointing, ")


own = torch.Generator()


def test_a_difference_that_is_rounding_is_told_from_equal_bits() -> None:
    model = model_of(lambda: Remembering(nn.Identity(), dropout=0.0))
    for block in model.blocks:
        block.by = 3e-7
    checkpointed = checkpoint_blocks(model, verify=WORDS_GIVEN, loss_of=loss_from_zero, allow_unused=True)
    assert checkpointed.verified.startswith(
        "Verified on one batch: loss, 11 gradients and 0 buffers are equal to rounding with and without checkpointing; "
        "largest relative difference "
    )
    assert checkpointed.verified.endswith("e-07, and 0.0e+00 between two passes without it.")


def test_a_cache_of_ones_own_is_refused_in_training() -> None:
    class Caching(nn.Linear):
        def forward(self, x: torch.Tensor, kv_cache: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
            return super().forward(x)

    model = Caching(4, 4)
    checkpoint_blocks(model, blocks=Caching)
    assert model(torch.ones(2, 4), kv_cache=None).requires_grad
    with pytest.raises(UsageError, match="Block the model itself was given a KV cache in training, a dict"):
        model(torch.ones(2, 4), kv_cache={})
    assert model.eval()(torch.ones(2, 4), kv_cache={}).requires_grad


# What it refuses.


def refused(model: nn.Module, **settings: Any) -> str:
    with pytest.raises(UsageError) as error:
        checkpoint_blocks(model, **settings)
    return str(error.value)


def test_a_model_without_repeated_blocks() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    assert refused(model) == (
        "Sequential has no repeated blocks that could be checkpointed. Give blocks=: a class (blocks=Block), or the "
        "parts to compute again, such as blocks=[model.encoder, model.decoder]."
    )
    assert checkpoint_blocks(model, blocks=nn.Linear).blocks == ("0", "2")


def test_a_model_that_is_checkpointed_already() -> None:
    model = model_of()
    first = checkpoint_blocks(model)
    twice = "Twice would compute it again twice."
    assert refused(model) == (
        f"Model is checkpointed already, at blocks.0: by checkpoint_blocks; call undo() on what that gave first. "
        f"{twice}"
    )
    first.undo()
    checkpoint_blocks(model).undo()
    assert refused(by_hand(model_of())) == (
        f"Model is checkpointed already, at blocks.0: its forward was replaced by torch.utils.checkpoint; leave that "
        f"out. {twice}"
    )
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model.head = checkpoint_wrapper(model.head)
    assert refused(model) == (
        f"Model is checkpointed already, at head: by torch.distributed's checkpoint_wrapper; leave that out. {twice}"
    )
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", depth=2)
    model.set_grad_checkpointing()
    assert refused(model) == (
        f"VisionTransformer is checkpointed already, at the model itself: by its own setting; call "
        f"model.set_grad_checkpointing(False) first, or keep that and leave this out. {twice}"
    )


def test_blocks_that_are_none() -> None:
    model = model_of()
    assert refused(model, blocks=nn.Conv2d) == "There is no module of class Conv2d in Model."
    assert refused(model, blocks=[Block()]) == "A Block among blocks= is no part of Model."
    assert refused(model, blocks=model.blocks[0].forward).endswith(
        ": it is a class of modules, several, or a list of modules."
    )
    assert refused(model, blocks=[]) == (
        "blocks= is empty, so there is nothing to checkpoint; leave it out to have blocks found."
    )
    assert refused(model, blocks=[model, model.head]) == (
        "Of blocks=, head is inside the model itself, and would be computed again twice. Give either the outer blocks "
        "or the inner ones."
    )
    assert refused(model, blocks=nn.ModuleList) == (
        "blocks is a ModuleList, which holds modules and is not called itself. Give what it holds: blocks=list(...)."
    )
    assert checkpoint_blocks(model, blocks=model.blocks).blocks == tuple(f"blocks.{at}" for at in range(4))


def test_arguments_that_do_not_go_together() -> None:
    model = model_of()
    assert refused(model, every=0) == "every=0: it is 1 for each block, 2 for every second one, and so on."
    assert refused(model, keep="all") == (
        'keep=\'all\': it is "matmuls", "attention", or None to keep the inputs of blocks alone.'
    )
    assert refused(model, verify=WORDS_GIVEN) == (
        "verify= needs loss_of=, a function that takes the model and that batch and gives the loss."
    )
    assert refused(model, loss_of=loss_of) == (
        "loss_of= is for verify=; give a small batch there, or leave loss_of out."
    )
    assert refused(model, verify=WORDS_GIVEN, loss_of=lambda *given: loss_of(*given) / 0) == (
        "The loss of the batch to verify with is inf, so nothing can be compared."
    )

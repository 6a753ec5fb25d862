"""What `checkpoint_blocks` refuses: before training, and in it where a block cannot be computed again as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.train.blocks import WORDS_GIVEN, Block, by_hand, loss_of, model_of, trained
from torch import nn

from dryfit.errors import UsageError
from dryfit.train import checkpoint_blocks


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
        f"Model is checkpointed already, at blocks.0: by checkpoint_blocks, here or before it was copied; call undo() "
        f"on what that gave first. {twice}"
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
    assert refused(model, blocks="Block") == (
        "Of blocks=, 'Block' is no module; it takes a class of modules, several, or a list of modules."
    )
    assert refused(model, blocks=[model.blocks[0].forward]).startswith("Of blocks=, <bound method")
    assert refused(model, blocks=[]) == (
        "blocks= is empty, so there is nothing to checkpoint; leave it out to have blocks found."
    )
    assert refused(model, blocks=[model, model.head]) == (
        "Of blocks=, head is inside the model itself, and would be computed again twice. Give either the outer blocks "
        "or the inner ones."
    )
    assert refused(model, blocks=nn.ModuleList) == (
        "blocks is a ModuleList, which holds modules and is not called itself. Give the modules in it."
    )
    named = nn.ModuleDict({"a": model.blocks[2], "b": model.blocks[0]})
    for given, at in ((model.blocks, range(4)), ({Block}, range(4)), (model.blocks[:2], (0, 1)), (named, (0, 2))):
        with checkpoint_blocks(model, blocks=given) as checkpointed:
            assert checkpointed.blocks == tuple(f"blocks.{each}" for each in at)


def test_arguments_that_do_not_go_together() -> None:
    model = model_of()
    assert refused(model, every=0) == "every=0: it is 1 for each block, 2 for every second one, and so on."
    assert refused(model, every=5) == "every=5, and there are 4 blocks in Model; give less."
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


# What it refuses in training.


def test_an_input_that_a_block_changes_in_place() -> None:
    class InPlace(Block):
        def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
            return super().forward(x.mul_(scale), scale=scale)

    model = model_of(InPlace)
    plain = trained(model)
    checkpointed = checkpoint_blocks(model)
    with pytest.raises(UsageError) as error:
        model(WORDS_GIVEN)
    assert str(error.value) == (
        "Block blocks.0 changes its input in place, so it cannot be computed again from it. Set inplace=False where "
        "the block begins, or give blocks= without it."
    )
    checkpointed.undo()
    assert torch.equal(trained(model)[0], plain[0])


def test_weights_that_change_between_forward_and_backward() -> None:
    model = model_of()
    checkpoint_blocks(model)
    loss = loss_of(model, WORDS_GIVEN)
    with torch.no_grad():
        model.blocks[2].up.weight.mul_(2)
    with pytest.raises(UsageError) as error:
        loss.backward()
    assert str(error.value) == (
        "Weights of block blocks.2 were changed between its forward and the backward pass, such as by "
        "optimizer.step(): up.weight. The block would be computed again with the new ones, for another gradient. Step "
        "after the backward pass of every loss."
    )


def test_weights_that_are_lent_to_a_model() -> None:
    model = model_of()
    checkpoint_blocks(model)
    lent = {name: (2 * each).detach().requires_grad_() for name, each in model.named_parameters()}
    loss = torch.func.functional_call(model, lent, (WORDS_GIVEN,)).square().mean()
    with pytest.raises(UsageError) as error:
        loss.backward()
    assert str(error.value).startswith(
        "Block blocks.3 was called with weights that were not its own, as torch.func.functional_call has it: "
    )
    assert str(error.value).endswith(
        " It would be computed again with its own, for another gradient. Leave one of the two out."
    )


def test_an_activation_that_changes_in_place_what_is_kept() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.SiLU(inplace=True), nn.Linear(4, 4))

    model = nn.Sequential(make(), make(), make())
    checkpoint_blocks(model, keep="matmuls")
    with pytest.raises(UsageError) as error:
        model(torch.ones(2, 4))
    assert str(error.value) == CHANGED_IN_PLACE.format("0")


def test_scores_that_change_in_place_behind_a_matmul_of_four_dimensions() -> None:
    """PyTorch sees nothing of it: the product of such a matmul has a version counter of its own."""

    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = torch.matmul(x, x.transpose(2, 3))
            scores += 1
            return torch.matmul(scores.softmax(-1), x)

    model = nn.Sequential(Attention(), Attention())
    with checkpoint_blocks(model, blocks=Attention, keep="matmuls"), pytest.raises(UsageError) as error:
        model(torch.ones(2, 2, 3, 4, requires_grad=True))
    assert str(error.value) == CHANGED_IN_PLACE.format("0")


CHANGED_IN_PLACE = (
    'Block {} changes in place what keep="matmuls" has kept of it, such as by an activation with inplace=True right '
    "behind a convolution, or `scores += bias` behind a matmul. Write it without changing in place, or leave keep= out."
)

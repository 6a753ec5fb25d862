"""`checkpoint_blocks(verify=...)`: what it compares, what it finds, and that it puts everything back."""

from __future__ import annotations

import pytest
import torch
from tests.train.blocks import WIDTH, WORDS, WORDS_GIVEN, Block, FrozenEmbedding, loss_of, model_of
from torch import nn

from dryfit.errors import UsageError
from dryfit.train import checkpoint_blocks


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


def test_an_error_of_the_batch_itself_passes_through_and_undoes() -> None:
    model = model_of()
    with pytest.raises(IndexError):
        checkpoint_blocks(model, verify=WORDS_GIVEN + WORDS, loss_of=loss_of)
    assert not any("forward" in vars(block) for block in model.blocks)


def test_an_error_that_checkpointing_alone_makes_is_told_so() -> None:
    class Growing(Remembering):
        def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
            self.calls += 1
            return self.down(torch.relu(self.up(x))) if self.calls % 2 else super().forward(x, scale=scale)

    model = model_of(lambda: Growing(nn.Identity(), dropout=0.0))
    with pytest.raises(UsageError) as error:
        checkpoint_blocks(model, verify=WORDS_GIVEN, loss_of=loss_from_zero, allow_unused=True)
    assert str(error.value).startswith("The batch goes through without checkpointing, and with it fails: torch.utils.")
    assert str(error.value).endswith(
        " A block computed again does something else than at first. Give blocks= without that block."
    )
    assert not any("forward" in vars(block) for block in model.blocks)

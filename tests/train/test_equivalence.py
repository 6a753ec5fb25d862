"""`check_equivalence` tells rounding from mistakes, names the cause, and leaves the model as it was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from tests.train.language import batches_of, count_tokens, joined, language_model, loss_of, summed_loss_of
from torch import nn
from torch.nn.functional import cross_entropy, dropout, normalize

from dryfit.errors import UsageError
from dryfit.train.equivalence import Equivalence, check_equivalence
from dryfit.train.splitting import change_tensors, rows_of, split


def mlp(*between: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *between, nn.GELU(), nn.Linear(8, 5))


def rows(count: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 6, generator=generator) * torch.linspace(0.1, 3, count)[:, None]


def squares(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()


def kinds(found: Equivalence) -> list[str]:
    return [cause.kind for cause in found.causes]


@pytest.mark.parametrize("norm", [nn.Identity(), nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8).eval()])
@pytest.mark.parametrize("micro_batch", [3, 5])  # 5 leaves a piece of 2
def test_a_plain_model_is_equal_to_rounding(norm: nn.Module, micro_batch: int) -> None:
    found = check_equivalence(mlp(norm), squares, rows(), micro_batch)
    assert found.equal and found.causes == ()
    assert found.micro_batches == -(-12 // micro_batch)
    assert [way.way for way in found.ways] == ["graphs kept", "backward per micro-batch"]
    for way in found.ways:
        assert way.largest_relative <= 1e-6
        assert {each.name for each in way.parameters} >= {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert found.verdict.startswith(
        f"Equal to rounding: {found.micro_batches} micro-batches give the whole batch's gradient; largest relative "
    )


def test_tokens_weighted_are_equal_and_unweighted_are_not() -> None:
    batch = joined(batches_of(100, 10))
    assert check_equivalence(language_model(), loss_of, batch, 10, items=count_tokens).equal
    found = check_equivalence(language_model(), loss_of, batch, 10)
    assert not found.equal and kinds(found) == ["unequal counts"]
    assert found.causes[0].sentence == (
        "The whole batch weighs the micro-batches by 0.909, 0.091, and here they were weighed by 0.500, 0.500: the "
        "loss is a mean over something they have unequal numbers of, such as tokens that are not ignored. Give items=, "
        "which counts that."
    )
    assert found.ways[1].largest_relative > 0.5


def test_sums_and_means_taken_for_each_other_are_named() -> None:
    batch = joined(batches_of(100, 10))
    assert check_equivalence(language_model(), summed_loss_of, batch, 10, items=count_tokens, reduction="sum").equal
    assert check_equivalence(language_model(), summed_loss_of, batch, 10, reduction="sum").equal
    found = check_equivalence(language_model(), summed_loss_of, batch, 10, items=count_tokens)
    assert kinds(found) == ["sum"]
    assert found.causes[0].sentence == (
        "The loss is a sum, not a mean: the whole batch's gradient is the sum of the micro-batches'. Give "
        'reduction="sum", and items= to divide by.'
    )
    assert kinds(check_equivalence(mlp(), squares, rows(), 4, reduction="sum")) == ["mean"]


def test_a_division_that_depends_on_the_batch_is_named_with_its_ratio() -> None:
    found = check_equivalence(mlp(), lambda model, batch: squares(model, batch) / len(batch), rows(), 3)
    assert kinds(found) == ["division"]
    assert found.causes[0].sentence == (
        "The micro-batches' gradient is 4 times the whole batch's, for every parameter: loss_of divides, or leaves out "
        "to divide, by something that depends on the size of the batch."
    )


@pytest.mark.parametrize("running", [True, False])
def test_batch_norm_is_named(running: bool) -> None:
    model = mlp(nn.BatchNorm1d(8, track_running_stats=running))
    found = check_equivalence(model, squares, rows(), 3)
    assert not found.equal and kinds(found) == ["batch norm"]
    assert found.causes[0].sentence == (
        "BatchNorm in train mode at 1 takes its statistics from each micro-batch, and moves its running statistics 4 "
        "times. Use GroupNorm, or freeze the statistics (layer.eval()), or keep the batch whole and checkpoint "
        "activations instead."
    )


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return dropout(dropout(self.linear(inputs), 0.3, self.training), 0.3, self.training)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, dropout=0.4, batch_first=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.lstm(inputs[:, None].expand(-1, 3, -1))[0]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (mlp(nn.Dropout(0.2), nn.Dropout(0.2)), "Dropout at 1, 2 draws"),
        (Functional(), "Dropout inside the forward of Functional, off in eval mode, draws"),
        (Recurrent(), "Dropout at lstm draws"),
    ],
)
def test_dropout_is_found_and_is_no_mistake(model: nn.Module, says: str) -> None:
    found = check_equivalence(model.train(), squares, rows(), 3)
    assert found.equal and kinds(found) == ["dropout"]
    assert found.causes[0].sentence == (
        f"{says} other masks for pieces than for the whole batch. That is no mistake: with dropout off this part of "
        f"the difference is gone."
    )
    assert found.verdict.startswith("Equal but for dropout: 4 micro-batches give the whole batch's gradient; ")


def test_dropout_hides_no_other_cause() -> None:
    found = check_equivalence(mlp(nn.BatchNorm1d(8), nn.Dropout(0.2)), squares, rows(), 3)
    assert not found.equal and kinds(found) == ["dropout", "batch norm"]
    found = check_equivalence(mlp(nn.Dropout(0.2)), lambda m, batch: squares(m, batch) / len(batch), rows(), 3)
    assert not found.equal and kinds(found) == ["dropout", "division"]


def test_other_randomness_is_named() -> None:
    found = check_equivalence(
        mlp(), lambda model, batch: (model(batch) - torch.randn(len(batch), 5)).square().mean(), rows(), 3
    )
    assert not found.equal and kinds(found) == ["randomness"]


def info_nce(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    one, other = normalize(model(batch)), normalize(model(batch.flip(1)))
    return cross_entropy(one @ other.T / 0.1, torch.arange(len(batch)))


def test_a_contrastive_loss_is_named() -> None:
    found = check_equivalence(mlp(), info_nce, rows(), 3)
    assert not found.equal and kinds(found) == ["batch-dependent loss"]
    assert found.causes[0].sentence.startswith(
        "The whole batch's gradient is no weighted sum of the micro-batches': the loss (or a layer) compares the "
        "samples of a batch with each other, as contrastive losses do."
    )


def test_a_loss_that_depends_on_the_order_of_rows_does_not_pass_for_rounding() -> None:
    found = check_equivalence(mlp(), lambda m, batch: (m(batch).mean(1) * torch.arange(len(batch))).mean(), rows(), 3)
    assert not found.equal and kinds(found) == ["batch-dependent loss"]


def test_nondeterminism_is_named() -> None:
    calls = iter(range(1, 100))
    found = check_equivalence(mlp(), lambda model, batch: squares(model, batch) * next(calls), rows(), 3)
    assert kinds(found) == ["nondeterminism"]


class Moving(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.scale = self.scale * 1.5
        return inputs * self.scale


def test_buffers_that_move_are_named() -> None:
    found = check_equivalence(mlp(Moving()), squares, rows(), 3)
    assert kinds(found) == ["buffers"]


class NoiseInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * torch.rand(())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.rand(())


def test_random_numbers_in_backward_are_named() -> None:
    def noisy(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return NoiseInBackward.apply(squares(model, batch))

    assert kinds(check_equivalence(mlp(), noisy, rows(), 3)) == ["state"]


def test_bf16_is_measured_by_its_own_rounding() -> None:
    found = check_equivalence(
        mlp(nn.LayerNorm(8)).bfloat16(), lambda m, batch: squares(m, batch.bfloat16()), rows(64), 8
    )
    assert found.equal
    assert found.ways[1].largest_relative > 1e-4


def test_autocast_differences_are_rounding() -> None:
    def in_bf16(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return squares(model, batch)

    found = check_equivalence(mlp(), in_bf16, rows(64), 8)
    assert found.equal and found.ways[1].largest_relative > 1e-4

    batch = joined(batches_of(100, 10))

    def tokens_in_bf16(model: nn.Module, batch: Any) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, batch)

    assert check_equivalence(language_model(), tokens_in_bf16, batch, 10, items=count_tokens).equal
    assert kinds(check_equivalence(language_model(), tokens_in_bf16, batch, 10)) == ["unequal counts"]


def test_a_sum_that_nearly_cancels_is_rounding() -> None:
    generator = torch.Generator().manual_seed(2)
    big = torch.randn(40, 6, generator=generator) * 1e4
    batch = torch.cat([big, 1 - big])
    torch.manual_seed(0)
    found = check_equivalence(nn.Linear(6, 1), lambda model, batch: model(batch).mean(), batch, 7)
    assert found.equal and kinds(found) == ["rounding"]
    assert found.ways[1].largest_relative > 1e-4
    assert found.verdict.startswith("Equal but for rounding: 12 micro-batches give the whole batch's gradient; ")


def state_of(model: nn.Module) -> tuple[Any, ...]:
    return (
        {name: each.clone() for name, each in model.state_dict().items()},
        [each.grad for each in model.parameters()],
        [None if each.grad is None else each.grad.clone() for each in model.parameters()],
        [module.training for module in model.modules()],
        (torch.rand(3), random.random(), numpy.random.rand()),
    )


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back_bit_for_bit(fails: bool) -> None:
    model = mlp(nn.BatchNorm1d(8), nn.Dropout(0.2))
    model[3].eval()
    squares(model, rows()).backward()
    model[0].bias.grad = None

    def draws(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        random.random(), numpy.random.rand()
        if fails and len(batch) == 3:
            raise ZeroDivisionError
        return squares(model, batch)

    for module in (random, numpy.random, torch):
        (module.manual_seed if module is torch else module.seed)(3)
    before = state_of(model)
    for module in (random, numpy.random, torch):
        (module.manual_seed if module is torch else module.seed)(3)
    if fails:
        with pytest.raises(ZeroDivisionError):
            check_equivalence(model, draws, rows(), 3)
    else:
        assert kinds(check_equivalence(model, draws, rows(), 3)) == ["dropout", "batch norm"]
    after = state_of(model)
    assert before[0].keys() == after[0].keys()
    assert all(before[0][name].equal(after[0][name]) for name in before[0])
    assert all(one is other for one, other in zip(before[1], after[1], strict=True))
    assert all(one is other or one.equal(other) for one, other in zip(before[2], after[2], strict=True))
    assert before[3] == after[3]
    assert before[4][0].equal(after[4][0]) and before[4][1:] == after[4][1:]


def test_printed_it_is_the_verdict_the_causes_and_the_worst_parameters() -> None:
    lines = str(check_equivalence(mlp(nn.BatchNorm1d(8)), squares, rows(), 3)).splitlines()
    assert lines[0].startswith("Not equal: 4 micro-batches do not give the whole batch's gradient; largest relative")
    assert lines[1].startswith("BatchNorm in train mode at 1")
    assert lines[3] == "graphs kept: largest differences from the whole batch, relative and absolute"
    assert len(lines) == 2 + 2 * 7


@pytest.mark.parametrize(
    ("loss", "batch", "micro_batch", "rest", "says"),
    [
        (squares, rows(), 12, {}, "The batch has 12 rows, so micro-batches of 12 leave it in one piece"),
        (squares, rows(), 0, {}, "micro_batch=0: it is a number of samples, 1 or more."),
        (
            squares,
            {"x": rows(4), "y": rows(3)},
            2,
            {},
            "batch['y'] has 3 rows and batch['x'] has 4, so it is not",
        ),
        (squares, "text", 2, {}, "There is no tensor with a dimension in str, so it cannot be cut into rows."),
        (lambda m, b: m(b), rows(), 3, {}, "The loss of the whole batch has shape (12, 5), and a backward starts from"),
        (lambda m, b: squares(m, b).item(), rows(), 3, {}, "The loss of the whole batch is float, and has to be a"),
        (lambda m, b: squares(m, b) * 0, rows(), 3, {}, "The whole batch's gradient is zero for every parameter, so"),
        (lambda m, b: squares(m, b / 0), rows(), 3, {}, "The whole batch's gradient of 0.weight is not finite, so"),
        (squares, rows(), 3, {"items": lambda _: 0}, "Micro-batch 1 of 4 has no items, so the mean of its losses"),
        (squares, rows(), 3, {"split_batch": lambda batch, _: [batch]}, "split_batch gave 1 micro-batch, and there is"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    loss: Callable[..., Any], batch: Any, micro_batch: int, rest: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_equivalence(mlp(), loss, batch, micro_batch, **rest)
    assert str(refused.value).startswith(says)


class Pair(NamedTuple):
    inputs: torch.Tensor
    name: str


@dataclass
class Fields:
    inputs: torch.Tensor
    scale: torch.Tensor


def test_batches_of_any_make_are_cut() -> None:
    inputs = torch.arange(5)
    batch = {"pair": Pair(inputs, "a"), "fields": Fields(inputs, torch.tensor(2.0)), "list": [inputs, (inputs, 3)]}
    assert rows_of(batch) == 5
    pieces = split(batch, 2)
    assert [piece["pair"].inputs.tolist() for piece in pieces] == [[0, 1], [2, 3], [4]]
    assert [piece["list"][1][0].tolist() for piece in pieces] == [[0, 1], [2, 3], [4]]
    assert pieces[0]["pair"].name == "a" and pieces[2]["fields"].scale == 2.0 and pieces[1]["list"][1][1] == 3
    assert change_tensors(batch, lambda tensor: tensor.flip(0))["fields"].inputs.tolist() == [4, 3, 2, 1, 0]


def test_a_batch_can_be_cut_by_hand() -> None:
    images = [rows(2), rows(2), rows(2), rows(2)]
    found = check_equivalence(
        mlp(),
        lambda model, batch: torch.stack([squares(model, image) for image in batch]).mean(),
        images,
        2,
        split_batch=lambda batch, size: [batch[at : at + size] for at in range(0, len(batch), size)],
    )
    assert found.equal


@pytest.mark.stacks
def test_a_transformer_with_keys_that_have_no_gradient_is_equal() -> None:
    from transformers import BatchEncoding, OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    model = OPTForCausalLM(
        OPTConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=2,
            ffn_dim=64,
            num_attention_heads=4,
            dropout=0.0,
            max_position_embeddings=32,
            word_embed_proj_dim=32,
        )
    ).train()
    words = torch.randint(2, 50, (6, 12))
    batch = BatchEncoding({"input_ids": words, "labels": words.clone()})
    batch["labels"][0, 3:] = -100

    def count(batch: Any) -> torch.Tensor:
        return (batch["labels"][:, 1:] != -100).sum()

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return model(**batch).loss

    found = check_equivalence(model, loss, batch, 2, items=count)
    assert found.equal and found.causes == ()
    keys = [each for each in found.ways[1].parameters if each.name.endswith("k_proj.bias")]
    assert len(keys) == 2 and all(each.relative < 1e-4 for each in keys)
    assert kinds(check_equivalence(model, loss, batch, 2)) == ["unequal counts"]


def test_a_piece_without_items_is_named() -> None:
    """Its loss is 0/0; its gradient is zero or no number, and so fits to other causes."""
    batch = joined(batches_of(100, 0))
    found = check_equivalence(language_model(), loss_of, batch, 10)
    assert not found.equal and kinds(found) == ["not finite"]
    assert found.causes[0].sentence == (
        "The loss of micro-batch 2 of 2 is nan, and the whole batch's is a number. A mean over nothing is 0/0, such as "
        "over labels that are all ignored: give items=, which counts what means are over, here and to accumulate, "
        "which then passes over micro-batches that have none."
    )
    found = check_equivalence(mlp(), lambda m, batch: (batch[0, 0] * m(batch)).square().mean().sqrt(), rows(), 3)
    assert kinds(found) == ["batch-dependent loss"]


def test_a_gradient_that_is_no_number_is_named() -> None:
    def square_root(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return squares(model, batch) if len(batch) > 3 else (squares(model, batch) * 0).sqrt()

    found = check_equivalence(mlp(), square_root, rows(), 3)
    assert found.causes[0].sentence.startswith("The gradient of 0.weight is not finite for micro-batch 1 of 4, and")


REHEARSED = """
import torch
from torch import nn
from dryfit.train import check_equivalence

model = nn.Linear(1024, 1024).cuda()
found = check_equivalence(model, lambda model, batch: model(batch).square().mean(), torch.randn(64, 1024).cuda(), 16)
assert found.equal and not found.causes
print(found, found.micro_batches)
"""


def test_a_rehearsal_compares_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REHEARSED)
    words = ["run", "--gpu", "l4", "--json", "train.py"]
    done = subprocess.run([sys.executable, "-m", "dryfit", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Not compared: on a virtual card nothing is computed. 4" in done.stderr
    result = json.loads(done.stdout)
    assert result["peak_allocated_bytes"] >= 3 * 4 * 1024 * 1024  # the model, and the gradients of two of the passes

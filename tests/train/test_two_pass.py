"""`two_pass`: the gradient of the whole batch's loss, with the graph of one micro-batch alive."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tests.train import two_pass_ranks
from tests.train.processes import FSDP2_RUNS_ON_THE_HOST, run_on_ranks
from tests.train.two_pass_ranks import Encoder, encoder, gradients_of, info_nce, pairs_of
from torch import nn
from torch.nn.functional import cross_entropy, dropout, normalize

from dryfit.errors import UsageError
from dryfit.train import check_equivalence, checkpoint_blocks, two_pass

ROWS, ROUNDING = 12, 1e-6


def tower(*more: nn.Module, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 16), *more, nn.Linear(16, 4))


def rows(seed: int = 0) -> torch.Tensor:
    return torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(seed))


def contrast(ones: torch.Tensor, others: torch.Tensor, scale: float = 5.0) -> torch.Tensor:
    scores = scale * normalize(ones, dim=-1) @ normalize(others, dim=-1).T
    return cross_entropy(scores, torch.arange(len(scores)))


def neighbours(outputs: torch.Tensor) -> torch.Tensor:
    """Each row against the next one."""
    return contrast(outputs, outputs.roll(1, 0))


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor], rounding: float = ROUNDING) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert float((one - other).abs().max()) <= rounding * float(other.abs().max())


def one_graph(
    models: list[nn.Module], batches: list[torch.Tensor], loss_of: Callable[..., torch.Tensor], size: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The same micro-batches, all graphs kept: what two passes have to be equal to, dropout included."""
    outputs = [
        torch.cat([model(piece) for piece in batch.split(size)]) for model, batch in zip(models, batches, strict=True)
    ]
    loss = loss_of(*outputs)
    loss.backward()
    gradients = [gradient for model in models for gradient in gradients_of(model)]
    for model in models:
        model.zero_grad()
    return loss.detach(), gradients


@pytest.mark.parametrize("size", [1, 5, 12, 40])
def test_equals_the_graph_of_the_whole_batch(size: int) -> None:
    model = tower().eval()  # without dropout, which the whole batch at once draws otherwise
    neighbours(model(rows())).backward()
    expected = gradients_of(model)
    model.zero_grad()
    loss = two_pass(model, rows(), neighbours, micro_batch=size)
    torch.testing.assert_close(loss, neighbours(model(rows())).detach())
    assert not loss.requires_grad
    assert_equal(gradients_of(model), expected)


def test_piece_by_piece_is_wrong_and_says_what_to_use() -> None:
    found = check_equivalence(tower().eval(), lambda model, batch: neighbours(model(batch)), rows(), 4)
    assert [cause.kind for cause in found.causes] == ["batch-dependent loss"]
    assert "two-pass accumulation" in found.causes[0].sentence
    assert found.ways[1].largest_relative > 0.1


@pytest.mark.parametrize("size", [3, 5])
def test_dropout_draws_the_same_masks_in_both_passes(size: int) -> None:
    model = tower()
    torch.manual_seed(7)
    loss, expected = one_graph([model], [rows()], neighbours, size)
    after = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(two_pass(model, rows(), neighbours, micro_batch=size), loss)
    assert_equal(gradients_of(model), expected)
    model.zero_grad()
    torch.manual_seed(7)
    two_pass(model, rows(), neighbours, micro_batch=size)
    assert torch.equal(torch.rand(3), after)  # and what comes next is drawn as if there had been one pass


def test_without_the_replay_gradients_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from dryfit.train.random_states import RandomStates

    model = tower()
    torch.manual_seed(7)
    _, expected = one_graph([model], [rows()], neighbours, 3)
    monkeypatch.setattr(RandomStates, "write", lambda self: None)
    torch.manual_seed(7)
    two_pass(model, rows(), neighbours, micro_batch=3)
    found = gradients_of(model)
    assert float((found[0] - expected[0]).norm() / expected[0].norm()) > 0.3


def test_random_numbers_of_python_and_numpy_are_replayed() -> None:
    numpy = pytest.importorskip("numpy")

    def encode(model: nn.Module, piece: torch.Tensor) -> torch.Tensor:
        return model(piece * random.random() + float(numpy.random.rand()))

    def seed() -> None:
        random.seed(3)
        numpy.random.seed(3)

    model = tower().eval()
    seed()
    neighbours(torch.cat([encode(model, piece) for piece in rows().split(4)])).backward()
    expected = gradients_of(model)
    model.zero_grad()
    seed()
    two_pass(model, rows(), neighbours, micro_batch=4, encode=encode)
    assert_equal(gradients_of(model), expected)


def test_several_models_each_with_its_own_batch_and_size() -> None:
    image, text = tower(), tower(nn.Dropout(0.2), seed=1)
    torch.manual_seed(7)
    outputs = [
        torch.cat([image(each) for each in rows().split(5)]),
        torch.cat([text(each) for each in rows(1).split(2)]),
    ]
    contrast(*outputs).backward()
    expected = gradients_of(image) + gradients_of(text)
    for model in (image, text):
        model.zero_grad()
    torch.manual_seed(7)
    two_pass([image, text], [rows(), rows(1)], contrast, micro_batch=[5, 2])
    assert_equal(gradients_of(image) + gradients_of(text), expected)


def test_one_model_for_both_and_a_frozen_one() -> None:
    shared = tower()
    torch.manual_seed(7)
    _, expected = one_graph([shared, shared], [rows(), rows(1)], contrast, 4)
    torch.manual_seed(7)
    two_pass([shared, shared], [rows(), rows(1)], contrast, micro_batch=4)
    assert_equal(gradients_of(shared), expected[: len(expected) // 2])

    frozen, trained = tower(seed=1).eval().requires_grad_(False), tower().eval()
    contrast(frozen(rows()), trained(rows(1))).backward()
    expected = gradients_of(trained)
    trained.zero_grad()
    calls: list[int] = []
    handle = frozen.register_forward_hook(lambda *_: calls.append(1))
    two_pass([frozen, trained], [rows(), rows(1)], contrast, micro_batch=4)
    handle.remove()
    assert_equal(gradients_of(trained), expected)
    assert len(calls) == 4  # the second pass ends where nothing is found to train


def test_what_encode_adds_to_a_frozen_model_is_trained() -> None:
    frozen = tower().eval().requires_grad_(False)
    prompt = nn.Parameter(torch.zeros(8))
    neighbours(frozen(rows() + prompt)).backward()
    expected, prompt.grad = prompt.grad, None
    two_pass(frozen, rows(), neighbours, micro_batch=5, encode=lambda model, piece: model(piece + prompt))
    assert expected is not None and prompt.grad is not None
    assert_equal([prompt.grad], [expected])


def test_a_loss_of_a_number_alone() -> None:
    model = encoder()
    two_pass(model, pairs_of(0), lambda outputs: outputs[2].square(), micro_batch=4)
    torch.testing.assert_close(model.scale.grad, 2 * (2 * model.scale.detach()).exp())


class Embedded(NamedTuple):
    rows: torch.Tensor
    more: dict[str, Any]


def test_outputs_of_any_structure_and_a_temperature() -> None:
    model = encoder()
    info_nce(model(**pairs_of(0))).backward()
    expected = gradients_of(model)
    model.zero_grad()
    two_pass(model, pairs_of(0), info_nce, micro_batch=4)  # a tuple of two tensors and one number
    assert_equal(gradients_of(model), expected)
    model.zero_grad()

    def encode(model: Encoder, piece: dict[str, torch.Tensor]) -> Embedded:
        image, text, scale = model(**piece)
        return Embedded(
            image, {"text": [text], "scale": scale, "ids": torch.arange(len(image)), "name": "a", "no": None}
        )

    def loss_of(given: Embedded) -> torch.Tensor:
        assert given.more["name"] == "a" and given.more["no"] is None
        assert given.more["ids"].tolist() == [0, 1, 2, 3, 0, 1]
        return info_nce((given.rows, given.more["text"][0], given.more["scale"]))

    two_pass(model, pairs_of(0), loss_of, micro_batch=4, encode=encode)
    assert_equal(gradients_of(model), expected)


def test_parameters_of_the_loss_and_gradients_that_are_there() -> None:
    model = tower().eval()
    scale = nn.Parameter(torch.tensor(2.0))
    two_pass(model, rows(), neighbours, micro_batch=4)
    first = [each.clone() for each in gradients_of(model)]

    def scaled(outputs: torch.Tensor) -> torch.Tensor:
        return scale * neighbours(outputs)

    loss = two_pass(model, rows(), scaled, micro_batch=4)
    assert scale.grad is not None
    torch.testing.assert_close(2 * scale.grad, loss)
    assert_equal(gradients_of(model), [3 * each for each in first])


def test_one_graph_is_alive_at_a_time() -> None:
    alive: list[weakref.ref[Any]] = []
    most = 0

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            nonlocal most
            alive.append(weakref.ref(ctx))
            most = max(most, sum(each() is not None for each in alive))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    model = tower()

    def encode(model: nn.Module, piece: torch.Tensor) -> torch.Tensor:
        return Watched.apply(model(piece))

    gc.disable()
    try:
        two_pass(model, rows(), neighbours, micro_batch=2, encode=encode)
    finally:
        gc.enable()
    assert len(alive) == 12 and most == 1


def test_buffers_move_once_and_checkpointed_blocks_are_as_plain() -> None:
    def model_of() -> nn.Module:
        torch.manual_seed(0)
        normed = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))
        return tower(normed)

    plain, other, checkpointed = model_of(), model_of(), model_of()
    torch.manual_seed(7)
    _, expected = one_graph([plain], [rows()], neighbours, 4)
    checkpoint_blocks(checkpointed, blocks=list(checkpointed))
    for model in (other, checkpointed):
        torch.manual_seed(7)
        two_pass(model, rows(), neighbours, micro_batch=4)
        assert_equal(gradients_of(model), expected)
        assert all(map(torch.equal, model.buffers(), plain.buffers()))


@pytest.mark.parametrize("outside", [True, False])
def test_under_autocast(outside: bool) -> None:
    """Casts of weights made without a graph would lose the weights' gradients in the second pass."""
    model = tower().eval()

    def low(enabled: bool) -> torch.autocast:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)

    with low(True):
        loss = neighbours(torch.cat([model(piece) for piece in rows().split(4)]).float())
    loss.backward()
    expected = gradients_of(model)
    model.zero_grad()

    def encode(model: nn.Module, piece: torch.Tensor) -> torch.Tensor:
        with low(True):
            return model(piece)

    def loss_of(outputs: torch.Tensor) -> torch.Tensor:
        with low(True):
            assert outputs.dtype == torch.bfloat16
            return neighbours(outputs.float())

    with low(outside):
        found = two_pass(model, rows(), loss_of, micro_batch=4, encode=encode)
    torch.testing.assert_close(found, loss.detach())
    assert_equal(gradients_of(model), expected, rounding=2e-2)


def test_a_scaler_scales_the_gradients_and_not_the_loss() -> None:
    model = tower().eval()
    loss = two_pass(model, rows(), neighbours, micro_batch=4)
    plain = gradients_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    assert torch.equal(two_pass(model, rows(), neighbours, micro_batch=4, scaler=scaler), loss)
    assert_equal(gradients_of(model), [1024 * each for each in plain])
    scaler.unscale_(optimizer)
    assert_equal(gradients_of(model), plain)
    scaler.step(optimizer)
    scaler.update()


def test_negatives_of_both_ranks_equal_one_batch(tmp_path: Path) -> None:
    run_on_ranks(2, two_pass_ranks.start, 2, str(tmp_path))
    model = encoder()
    loss = info_nce(model(*(torch.cat([pairs_of(rank)[kind] for rank in range(2)]) for kind in ("image", "text"))))
    loss.backward()
    expected = gradients_of(model)
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}")
        for wrapped in ("DDP", "FSDP2") if FSDP2_RUNS_ON_THE_HOST else ("DDP",):
            torch.testing.assert_close(found[f"{wrapped}, loss"], loss.detach())
            assert_equal(found[wrapped], expected)
        assert found["DDP, holds"] == 1 + rank  # all pieces but the last of 2 and 3


def test_the_example_learns() -> None:
    example = Path(__file__).parents[2] / "examples" / "contrastive.py"
    command = [sys.executable, example, "--steps", "21", "--batch", "64", "--micro-batch", "32"]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stderr
    losses = [float(line.split()[-1]) for line in ran.stdout.splitlines()]
    assert len(losses) == 3 and losses[-1] < 0.8 * losses[0]


# What it refuses.


def refused(model: Any, loss_of: Callable[..., Any] = neighbours, batch: Any = None, **settings: Any) -> str:
    with pytest.raises(UsageError) as error:
        two_pass(model, rows() if batch is None else batch, loss_of, **{"micro_batch": 5, **settings})
    return str(error.value)


def test_batch_norm_is_refused_unless_frozen() -> None:
    model = tower(nn.BatchNorm1d(16))
    assert refused(model) == (
        "Sequential has BatchNorm in train mode at 4, which normalises each micro-batch by that alone, so gradients "
        "would not be the whole batch's. Use GroupNorm, or freeze the statistics (layer.eval()), or keep the batch "
        "whole and checkpoint activations instead."
    )
    model[4].eval()
    two_pass(model, rows(), neighbours, micro_batch=5)


def test_arguments_that_do_not_go_together() -> None:
    assert refused(tower(), micro_batch=0) == "micro_batch=0: it is a number of samples, 1 or more."
    both = [tower(), tower()]
    assert refused(both, contrast, [rows()]) == "2 models were given, and batch= has 1; give one for each."
    assert refused(both, contrast, [rows(), rows()], micro_batch=[1, 2, 3]) == (
        "2 models were given, and micro_batch= has 3; give one for each."
    )


def test_losses_that_give_a_model_no_gradient() -> None:
    assert refused(tower(), lambda outputs: outputs.detach().mean()).startswith(
        "The loss of the whole batch has no graph"
    )
    both = [tower(), tower()]
    assert refused(both, lambda one, other: contrast(one, other.detach()), [rows(), rows()]) == (
        "The loss does not depend on what Sequential (model 2 of 2) gave, so that would get no gradient. loss_of takes "
        "the outputs of each model, and has to use them without detach()."
    )
    assert refused(tower(), encode=lambda model, piece: model(piece).detach()) == (
        "What Sequential gave for micro-batch 1 of 3 has no graph, though it has parameters to train: encode detaches "
        "it, or computes it under no_grad."
    )


def test_another_number_of_outputs_in_the_second_pass() -> None:
    def encode(model: nn.Module, piece: torch.Tensor) -> Any:
        return [model(piece)] * (2 if torch.is_grad_enabled() else 1)

    assert refused(tower(), lambda outputs: neighbours(outputs[0]), encode=encode) == (
        "Sequential gave 2 tensors for micro-batch 1 of 3 in the second pass, and 1 in the first. encode has to give "
        "the same for the same micro-batch and random numbers."
    )


def test_what_is_no_model() -> None:
    assert refused(tower().forward) == (
        "method is no torch.nn.Module. The call is two_pass(model, batch, loss_of, micro_batch=...), where model is a "
        "module, or several in a list."
    )


def test_outputs_that_cannot_be_put_together() -> None:
    assert refused(tower(), encode=lambda model, piece: None) == (
        "Sequential gave 0 tensors for a micro-batch. It has to give one or more, as many for each: a tensor, or a "
        "tuple, list, dict or dataclass of tensors."
    )
    assert refused(tower(), encode=lambda model, piece: model(piece)[:, : len(piece) - 1]) == (
        "Sequential gave tensors of shapes (5, 4), (5, 4), (2, 1) for micro-batches, which cannot be joined along "
        "their first dimension. Make the others equal, by padding for example."
    )
    assert refused(tower(), encode=lambda model, piece: (model(piece), torch.tensor(len(piece)))) == (
        "Sequential gave a number that differs between micro-batches: 5, 5, 2. Numbers have to be the same for each, "
        "as a temperature is; give what belongs to samples, such as losses, as a tensor with a row for each."
    )
    times: list[int] = []

    def shrinking(model: nn.Module, piece: torch.Tensor) -> torch.Tensor:
        times.append(1)
        return dropout(model(piece), 0.1)[: 5 if len(times) <= 3 else 1]

    assert refused(tower(), encode=shrinking) == (
        "Sequential gave shape (1, 4) for micro-batch 1 of 3 in the second pass, and (5, 4) in the first. encode has "
        "to give the same for the same micro-batch and random numbers."
    )

"""Logits that are not computed: a loss in chunks is the plain one, any other use computes them; on real numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dryfit.measures.lazy_logits import Heads, Logits, lazy_linear
from dryfit.measures.moments import CannotSwitchOn

CLASSES, WIDTH = 32, 8
_linear = F.linear


@pytest.fixture
def heads(monkeypatch) -> Heads:
    heads = Heads(chunks=4, device="cpu")
    monkeypatch.setattr(F, "linear", lazy_linear(heads))
    return heads


def hidden_and_target() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    target = torch.randint(CLASSES, (3, 7))
    target[0, :3] = -100
    return torch.randn(3, 7, WIDTH, requires_grad=True), target


def plain(loss_of, bias: bool) -> list[torch.Tensor]:
    """The loss and the gradients without anything switched on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "linear", _linear)
        return computed(loss_of, bias)


def computed(loss_of, bias: bool) -> list[torch.Tensor]:
    hidden, target = hidden_and_target()
    head = nn.Linear(WIDTH, CLASSES, bias=bias)
    loss = loss_of(head(hidden), target)
    loss.backward()
    return [loss.detach(), hidden.grad, *(each.grad for each in head.parameters())]


def of_transformers(logits, labels):
    logits = logits.float()
    labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(logits.view(-1, CLASSES), labels.view(-1), ignore_index=-100, reduction="sum") / 11


LOSSES = {
    "view": lambda x, y: F.cross_entropy(x.view(-1, x.size(-1)), y.view(-1)),
    "flatten": lambda x, y: nn.CrossEntropyLoss()(x.flatten(0, 1), y.flatten()),
    "shifted": lambda x, y: F.cross_entropy(x[..., :-1, :].contiguous().view(-1, CLASSES), y[..., 1:].reshape(-1)),
    "shifted without classes": lambda x, y: F.cross_entropy(x[:, 1:].reshape(-1, x.shape[2]), y[:, 1:].flatten()),
    "one sequence": lambda x, y: F.cross_entropy(x[1], y[1]),
    "unsqueezed": lambda x, y: F.cross_entropy(x[None].squeeze(0).unsqueeze(1).flatten(0, -2), y.flatten()),
    "transposed": lambda x, y: F.cross_entropy(x.transpose(1, 2), y),
    "permuted": lambda x, y: F.cross_entropy(torch.permute(x, (0, 2, 1)), y),
    "smoothed": lambda x, y: F.cross_entropy(x.view(-1, CLASSES), y.view(-1), label_smoothing=0.1),
    "summed": lambda x, y: F.cross_entropy(x.view(-1, CLASSES), y.view(-1), reduction="sum"),
    "ignored": lambda x, y: F.cross_entropy(x.view(-1, CLASSES), y.clamp(min=0).view(-1), ignore_index=0),
    "transformers": of_transformers,
    "by name": lambda x, y: F.cross_entropy(target=y.view(-1), input=x.to(torch.float32).view(-1, CLASSES)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss_of", LOSSES.values(), ids=LOSSES)
def test_loss_and_gradients_are_those_of_the_plain_loss(heads, loss_of, bias: bool) -> None:
    expected = plain(loss_of, bias)
    acted = []
    heads.acts = lambda: acted.append(True)
    found = computed(loss_of, bias)
    assert acted
    torch.testing.assert_close(found, expected)


OTHER_USES = {
    "softmax": lambda x, y: F.nll_loss(x.log_softmax(-1).flatten(0, 1), y.flatten()),
    "scaled": lambda x, y: F.cross_entropy((x / 2).flatten(0, 1), y.flatten()),
    "in place": lambda x, y: F.cross_entropy(x.div_(2).flatten(0, 1), y.flatten()),
    "fewer classes": lambda x, y: F.cross_entropy(x[..., :30].flatten(0, 1), y.clamp(max=29).flatten()),
    "other rows": lambda x, y: x.view(-1, CLASSES // 2).square().mean() + y.sum(),
    "joined": lambda x, y: torch.cat([x, x]).mean() + y.sum(),
    "accuracy first": lambda x, y: (x.argmax(-1) == y).sum() + F.cross_entropy(x.flatten(0, 1), y.flatten()),
}


@pytest.mark.parametrize("loss_of", OTHER_USES.values(), ids=OTHER_USES)
def test_any_other_use_computes_them_and_is_remembered(heads, loss_of) -> None:
    heads.acts = pytest.fail
    expected = plain(loss_of, True)
    torch.testing.assert_close(computed(loss_of, True), expected)
    assert heads.others == {(CLASSES, WIDTH)}
    assert type(nn.Linear(WIDTH, CLASSES)(torch.ones(2, WIDTH))) is torch.Tensor


def test_what_is_asked_of_them_needs_no_numbers(heads) -> None:
    hidden, _ = hidden_and_target()
    logits = nn.Linear(WIDTH, CLASSES)(hidden)
    assert isinstance(logits, Logits)
    assert logits.shape == logits.size() == (3, 7, CLASSES) and logits.size(-1) == CLASSES and len(logits) == 3
    assert logits.dtype == torch.float32 and logits.bfloat16().dtype == torch.bfloat16
    assert logits.requires_grad and logits.is_contiguous() and logits.dim() == logits.ndim == 3
    assert logits.device.type == "cpu" and logits.numel() == 3 * 7 * CLASSES
    assert not heads.others and logits.computed is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.Linear(WIDTH, CLASSES)(hidden).dtype == torch.bfloat16


def test_is_no_head_what_gives_less_than_it_takes(heads) -> None:
    assert type(nn.Linear(CLASSES, WIDTH)(torch.ones(2, CLASSES))) is torch.Tensor


def test_an_evaluation_may_use_them_otherwise(heads) -> None:
    head = nn.Linear(WIDTH, CLASSES)
    hidden, target = hidden_and_target()
    F.cross_entropy(head(hidden).flatten(0, 1), target.flatten()).backward()
    with torch.no_grad():
        logits = head(hidden)
        torch.testing.assert_close(logits.argmax(-1), _linear(hidden, head.weight, head.bias).argmax(-1))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    assert not loss.requires_grad and heads.found == {(CLASSES, WIDTH)} and not heads.others


def test_a_training_that_also_uses_them_otherwise_is_refused(heads) -> None:
    hidden, target = hidden_and_target()
    logits = nn.Linear(WIDTH, CLASSES)(hidden)
    F.cross_entropy(logits.flatten(0, 1), target.flatten())
    with pytest.raises(CannotSwitchOn) as refused:
        logits.argmax(-1)
    assert str(refused.value) == (
        "In training the program uses the logits for more than their cross-entropy: argmax needs all of them at once. "
        "Take it out of the training step, or have it use the logits of a part of the batch."
    )


@pytest.mark.parametrize(
    ("settings", "hindrance"),
    [
        ({"weight": torch.ones(CLASSES)}, "has a weight for each class"),
        ({"reduction": "none"}, "has reduction='none', size_average=None and reduce=None"),
    ],
)
def test_a_loss_that_chunks_cannot_have_is_refused(heads, settings, hindrance: str) -> None:
    hidden, target = hidden_and_target()
    with pytest.raises(CannotSwitchOn) as refused:
        F.cross_entropy(nn.Linear(WIDTH, CLASSES)(hidden).flatten(0, 1), target.flatten(), **settings)
    assert str(refused.value) == (
        f"The program's cross-entropy {hindrance}. Chunks are computed for one class per position, with "
        'reduction="mean" or "sum"; write the sum over chunks by hand for anything else.'
    )


def test_a_loss_of_probabilities_is_refused(heads) -> None:
    hidden, _ = hidden_and_target()
    with pytest.raises(CannotSwitchOn, match="has probabilities of classes as its target"):
        F.cross_entropy(nn.Linear(WIDTH, CLASSES)(hidden).flatten(0, 1), torch.ones(21, CLASSES))

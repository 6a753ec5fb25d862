"""`evaluation`: no graph within, and every module's own mode afterwards."""

from __future__ import annotations

import pytest
import torch
from tests.train.on_card import found_on_card
from torch import nn

from dryfit.train.evaluating import evaluation


def model_with_a_frozen_backbone() -> nn.Sequential:
    model = nn.Sequential(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout()), nn.Linear(4, 2), nn.Dropout())
    model[0].eval()
    model[0][1].train()
    return model


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_each_module_gets_the_mode_back_that_it_had() -> None:
    model = model_with_a_frozen_backbone()
    before = modes(model)
    assert before == [True, False, False, True, True, True]
    with evaluation(model):
        assert not any(modes(model))
        assert torch.is_inference_mode_enabled()
        with pytest.raises(ValueError), evaluation(model, inference=False):
            raise ValueError
        assert not any(modes(model))
        assert torch.is_inference_mode_enabled()
    assert modes(model) == before
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_an_exception_restores_too_and_several_models_are_taken() -> None:
    models = model_with_a_frozen_backbone(), nn.Dropout().eval(), nn.Dropout()
    before = [modes(model) for model in models]
    with pytest.raises(KeyError), evaluation(*models):
        assert not any(any(modes(model)) for model in models)
        raise KeyError
    assert [modes(model) for model in models] == before


class Refusing(nn.Module):
    def train(self, mode: bool = True) -> Refusing:
        if not mode:
            raise RuntimeError("no evaluation")
        return self


def test_a_model_that_refuses_leaves_the_others_as_they_were() -> None:
    model = model_with_a_frozen_backbone()
    before = modes(model)
    with pytest.raises(RuntimeError, match="no evaluation"), evaluation(model, Refusing()):
        pass
    assert modes(model) == before


def test_training_goes_on_in_the_same_autocast_region() -> None:
    layer = nn.Linear(2, 2)
    for inference in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with evaluation(layer, inference=inference):
                layer(torch.ones(1, 2))
            layer(torch.ones(1, 2)).float().sum().backward()  # autocast caches its copies of weights
        assert layer.weight.grad is not None
        layer.zero_grad()


def test_no_grad_on_request_gives_tensors_that_can_be_trained_on() -> None:
    layer = nn.Linear(2, 2)
    with evaluation(layer, inference=False):
        output = layer(torch.ones(1, 2))
    assert not output.requires_grad and not output.is_inference()
    layer(output).sum().backward()
    with evaluation(layer):
        output = layer(torch.ones(1, 2))
    assert output.is_inference()


class Merging(nn.Linear):
    """As LoRA layers do it: in evaluation mode the weight has something added to it, which train() takes out."""

    merged = False

    def train(self, mode: bool = True) -> Merging:
        if mode == self.merged:
            with torch.no_grad():
                self.weight += -1.0 if mode else 1.0
            self.merged = not mode
        return super().train(mode)


def test_what_train_does_to_weights_is_undone() -> None:
    model = nn.Sequential(Merging(2, 2), Merging(2, 2))
    nn.init.constant_(model[0].weight, 0.5)
    model[1].eval()
    nn.init.constant_(model[1].weight, 0.5)
    weights = [layer.weight.clone() for layer in model]
    with evaluation(model):
        assert model[0].merged and model[1].merged
    assert [layer.merged for layer in model] == [False, True]
    assert all(torch.equal(layer.weight, weight) for layer, weight in zip(model, weights, strict=True))


class Rotary(nn.Module):
    """Makes a table for itself when it first sees a length, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", None, persistent=False)
        self.scale: torch.Tensor | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table, self.scale = torch.arange(4.0), torch.ones(4)
        return inputs * self.table * self.scale


def test_tensors_that_a_module_made_inside_can_be_trained_with() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Rotary())
    with evaluation(model):
        model(torch.ones(1, 4))
    model(torch.ones(1, 4)).sum().backward()
    assert torch.equal(model[1].table, torch.arange(4.0))
    assert list(model.state_dict()) == ["0.weight", "0.bias"]


def test_it_keeps_no_activations_on_a_card() -> None:
    found = found_on_card()["evaluations"]
    assert found["without"] == found["output"]
    assert found["with a graph"] == 4 * found["output"]  # each ReLU's output is kept for its backward


def test_it_decorates_a_function() -> None:
    model = nn.Dropout()

    @evaluation(model)
    def evaluate() -> bool:
        return model.training

    assert not evaluate() and not evaluate() and model.training

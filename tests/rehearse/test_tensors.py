"""Looking through what a program hands around."""

from __future__ import annotations

import pytest
import torch

from dryfit.rehearse.inside.tensors import tensors_in


def test_a_tensor_that_is_a_key_is_not_made_a_text_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text would be read from the card, and take memory there."""

    def text(_: torch.Tensor) -> str:
        raise AssertionError("the text of a tensor was asked for")

    monkeypatch.setattr(torch.Tensor, "__repr__", text)
    of_parameters = {torch.zeros(1): torch.zeros(2), "scale": torch.zeros(3), 4: [torch.zeros(5)]}
    assert [(name, len(found)) for name, found in tensors_in(of_parameters)] == [
        ("Tensor", 2),
        ("scale", 3),
        ("4.0", 5),
    ]

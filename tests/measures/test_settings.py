"""Settings of trainers are changed whether they are given by place or by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dryfit.measures import settings
from dryfit.measures.moments import Moments


class Accelerator:
    def __init__(self, split=True, mixed_precision=None, **rest):
        self.given = {"split": split, "mixed_precision": mixed_precision, **rest}


@pytest.fixture
def kind(monkeypatch):
    monkeypatch.setattr(Accelerator, "__init__", Accelerator.__init__)
    module = SimpleNamespace(Accelerator=Accelerator)
    moments = Moments(name="m", after_import=lambda name, do: do(module))
    settings.of_accelerator(moments, lambda given: given.update(mixed_precision=f"not {given.get('mixed_precision')}"))
    return Accelerator


def test_change_as_they_are_given(kind) -> None:
    assert kind().given == {"split": True, "mixed_precision": "not None"}
    assert kind(False, "fp16", more=1).given == {"split": False, "mixed_precision": "not fp16", "more": 1}
    assert kind(mixed_precision="fp16").given == {"split": True, "mixed_precision": "not fp16"}


def test_wrong_ones_are_told_by_the_class_itself(kind) -> None:
    with pytest.raises(TypeError, match=r"got multiple values for argument 'split'"):
        kind(True, split=False)

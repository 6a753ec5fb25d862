"""Models that are built: by name, by factory; and what cannot be built is a sentence. All in one child with torch."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dryfit.errors import UsageError
from dryfit.estimate import estimate

NETS = """
    print("the module says something")
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 8)
            self.attention = nn.ModuleDict({"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8)})
            self.norm = nn.BatchNorm1d(8)
            self.head = nn.Linear(8, 50, bias=False)
            self.head.weight = self.embedding.weight

    class Builders:
        @staticmethod
        def net():
            return Net()

    def frozen_half():
        net = Net()
        net.attention.requires_grad_(False)
        return net

    def in_half(): return Net().half()
    def needs(size): return nn.Linear(size, size)
    def on_card(): return torch.zeros(3).numpy()
    def lazy(): return nn.Sequential(nn.LazyLinear(4))
    def number(): return 5
    def empty(): return nn.ReLU()
    ready = Net()
"""

NAMES = [
    "nets:Net", "nets:Builders.net", "nets:frozen_half", "nets:in_half", "nets:ready", "nets:needs", "nets:on_card",
    "nets:lazy", "nets:number", "nets:empty", "nets:nedes", "nest:Net", "resnet18", "torchvision.models:resnet18",
    "resnet5O", "vit_tiny_patch16_224",
]  # fmt: skip

PROGRAM = f"""
import dataclasses, json
from dryfit.errors import UsageError
from dryfit.estimate.find import find_model

for name in {NAMES!r}:
    try:
        found = dataclasses.asdict(find_model(name))
    except UsageError as error:
        found = str(error)
    print("FOUND", name, json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The model that each name stands for, or what was said instead."""
    folder = tmp_path_factory.mktemp("nets")
    (folder / "nets.py").write_text(textwrap.dedent(NETS))
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=folder)
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert {line[0] for line in lines} == {"FOUND"}, "what a module prints is kept off stdout"
    assert "the module says something" in done.stderr
    return {name: json.loads(value) for _, name, value in lines}


def roles(model: dict[str, Any]) -> dict[str, tuple[str, bool, bool]]:
    return {p["name"]: (p["role"], p["attention"], p["autocasts"]) for p in model["parameters"]}


def test_a_factory(found: dict[str, Any]) -> None:
    net = found["nets:Net"]
    assert net["found"] == "nets:Net, called without arguments, built on the meta device"
    assert roles(net) == {
        "embedding.weight": ("embedding", False, True),  # shared with the head, where autocast casts it
        "attention.qkv.weight": ("linear", True, True),
        "attention.qkv.bias": ("other", False, True),
        "attention.out.weight": ("linear", True, True),
        "attention.out.bias": ("other", False, True),
        "norm.weight": ("other", False, False),
        "norm.bias": ("other", False, False),
    }
    assert [tuple(buffer["shape"]) for buffer in net["buffers"]] == [(8,), (8,), ()]
    assert found["nets:Builders.net"]["parameters"] == net["parameters"]


def test_a_model_that_is_there_already_is_taken_as_it_is(found: dict[str, Any]) -> None:
    assert found["nets:ready"]["parameters"] == found["nets:Net"]["parameters"]


def test_frozen_and_16_bit_parameters_are_seen(found: dict[str, Any]) -> None:
    trained = {p["name"]: p["trained"] for p in found["nets:frozen_half"]["parameters"]}
    assert [name for name, yes in trained.items() if not yes] == [
        "attention.qkv.weight", "attention.qkv.bias", "attention.out.weight", "attention.out.bias",
    ]  # fmt: skip
    assert {p["itemsize"] for p in found["nets:in_half"]["parameters"]} == {2}
    assert [b["itemsize"] for b in found["nets:in_half"]["buffers"]] == [2, 2, 8]
    assert [b["floating"] for b in found["nets:in_half"]["buffers"]] == [True, True, False]


def test_names_of_torchvision_and_timm(found: dict[str, Any]) -> None:
    def count(name: str) -> int:
        total = 0
        for parameter in found[name]["parameters"]:
            elements = 1
            for size in parameter["shape"]:
                elements *= size
            total += elements
        return total

    assert count("resnet18") == count("torchvision.models:resnet18") == 11_689_512
    assert found["resnet18"]["found"] == "resnet18 of torchvision, built on the meta device"
    assert found["vit_tiny_patch16_224"]["found"] == "vit_tiny_patch16_224 of timm, built on the meta device"
    assert count("vit_tiny_patch16_224") == 5_717_416
    assert roles(found["vit_tiny_patch16_224"])["blocks.0.attn.qkv.weight"] == ("linear", True, True)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nets:needs", "nets:needs could not be built: TypeError: needs() missing 1 required positional "
         "argument: 'size'. It has to build the model without arguments"),
        ("nets:on_card", "nets:on_card could not be built: "),
        ("nets:lazy", "nets:lazy has a lazy layer (0.weight), whose shape only a first batch decides."),
        ("nets:number", "nets:number gave int, and a torch.nn.Module was expected."),
        ("nets:empty", "nets:empty gave a ReLU without parameters; there is nothing to estimate."),
        ("nets:nedes", "nets has no nedes. The nearest name is needs."),
        ("nest:Net", "There is no module nest, which nest:Net names, neither in the current folder nor installed."),
        ("resnet5O", "No model is called 'resnet5O' in torchvision or timm. The nearest names are resnet50"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_a_sentence(found: dict[str, Any], name: str, sentence: str) -> None:
    assert found[name].startswith(sentence)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("", "No model is named; write a count of parameters such as 7B"),
        ("a:b:c", "'a:b:c' is not of the form module:factory"),
        (
            "meta-llama/Llama-3.1-8B",
            "There is no file or folder meta-llama/Llama-3.1-8B here, and dryfit fetches nothing",
        ),
        ("config.json", "There is no file or folder config.json here"),
        (".", "The folder . has no config.json."),
    ],
)
def test_what_is_nothing_is_a_sentence(
    what: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        estimate(what)
    assert str(raised.value).startswith(sentence)


def test_without_the_libraries_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dryfit.estimate.build._is_installed", lambda name: False)
    with pytest.raises(UsageError, match="neither torchvision nor timm is installed to know it as a model's name"):
        estimate("resnet50")
    with pytest.raises(UsageError, match="To build nets:Net, torch has to be installed; a count of parameters"):
        estimate("nets:Net")

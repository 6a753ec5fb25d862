"""The examples in docs/train.md run, one after the other, as a person would try them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

ROOT = Path(__file__).parents[2]
WORDS, WIDTH = 11, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class LanguageModel(nn.Module):
    """Called as the models of transformers are."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x[:, :-1])
        return SimpleNamespace(logits=logits, loss=cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()))


def info_nce(images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    return cross_entropy(10 * normalize(images) @ normalize(texts).T, torch.arange(len(images)))


def batch_of(rows: int, ignored: int) -> dict[str, torch.Tensor]:
    words = torch.randint(WORDS, (rows, 6))
    labels = words.clone()
    labels[0, 6 - ignored :] = -100
    return {"input_ids": words, "labels": labels}


@pytest.mark.filterwarnings("ignore:In one window:dryfit.train.AccumulationWarning")
def test_the_page_s_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, image, text = LanguageModel(), nn.Linear(3, 4), nn.Linear(5, 4)
    optimizer = torch.optim.SGD([*model.parameters(), *image.parameters(), *text.parameters()], lr=0.1)
    names = {
        "model": model,
        "image": image,
        "text": text,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
        "loader": [batch_of(4, ignored) for ignored in (0, 3, 1, 2, 0)],
        "small_batch": batch_of(2, 0),
        "pairs": [torch.randn(32, 3), torch.randn(32, 5)],
        "info_nce": info_nce,
        "device": "cpu",
    }
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "train.md").read_text(), re.DOTALL)
    assert len(examples) == 8
    for example in examples:
        before = model.words.weight.detach().clone()
        exec(example, names)
        if "window.step()" in example or "train_on(batch)" in example:
            assert not torch.equal(model.words.weight, before)
    printed = capsys.readouterr().out
    assert "Equal to rounding: 2 micro-batches give the whole batch's gradient" in printed
    assert "3 Block" in printed
    assert "no CUDA or XPU device is in use" in printed


def test_the_readme_s_loops_before_and_after_train_alike() -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("\n## In your own loop\n")[2].partition("\n## ")[0]
    before, after = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert after.count("# new") == 3
    torch.manual_seed(0)
    data, start = torch.randn(32, 5), torch.randn(3, 5)
    trained = []
    for loop, rows in ((before, 16), (after, 4)):
        model = nn.Linear(5, 3)
        model.load_state_dict({"weight": start, "bias": torch.zeros(3)})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(data, batch_size=rows)
        exec(
            loop, {"model": model, "optimizer": optimizer, "loader": loader, "loss_of": lambda out: out.square().mean()}
        )
        trained.append(model.weight.detach())
    assert not torch.equal(trained[0], start)
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-6, atol=1e-6)

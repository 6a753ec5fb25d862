"""`--skip-weights`: a model folder with a config and no weights rehearses as if they were there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

TRAIN = """
    import sys, torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("model", **({"device_map": "auto"} if "auto" in sys.argv else {}))
    first = next(model.parameters())
    print("built on", first.device.type, first.dtype, "training" if model.training else "eval")
    model.to("cuda").train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(10):
        tokens = torch.randint(1000, (1, 128), device="cuda")
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
CONFIG = """
{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "torch_dtype": "bfloat16",
  "vocab_size": 32000, "hidden_size": SIZE, "intermediate_size": SIZE, "num_hidden_layers": 2,
  "num_attention_heads": 8, "num_key_value_heads": 8
}
"""


@pytest.fixture
def model(project: Path) -> Path:
    folder = project / "model"
    folder.mkdir()
    (folder / "config.json").write_text(CONFIG.replace("SIZE", "512"))
    return folder


@pytest.mark.parametrize(("arguments", "device"), [((), "cpu"), (("auto",), "cuda")])
def test_a_config_is_enough(rehearse: Any, model: Path, arguments: tuple[str, ...], device: str) -> None:
    done = rehearse(TRAIN, *arguments, options=("--skip-weights",))
    assert done.code == 0, done.stderr
    assert f"built on {device} torch.bfloat16 eval" in done.stderr
    assert done.result["steps"] >= 3


def test_the_figures_are_those_with_weights(rehearse: Any, model: Path) -> None:
    skipped = rehearse(TRAIN, options=("--skip-weights",)).result
    from transformers import AutoConfig, AutoModelForCausalLM

    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model)).save_pretrained(model)
    read = rehearse(TRAIN).result
    assert [skipped[name] for name in ("peak_allocated_bytes", "peak_reserved_bytes")] == [
        read[name] for name in ("peak_allocated_bytes", "peak_reserved_bytes")
    ]


def test_without_the_option_missing_weights_are_the_programs_own_error(rehearse: Any, model: Path) -> None:
    done = rehearse(TRAIN)
    assert done.code == 2
    assert "train.py failed before its first optimiser step: OSError: " in done.result["ending"]["sentence"]

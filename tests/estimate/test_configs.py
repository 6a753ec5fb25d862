"""Shapes by arithmetic on a config.json are those that transformers builds, and LoRA's adapters those of peft."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dryfit.errors import UsageError
from dryfit.estimate import estimate
from dryfit.estimate.huggingface import model_of_config
from dryfit.estimate.lora import with_lora

from .configs import CONFIGS
from .shape_lines import RANK, line_of, peft_spares_the_head

GOLDEN = Path(__file__).parent / "golden" / "transformers.txt"
LLAMA_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip


def written(folder: Path, config: Any) -> Path:
    place = folder / "config.json"
    place.write_text(config if isinstance(config, str) else json.dumps(config))
    return place


def test_each_class_has_the_shapes_that_transformers_builds(tmp_path: Path, rewrite_goldens: bool) -> None:
    if rewrite_goldens:
        program = Path(__file__).parent / "shapes_program.py"
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
        lines = [line.removeprefix("GOLDEN ") for line in done.stdout.splitlines() if line.startswith("GOLDEN ")]
        GOLDEN.write_text("\n".join(lines) + "\n")
    found = []
    for config in CONFIGS:
        model = model_of_config(written(tmp_path, config), "config.json")
        assert "by arithmetic" in model.found
        adapters = with_lora(model, RANK, "all-linear")[1]
        kind = config["architectures"][0]
        count = sum(tensor.elements for tensor in adapters)
        found.append(line_of(kind, model, count if peft_spares_the_head(kind) else "-"))
    assert found == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (LLAMA_8B, 8_030_261_248),
        ({"model_type": "llama"}, 6_738_415_616),
        ({"model_type": "mistral"}, 7_241_732_096),
        ({"model_type": "gpt2"}, 124_439_808),
        ({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25}, 1_557_611_200),
        ({"model_type": "bert", "architectures": ["BertModel"]}, 109_482_240),
        ({"model_type": "distilbert", "architectures": ["DistilBertModel"]}, 66_362_880),
    ],
)
def test_the_counts_of_well_known_models(config: dict[str, Any], count: int, tmp_path: Path) -> None:
    assert estimate(str(written(tmp_path, config))).parameter_count == count


def test_a_folder_is_as_good_as_its_config(tmp_path: Path) -> None:
    written(tmp_path, LLAMA_8B)
    assert estimate(str(tmp_path)).parameter_count == 8_030_261_248


def test_what_a_config_leaves_open_is_said(tmp_path: Path) -> None:
    place = str(written(tmp_path, {"model_type": "gpt2", "torch_dtype": "bfloat16"}))
    kind = 'The config names no class ("architectures"); GPT2LMHeadModel is taken.'
    dtype = "The config names another dtype: for a from_pretrained that goes by it, add --dtype bf16."
    assert estimate(place).notes == (kind, dtype)
    assert estimate(place, dtype="bf16").notes == (kind,)
    quantized = {**LLAMA_8B, "dtype": "float32", "quantization_config": {"bits": 4}}
    assert model_of_config(written(tmp_path, quantized), "x").notes == (
        "The config says that its weights are quantized; they are counted here as if they were not.",
    )


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "could not be read as JSON: Expecting property name"),
        ("[1]", "holds list, and a config.json of a model holds an object."),
        ("{}", 'has no "model_type", so it is no config of a Hugging Face model.'),
        (
            {**LLAMA_8B, "hidden_size": "large"},
            "\"hidden_size\" is 'large', and a whole number from 1 to 4,294,967,296",
        ),
        (
            {**LLAMA_8B, "num_hidden_layers": 10**9},
            '"num_hidden_layers" is 1000000000, and a whole number from 1 to 10,000',
        ),
        ({**LLAMA_8B, "num_attention_heads": 31}, "31 attention heads do not divide a hidden size of 4096"),
        ({**LLAMA_8B, "tie_word_embeddings": "no"}, "\"tie_word_embeddings\" is 'no', and true or false was expected."),
    ],
)
def test_a_wrong_config_is_a_sentence(config: Any, sentence: str, tmp_path: Path) -> None:
    place = written(tmp_path, config)
    with pytest.raises(UsageError, match=re.escape(sentence)) as raised:
        estimate(str(place))
    assert str(place) in str(raised.value)


def test_what_transformers_does_not_know_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def knows_nothing(folder: str) -> None:
        raise ValueError("no such model_type.\nMore lines.")

    stub = SimpleNamespace(AutoConfig=SimpleNamespace(from_pretrained=knows_nothing))
    monkeypatch.setitem(sys.modules, "transformers", stub)
    monkeypatch.setattr("dryfit.estimate.build._is_installed", lambda name: True)
    written(tmp_path, {"model_type": "new"})
    with pytest.raises(
        UsageError, match=r"could not be built: ValueError: no such model_type\. Install a transformers"
    ):
        estimate(str(tmp_path))


def test_no_transformers_for_an_unknown_class_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("dryfit.estimate.build._is_installed", lambda name: name != "transformers")
    place = written(tmp_path, {"model_type": "t5", "architectures": ["T5Model"]})
    with pytest.raises(UsageError, match=r"does not know the shapes of T5Model in .* by arithmetic, and transformers"):
        estimate(str(place))

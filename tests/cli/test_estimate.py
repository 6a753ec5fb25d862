"""`dryfit estimate`: what it prints, to the letter, as text and JSON, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dryfit import cli

GOLDEN = Path(__file__).parent / "golden"
Captured = pytest.CaptureFixture[str]

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("golden", "words", "code"),
    [
        ("count", "7B --dtype bf16", 0),
        ("8bit-on-a-card", "7B --dtype bf16 --optimizer adamw-8bit --gpu rtx-4090", 1),
        ("undecided-on-a-card", "1b --dtype bf16 --optimizer adafactor --gpu a100-80gb", 0),
        ("master-weights-paged", "1b --dtype fp16 --master-weights --optimizer paged-adamw-8bit", 0),
        ("lora-on-a-config", "config.json --dtype bf16 --lora-rank 16 --lora-targets attention --fused", 0),
        ("amp-on-a-config", "config.json --amp --for-loop", 0),
    ],
)
def test_the_text(
    golden: str, words: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured,
    rewrite_goldens: bool,
) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["estimate", *words.split()]) == code
    seen = capsys.readouterr()
    assert seen.err == ""
    place = GOLDEN / f"estimate-{golden}.txt"
    if rewrite_goldens:
        place.parent.mkdir(exist_ok=True)
        place.write_text(seen.out)
    assert seen.out == place.read_text()


def test_the_readme_shows_what_is_printed(capsys: Captured) -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text()
    words = page.partition("## At once, by arithmetic\n\n```\ndryfit ")[2].partition("\n")[0]
    shown = page.partition(words)[2].partition("```\n\n```\n")[2].partition("```")[0]
    assert words.startswith("estimate 7B")
    cli.main(words.split())
    assert capsys.readouterr().out.startswith(shown)


def test_json_has_what_is_documented(capsys: Captured) -> None:
    assert cli.main(["estimate", "7B", "--dtype", "bf16", "--gpu", "l4", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    page = (Path(__file__).parents[2] / "docs" / "estimate.md").read_text()
    fields = {*found, *found["options"], *found["terms"][0], *found["rule"], *found["card"]}
    assert not [field for field in fields if f"`{field}`" not in page]
    assert found["schema"] == "dryfit.estimate/1"
    assert found["at_least_bytes"] == 7_000_000_000 * 10
    assert found["card"]["too_small"] is True


def test_bad_input_is_a_sentence_on_stderr(capsys: Captured) -> None:
    assert cli.main(["estimate", "7Q"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("dryfit: '7Q' is not a count of parameters; write a number such as 125e6")
    with pytest.raises(SystemExit) as ended:
        cli.main(["estimate", "7B", "--fused", "--foreach"])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err

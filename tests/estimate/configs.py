"""Small configs of every class whose shapes are known by arithmetic, each with something unlike its defaults."""

from __future__ import annotations

from typing import Any

_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 32}
_DISTILBERT = {"dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4, "vocab_size": 100}
_LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}}

_FAMILIES: list[tuple[str, str, tuple[str, ...], dict[str, Any]]] = [
    ("llama", "Llama", ("ForCausalLM", "Model", "ForSequenceClassification", "ForTokenClassification"), _GROUPED),
    ("llama", "Llama", ("ForCausalLM",), {**_SMALL, "attention_bias": True, "mlp_bias": True, "head_dim": 20}),
    ("mistral", "Mistral", ("ForCausalLM",), {**_SMALL, "tie_word_embeddings": True, "num_key_value_heads": 4}),
    ("mistral", "Mistral", ("Model",), _GROUPED),
    ("qwen2", "Qwen2", ("ForCausalLM", "ForSequenceClassification"), {**_GROUPED, "tie_word_embeddings": True}),
    ("qwen3", "Qwen3", ("ForCausalLM",), _GROUPED),
    ("qwen3", "Qwen3", ("Model",), {**_GROUPED, "attention_bias": True, "head_dim": 24}),
    ("gemma", "Gemma", ("ForCausalLM", "Model"), _GROUPED),
    ("gpt2", "GPT2", ("LMHeadModel", "Model", "ForSequenceClassification", "ForTokenClassification"), _GPT2),
    ("gpt2", "GPT2", ("LMHeadModel",), {**_GPT2, "n_inner": 80, "tie_word_embeddings": False}),
    ("gpt_neox", "GPTNeoX", ("ForCausalLM", "Model"), _SMALL),
    ("gpt_neox", "GPTNeoX", ("ForCausalLM",), {**_SMALL, "attention_bias": False, "tie_word_embeddings": True}),
    *(
        (family, prefix, (*heads, "ForQuestionAnswering", "ForMaskedLM", "Model"), {**sizes, **_LABELS})
        for family, prefix, sizes in (
            ("bert", "Bert", {**_SMALL, "type_vocab_size": 3}),
            ("roberta", "Roberta", {**_SMALL, "max_position_embeddings": 40}),
        )
        for heads in [("ForSequenceClassification", "ForTokenClassification")]
    ),
    (
        "distilbert",
        "DistilBert",
        ("ForMaskedLM", "ForSequenceClassification", "ForQuestionAnswering", "Model"),
        _DISTILBERT,
    ),
    ("distilbert", "DistilBert", ("ForTokenClassification",), {**_DISTILBERT, **_LABELS}),
]

CONFIGS: list[dict[str, Any]] = [
    {"model_type": family, "architectures": [prefix + head], **sizes}
    for family, prefix, heads, sizes in _FAMILIES
    for head in heads
]
"""As config.json has them."""

"""Language models that predict the next token: Llama and its like, GPT-2, GPT-NeoX.

The sizes that a config leaves out are the defaults of transformers' classes (5.24), which write only what differs.
`tests/estimate/test_configs.py` compares them with what transformers itself builds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dryfit.estimate.huggingface.layers import Shapes, head_width, label_count, size, yes

Config = Mapping[str, Any]
Family = Callable[[Config, str | None], Shapes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LikeLlama:
    """How a family differs from Llama; sizes are the defaults of its config class."""

    prefix: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int | None
    head_dim: int | None = None
    tied: bool = False
    qkv_bias: bool | None = None
    """None: "attention_bias" says so, of all four projections."""
    norms_heads: bool = False
    reads_mlp_bias: bool = False

    def __call__(self, config: Config, kind: str | None) -> Shapes | None:
        kind = kind or f"{self.prefix}ForCausalLM"
        head = kind.removeprefix(self.prefix)
        if head not in ("Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification"):
            return None
        hidden, vocabulary = size(config, "hidden_size", self.hidden), size(config, "vocab_size", self.vocabulary)
        tied = yes(config, "tie_word_embeddings", self.tied)
        shapes = Shapes(kind=kind)
        shapes.embedding("embed_tokens", vocabulary, hidden, is_head_too=tied and head == "ForCausalLM")
        for layer in range(size(config, "num_hidden_layers", self.layers)):
            self._layer(shapes, f"layers.{layer}", config, hidden)
        shapes.norm("norm", hidden, bias=False)
        if head == "ForCausalLM" and not tied:
            shapes.head("lm_head", hidden, vocabulary)
        elif head.endswith("Classification"):
            shapes.head("score", hidden, label_count(config), bias=head == "ForTokenClassification")
        return shapes

    def _layer(self, shapes: Shapes, name: str, config: Config, hidden: int) -> None:
        heads = size(config, "num_attention_heads", self.heads)
        kv_heads = size(config, "num_key_value_heads", self.kv_heads or heads)
        width = self.head_dim if self.head_dim and "head_dim" not in config else head_width(config, hidden, heads)
        said = yes(config, "attention_bias", False) if self.qkv_bias is None else False
        for projection, out in (("q_proj", heads * width), ("k_proj", kv_heads * width), ("v_proj", kv_heads * width)):
            bias = said if self.qkv_bias is None else self.qkv_bias
            shapes.linear(f"{name}.self_attn.{projection}", hidden, out, bias=bias, attention=True)
        shapes.linear(f"{name}.self_attn.o_proj", heads * width, hidden, bias=said, attention=True)
        if self.norms_heads:
            shapes.norm(f"{name}.self_attn.q_norm", width, bias=False)
            shapes.norm(f"{name}.self_attn.k_norm", width, bias=False)
        inner = size(config, "intermediate_size", self.intermediate)
        bias = self.reads_mlp_bias and yes(config, "mlp_bias", False)
        shapes.linear(f"{name}.mlp.gate_proj", hidden, inner, bias=bias)
        shapes.linear(f"{name}.mlp.up_proj", hidden, inner, bias=bias)
        shapes.linear(f"{name}.mlp.down_proj", inner, hidden, bias=bias)
        shapes.norm(f"{name}.input_layernorm", hidden, bias=False)
        shapes.norm(f"{name}.post_attention_layernorm", hidden, bias=False)


def _gpt2(config: Config, kind: str | None) -> Shapes | None:
    kind = kind or "GPT2LMHeadModel"
    if kind not in ("GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification", "GPT2ForTokenClassification"):
        return None
    if yes(config, "add_cross_attention", False):
        return None
    hidden, vocabulary = size(config, "n_embd", 768), size(config, "vocab_size", 50257)
    inner = size(config, "n_inner", 4 * hidden)
    tied = yes(config, "tie_word_embeddings", True)
    shapes = Shapes(kind=kind)
    shapes.embedding("wte", vocabulary, hidden, is_head_too=tied and kind == "GPT2LMHeadModel")
    shapes.embedding("wpe", size(config, "n_positions", 1024), hidden)
    for layer in range(size(config, "n_layer", 12)):
        name = f"h.{layer}"
        shapes.norm(f"{name}.ln_1", hidden)
        shapes.transposed_linear(f"{name}.attn.c_attn", hidden, 3 * hidden, attention=True)
        shapes.transposed_linear(f"{name}.attn.c_proj", hidden, hidden, attention=True)
        shapes.norm(f"{name}.ln_2", hidden)
        shapes.transposed_linear(f"{name}.mlp.c_fc", hidden, inner)
        shapes.transposed_linear(f"{name}.mlp.c_proj", inner, hidden)
    shapes.norm("ln_f", hidden)
    if kind == "GPT2LMHeadModel" and not tied:
        shapes.head("lm_head", hidden, vocabulary)
    elif kind.endswith("Classification"):
        token = kind == "GPT2ForTokenClassification"
        shapes.head("classifier" if token else "score", hidden, label_count(config), bias=token)
    return shapes


def _gpt_neox(config: Config, kind: str | None) -> Shapes | None:
    kind = kind or "GPTNeoXForCausalLM"
    if kind not in ("GPTNeoXForCausalLM", "GPTNeoXModel"):
        return None
    hidden, vocabulary = size(config, "hidden_size", 6144), size(config, "vocab_size", 50432)
    inner, bias = size(config, "intermediate_size", 24576), yes(config, "attention_bias", True)
    tied = yes(config, "tie_word_embeddings", False)
    shapes = Shapes(kind=kind)
    shapes.embedding("embed_in", vocabulary, hidden, is_head_too=tied and kind != "GPTNeoXModel")
    for layer in range(size(config, "num_hidden_layers", 44)):
        name = f"layers.{layer}"
        shapes.norm(f"{name}.input_layernorm", hidden)
        shapes.norm(f"{name}.post_attention_layernorm", hidden)
        shapes.linear(f"{name}.attention.query_key_value", hidden, 3 * hidden, bias=bias, attention=True)
        shapes.linear(f"{name}.attention.dense", hidden, hidden, bias=bias, attention=True)
        shapes.linear(f"{name}.mlp.dense_h_to_4h", hidden, inner)
        shapes.linear(f"{name}.mlp.dense_4h_to_h", inner, hidden)
    shapes.norm("final_layer_norm", hidden)
    if kind != "GPTNeoXModel" and not tied:
        shapes.head("lm_head", hidden, vocabulary)
    return shapes


FAMILIES: dict[str, Family] = {
    "llama": _LikeLlama(
        prefix="Llama", vocabulary=32000, hidden=4096, intermediate=11008, layers=32, heads=32, kv_heads=None,
        reads_mlp_bias=True,
    ),
    "mistral": _LikeLlama(
        prefix="Mistral", vocabulary=32000, hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8,
        qkv_bias=False,
    ),
    "qwen2": _LikeLlama(
        prefix="Qwen2", vocabulary=151936, hidden=4096, intermediate=22016, layers=32, heads=32, kv_heads=32,
        qkv_bias=True,
    ),
    "qwen3": _LikeLlama(
        prefix="Qwen3", vocabulary=151936, hidden=4096, intermediate=22016, layers=32, heads=32, kv_heads=32,
        head_dim=128, norms_heads=True,
    ),
    "gemma": _LikeLlama(
        prefix="Gemma", vocabulary=256000, hidden=3072, intermediate=24576, layers=28, heads=16, kv_heads=16,
        head_dim=256, tied=True,
    ),
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
}  # fmt: skip

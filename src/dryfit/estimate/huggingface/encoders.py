"""BERT, RoBERTa and DistilBERT, with the heads people train.

The sizes that a config leaves out are the defaults of transformers' classes (5.24); see `decoders`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dryfit.estimate.huggingface.layers import Shapes, label_count, size, yes

Config = Mapping[str, Any]

_HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def _head_of(kind: str, prefix: str, config: Config) -> str | None:
    """The head that a class name stands for; None where its shapes are not known here."""
    head = kind.removeprefix(prefix)
    untied = not yes(config, "tie_word_embeddings", True)
    crosses = yes(config, "add_cross_attention", False)
    return head if head in _HEADS and not crosses and not (untied and head == "ForMaskedLM") else None


def _bert(config: Config, kind: str | None) -> Shapes | None:
    return _of_bert(config, kind or "BertForMaskedLM", "Bert", _bert_head, vocabulary=30522)


def _roberta(config: Config, kind: str | None) -> Shapes | None:
    return _of_bert(config, kind or "RobertaForMaskedLM", "Roberta", _roberta_head, vocabulary=50265)


def _of_bert(
    config: Config, kind: str, prefix: str, add_head: Callable[[Shapes, str, Config, int, int], None], vocabulary: int
) -> Shapes | None:
    head = _head_of(kind, prefix, config)
    if head is None:
        return None
    hidden, vocabulary = size(config, "hidden_size", 768), size(config, "vocab_size", vocabulary)
    inner = size(config, "intermediate_size", 3072)
    shapes = Shapes(kind=kind)
    shapes.embedding("embeddings.word_embeddings", vocabulary, hidden, is_head_too=head == "ForMaskedLM")
    positions = size(config, "max_position_embeddings", 512)
    if prefix == "Bert":
        shapes.embedding("embeddings.position_embeddings", positions, hidden)
    shapes.embedding("embeddings.token_type_embeddings", size(config, "type_vocab_size", 2), hidden)
    shapes.norm("embeddings.LayerNorm", hidden)
    if prefix != "Bert":
        shapes.embedding("embeddings.position_embeddings", positions, hidden)
    for layer in range(size(config, "num_hidden_layers", 12)):
        name = f"encoder.layer.{layer}"
        for projection in ("self.query", "self.key", "self.value", "output.dense"):
            shapes.linear(f"{name}.attention.{projection}", hidden, hidden, attention=True)
        shapes.norm(f"{name}.attention.output.LayerNorm", hidden)
        shapes.linear(f"{name}.intermediate.dense", hidden, inner)
        shapes.linear(f"{name}.output.dense", inner, hidden)
        shapes.norm(f"{name}.output.LayerNorm", hidden)
    add_head(shapes, head, config, hidden, vocabulary)
    return shapes


def _bert_head(shapes: Shapes, head: str, config: Config, hidden: int, vocabulary: int) -> None:
    if head in ("Model", "ForSequenceClassification"):
        shapes.linear("pooler.dense", hidden, hidden)
    if head == "ForMaskedLM":
        shapes.add("cls.predictions.bias", vocabulary, casts=True)
        shapes.linear("cls.predictions.transform.dense", hidden, hidden)
        shapes.norm("cls.predictions.transform.LayerNorm", hidden)
    elif head != "Model":
        shapes.head(_name_of_classifier(head), hidden, label_count(config), bias=True)


def _roberta_head(shapes: Shapes, head: str, config: Config, hidden: int, vocabulary: int) -> None:
    if head == "Model":
        shapes.linear("pooler.dense", hidden, hidden)
    elif head == "ForMaskedLM":
        shapes.add("lm_head.bias", vocabulary, casts=True)
        shapes.linear("lm_head.dense", hidden, hidden)
        shapes.norm("lm_head.layer_norm", hidden)
    elif head == "ForSequenceClassification":
        shapes.linear("classifier.dense", hidden, hidden)
        shapes.linear("classifier.out_proj", hidden, label_count(config))
    else:
        shapes.head(_name_of_classifier(head), hidden, label_count(config), bias=True)


def _distilbert(config: Config, kind: str | None) -> Shapes | None:
    kind = kind or "DistilBertForMaskedLM"
    head = _head_of(kind, "DistilBert", config)
    if head is None or yes(config, "sinusoidal_pos_embds", False):  # those positions are not trained
        return None
    hidden, vocabulary = size(config, "dim", 768), size(config, "vocab_size", 30522)
    inner = size(config, "hidden_dim", 3072)
    shapes = Shapes(kind=kind)
    shapes.embedding("embeddings.word_embeddings", vocabulary, hidden, is_head_too=head == "ForMaskedLM")
    shapes.embedding("embeddings.position_embeddings", size(config, "max_position_embeddings", 512), hidden)
    shapes.norm("embeddings.LayerNorm", hidden)
    for layer in range(size(config, "n_layers", 6)):
        name = f"transformer.layer.{layer}"
        for projection in ("q_lin", "k_lin", "v_lin", "out_lin"):
            shapes.linear(f"{name}.attention.{projection}", hidden, hidden, attention=True)
        shapes.norm(f"{name}.sa_layer_norm", hidden)
        shapes.linear(f"{name}.ffn.lin1", hidden, inner)
        shapes.linear(f"{name}.ffn.lin2", inner, hidden)
        shapes.norm(f"{name}.output_layer_norm", hidden)
    if head == "ForMaskedLM":
        shapes.linear("vocab_transform", hidden, hidden)
        shapes.norm("vocab_layer_norm", hidden)
        shapes.add("vocab_projector.bias", vocabulary, casts=True)
    elif head == "ForSequenceClassification":
        shapes.linear("pre_classifier", hidden, hidden)
        shapes.head("classifier", hidden, label_count(config), bias=True)
    elif head != "Model":
        shapes.head(_name_of_classifier(head), hidden, label_count(config), bias=True)
    return shapes


def _name_of_classifier(head: str) -> str:
    return "qa_outputs" if head == "ForQuestionAnswering" else "classifier"


FAMILIES: dict[str, Callable[[Config, str | None], Shapes | None]] = {
    "bert": _bert,
    "roberta": _roberta,
    "distilbert": _distilbert,
}

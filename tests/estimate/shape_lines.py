"""A model in one line of the golden file; `shapes_program` says what the letters mean."""

from __future__ import annotations

from dryfit.estimate import Model, Tensor

RANK = 4

_LETTERS = {"embedding": "E", "linear": "L", "transposed linear": "T", "head": "H", "other": ""}


def line_of(kind: str, model: Model, adapted: object) -> str:
    return f"{kind}: {' '.join(map(_word, model.parameters))} | {adapted}"


def peft_spares_the_head(kind: str) -> bool:
    """Of other classifiers and question answerers, peft adapts or copies the output layer, or fails over it."""
    return not any(word in kind for word in ("Token", "Question", "RobertaForS", "DistilBertForS"))


def _word(tensor: Tensor) -> str:
    letters = _LETTERS[tensor.role] + "A" * tensor.attention + "C" * tensor.autocasts
    return "x".join(map(str, tensor.shape)) + letters

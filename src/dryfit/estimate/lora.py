"""LoRA: everything frozen, and two small matrices beside each linear layer that is adapted, as peft makes them."""

from __future__ import annotations

from dataclasses import replace

from dryfit.errors import UsageError
from dryfit.estimate.model import Model, Tensor

ALL_LINEAR, ATTENTION = "all-linear", "attention"
TARGETS = (ALL_LINEAR, ATTENTION)

_FLOAT_BYTES = 4
_LARGEST_RANK = 1 << 20


def with_lora(model: Model, rank: int, targets: str) -> tuple[Model, tuple[Tensor, ...]]:
    """Freeze a model, and give the adapters of rank `rank` that are trained instead.

    Each linear layer (out, in) among the targets has a matrix (rank, in) and one (out, rank); the output layer of a
    language model has none. Of a model in 16 bits, peft 0.21 keeps the adapters in float32.

    Raises:
        UsageError: the shapes are not known, the rank is none, or no layer is adapted.
    """
    if not model.shapes_known:
        raise UsageError(
            f"--lora-rank needs the shapes of the layers, and {model.given} is a count alone. Give a Hugging Face "
            "config.json, a model's name or module:factory."
        )
    if not 1 <= rank <= _LARGEST_RANK:
        raise UsageError(f"--lora-rank {rank} is no rank; give a whole number from 1, such as 8 or 16.")
    layers = [
        tensor
        for tensor in model.parameters
        if tensor.role in ("linear", "transposed linear") and (targets == ALL_LINEAR or tensor.attention)
    ]
    if not layers:
        kind = "linear layer" if targets == ALL_LINEAR else "linear layer of attention"
        raise UsageError(
            f"{model.given} has no {kind} that --lora-targets {targets} could adapt. "
            + ("Choose --lora-targets all-linear." if targets == ATTENTION else "Leave out --lora-rank.")
        )
    adapters = tuple(matrix for layer in layers for matrix in _matrices(layer, rank))
    frozen = tuple(replace(tensor, trained=False) for tensor in model.parameters)
    return replace(model, parameters=frozen), adapters


def _matrices(layer: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    out, into = layer.shape if layer.role == "linear" else reversed(layer.shape)
    name, itemsize = layer.name.removesuffix(".weight"), max(layer.itemsize, _FLOAT_BYTES)
    return (
        Tensor(name=f"{name}.lora_A.weight", shape=(rank, into), itemsize=itemsize, role="linear", autocasts=True),
        Tensor(name=f"{name}.lora_B.weight", shape=(out, rank), itemsize=itemsize, role="linear", autocasts=True),
    )

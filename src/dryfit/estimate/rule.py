"""The rule of thumb that people add up by, and why PyTorch does not come to the same."""

from __future__ import annotations

from dataclasses import dataclass

from dryfit.estimate.model import Model
from dryfit.estimate.optimizers import Optimizer

_MOMENTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """So many bytes a parameter for weights, gradients and Adam's two states; `sentence` says how PyTorch differs."""

    weight_bytes: int
    gradient_bytes: int
    state_bytes: int
    total_bytes: int
    sentence: str

    @property
    def bytes_per_parameter(self) -> int:
        return self.weight_bytes + self.gradient_bytes + self.state_bytes


def rule_of_thumb(model: Model, optimizer: Optimizer, *, master_weights: bool) -> Rule | None:
    """The rule's figure for a model whose parameters are all trained, in one dtype, by an Adam; None of others.

    Two states of 4 bytes, or in 8 bits of 1 byte, whatever the parameters' dtype: of 7e9 parameters in bf16, 12 bytes
    each, which is 78.23 GiB, and 6 bytes each in 8 bits, which is 39.12 GiB.
    """
    sizes = {tensor.itemsize for tensor in model.parameters}
    if optimizer.rule_bytes is None or len(sizes) != 1 or not all(tensor.trained for tensor in model.parameters):
        return None
    itemsize = sizes.pop()
    total = model.parameter_count * (2 * itemsize + optimizer.rule_bytes)
    return Rule(
        weight_bytes=itemsize,
        gradient_bytes=itemsize,
        state_bytes=optimizer.rule_bytes,
        total_bytes=total,
        sentence=_difference(optimizer, itemsize, master_weights),
    )


def _difference(optimizer: Optimizer, itemsize: int, master_weights: bool) -> str:
    per_state = optimizer.rule_bytes // _MOMENTS if optimizer.rule_bytes else 0
    if per_state == 1:
        said = "bitsandbytes keeps a float32 scale for each 256 values besides, and small tensors in float32"
    elif optimizer.title.startswith("bitsandbytes"):
        said = "bitsandbytes does keep both states in float32"
    elif master_weights:
        said = (
            "its states are those of master weights, which it leaves out, and so are the float32 gradients of the step"
        )
    elif itemsize == per_state:
        said = "it leaves out the step's temporaries"
    else:
        said = (
            "it takes both states to be float32, but PyTorch's own Adam makes them in the parameters' dtype: "
            f"{_MOMENTS * itemsize} bytes a parameter here; and it leaves out the step's temporaries"
        )
    return said

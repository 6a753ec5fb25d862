"""What is known of a program once it has been rehearsed: what a measure asks to see whether it applies.

Collected in the rehearsed process (`rehearse.inside.facts`), where it is asked for, and written there as plain values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """One optimizer of the program. `kind` is its class with its module: "torch.optim.adamw.AdamW"."""

    kind: str
    parameters: int  # numbers, not tensors
    tensors: int
    fused: bool = False
    foreach: bool = False  # several tensors at once, as torch's optimizers do on a card unless told otherwise
    state_bytes: int = 0  # of its states on the card


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model: a module that the program itself calls in training."""

    kind: str  # its class with its module
    parameters: int
    trainable: int
    parameter_bytes: dict[str, int] = field(default_factory=dict)  # by dtype: {"float32": 497759232}
    blocks: dict[str, int] = field(default_factory=dict)  # repeated blocks: how many, by class name; see `blocks`
    layers: dict[str, int] = field(default_factory=dict)  # where there are no such blocks, repeated layers
    batch_norms: int = 0  # layers of batch statistics that are in training mode
    is_transformers: bool = False  # a PreTrainedModel
    is_peft: bool = False
    is_compiled: bool = False
    is_checkpointed: bool = False  # activation checkpointing was seen at work in it
    is_distributed: str = ""  # "DDP", "FSDP", "FSDP2"
    has_bucket_views: bool = False  # of DDP: its gradients are views of its buckets
    attention: str = ""  # of a PreTrainedModel: "eager", "sdpa", "flash_attention_2"
    multihead_with_weights: int = 0  # calls of nn.MultiheadAttention that also return the weights
    linear_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was seen of a program in one rehearsal; sizes are bytes, counts are of one optimizer step, the last.

    `flops` are of matrix multiplications, convolutions and attention on the card, as PyTorch's own formulas count them
    (two for a multiplication and an addition), and formulas like them for quantised weights. `host_bytes` were copied
    between the card and the host, and `sent_bytes` sent to other ranks, as one rank of a ring sends them.
    """

    way: str = "pytorch"
    optimizers: tuple[OptimizerFacts, ...] = ()
    models: tuple[ModelFacts, ...] = ()
    flops: int = 0
    uncounted: tuple[str, ...] = ()  # operators and kernels that multiply matrices, of which FLOPs know nothing
    host_bytes: int = 0
    sent_bytes: int = 0
    autocast: str = ""  # dtype of autocast on the card in the forward pass: "bfloat16"; "" without
    grad_scaler: bool = False
    loader_batch: int = 0  # batch size of the DataLoader that is trained from, 0 without one
    loader_samplers: bool = False  # it has a batch sampler of the program's own
    backwards_per_step: int = 1  # above 1 where the program accumulates gradients
    gradient_bytes_in_forward: int = 0  # of gradients alive when a forward pass began after a step, 0 if freed before
    evaluation_with_graph: bool = False  # a model in evaluation mode built a graph that nothing went back through
    cross_entropy_classes: int = 0  # of the largest cross-entropy, 0 without one
    cross_entropy_bytes: int = 0  # of its logits
    cross_entropy_from_linear: bool = False  # they are what a Linear layer returned
    attention_square_bytes: int = 0  # of the largest softmax over a square of positions, outside fused attention
    attention_is_torchs: bool = False  # it was within scaled_dot_product_attention, which found no fused kernel
    has_closure: bool = False  # an optimizer is given a closure
    allocator: dict[str, str] = field(default_factory=dict)  # as in `Result.allocator_settings`
    world: int = 1
    peak_phase: str = ""
    by_owner_bytes: dict[str, int] = field(default_factory=dict)  # at the peak, as the footprint has it
    failure: str = ""  # the trace of an error of ours, after which something here may be missing

    @property
    def has_optimizer(self) -> bool:
        return bool(self.optimizers)

    @property
    def batch_norms(self) -> int:
        return sum(model.batch_norms for model in self.models)

    @property
    def blocks(self) -> dict[str, int]:
        """The repeated blocks of all models."""
        return _added(model.blocks for model in self.models)

    @property
    def units(self) -> dict[str, int]:
        """What is sharded one at a time: repeated blocks, or layers in models where these alone are repeated."""
        return _added(model.blocks or model.layers for model in self.models)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found.get(name, 0) + count
    return found

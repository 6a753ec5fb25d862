"""What is known of a model and of an optimizer by looking at them."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any

import torch
from torch import nn

from dryfit.measures.blocks import block_kinds, kinds_of, repeated_layers
from dryfit.measures.facts import ModelFacts, OptimizerFacts
from dryfit.rehearse.inside import tensors

# What wraps a model, and where it keeps it.
_WRAPPERS = (
    ("torch._dynamo.eval_frame", "OptimizedModule", "_orig_mod", ""),
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "module", "DDP"),
    ("torch.nn.parallel.data_parallel", "DataParallel", "module", ""),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel", "module", "FSDP"),
    ("lightning.fabric.wrappers", "_FabricModule", "module", ""),
    ("lightning_fabric.wrappers", "_FabricModule", "module", ""),
)  # fmt: skip
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def model_facts(model: nn.Module, *, is_checkpointed: bool, multihead_with_weights: int) -> ModelFacts:
    """The facts of a model that a program calls, as it is now."""
    inner, distributed, is_compiled = _unwrapped(model)
    blocks = block_kinds(inner)
    modules, parameters = list(inner.modules()), list(inner.parameters())
    sizes: dict[str, int] = {}
    for parameter in parameters:
        name = tensors.name_of_dtype(parameter.dtype)
        sizes[name] = sizes.get(name, 0) + _size_bytes(parameter)
    pretrained = [each for each in modules if _is_a(each, "transformers.modeling_utils", "PreTrainedModel")]
    if any(_is_a(each, "torch.distributed.fsdp", "FSDPModule") for each in modules):
        distributed = "FSDP2"
    elif any(_is_a(each, "torch.distributed.fsdp", "FullyShardedDataParallel") for each in modules):
        distributed = "FSDP"
    return ModelFacts(
        kind=name_of_class(inner),
        parameters=sum(map(_numbers, parameters)),
        trainable=sum(_numbers(each) for each in parameters if each.requires_grad),
        parameter_bytes=sizes,
        blocks=blocks,
        layers={} if blocks else kinds_of(repeated_layers(inner)),
        batch_norms=sum(isinstance(each, _BATCH_NORMS) and each.training for each in modules),
        is_transformers=bool(pretrained),
        is_peft=any(_is_a(each, "peft.tuners.tuners_utils", "BaseTunerLayer") for each in modules)
        or _is_a(inner, "peft.peft_model", "PeftModel"),
        is_compiled=is_compiled or any(_is_compiled(each) for each in modules),
        is_checkpointed=is_checkpointed,
        is_distributed=distributed,
        has_bucket_views=bool(getattr(model, "gradient_as_bucket_view", False)),
        attention=str(getattr(pretrained[0].config, "_attn_implementation", None) or "") if pretrained else "",
        multihead_with_weights=multihead_with_weights,
        linear_layers=sum(isinstance(each, nn.Linear) for each in modules),
    )


def optimizer_facts(optimizer: Any, *, foreach: bool, fused: bool) -> OptimizerFacts:
    """The facts of an optimizer; how its last step went is seen elsewhere."""
    parameters = parameters_of(optimizer)
    states = [tensor for state in optimizer.state.values() for _, tensor in tensors.tensors_in(state)]
    return OptimizerFacts(
        kind=name_of_class(optimizer),
        parameters=sum(map(_numbers, parameters)),
        tensors=len(parameters),
        fused=fused or any(group.get("fused") for group in optimizer.param_groups),
        foreach=foreach and not fused,
        state_bytes=sum(map(card_bytes, states)),
    )


def parameters_of(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def name_of_class(value: Any) -> str:
    """A class with its module: "torch.optim.adamw.AdamW"."""
    kind = type(value)
    fully_sharded = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    if issubclass(kind, fully_sharded):  # a class made of the program's own, and named for it
        kind = next(each for each in kind.__mro__ if not issubclass(each, fully_sharded))
    return f"{kind.__module__}.{kind.__qualname__}"


def card_bytes(tensor: Any) -> int:
    """The size of a tensor on this process's card, in bytes; of one that is spread over several, of this one's part."""
    return sum(math.prod(shape) * getattr(torch, dtype).itemsize for _, _, dtype, shape in tensors.on_card(tensor))


def _size_bytes(tensor: Any) -> int:
    return card_bytes(tensor) or tensor.numel() * tensor.element_size()


def _numbers(parameter: Any) -> int:
    """How many numbers a parameter stands for: bitsandbytes packs two of 4 bits into a byte."""
    shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
    return int(math.prod(shape)) if shape is not None else int(parameter.numel())


def _unwrapped(model: nn.Module) -> tuple[nn.Module, str, bool]:
    """The program's own model within what wraps it, with how it is distributed, and whether it is compiled."""
    distributed, is_compiled = "", False
    while True:
        for module, name, attribute, means in _WRAPPERS:
            if _is_a(model, module, name) and isinstance(within := getattr(model, attribute, None), nn.Module):
                distributed, is_compiled = distributed or means, is_compiled or name == "OptimizedModule"
                model = within
                break
        else:
            return model, distributed, is_compiled


def _is_compiled(module: nn.Module) -> bool:
    is_wrapped = _is_a(module, "torch._dynamo.eval_frame", "OptimizedModule")
    return is_wrapped or module.__dict__.get("_compiled_call_impl") is not None


def _is_a(value: Any, module: str, name: str) -> bool:
    """Whether it is of a class of a library that may not have been imported."""
    kind = None
    with contextlib.suppress(AttributeError, ImportError):
        kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and issubclass(type(value), kind)

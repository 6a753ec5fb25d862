"""Activation checkpointing of a model's repeated blocks, with what silently goes wrong by hand seen to."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import torch
from torch import nn

from dryfit.errors import UsageError
from dryfit.measures.blocks import blocks_in_words, kinds_of, repeated_blocks
from dryfit.train.batch_norms import name_layers
from dryfit.train.checkpointed_already import require_left_to_us, require_not_checkpointed
from dryfit.train.checkpointed_forward import KEPT, CheckpointedForward, Keep
from dryfit.train.verifying import Verification

Blocks = type[nn.Module] | nn.Module | Iterable[type[nn.Module] | nn.Module]


def checkpoint_blocks(
    model: nn.Module,
    *,
    every: int = 1,
    blocks: Blocks | None = None,
    keep: Keep | None = None,
    verify: Any = None,
    loss_of: Callable[[Any, Any], Any] | None = None,
    allow_unused: bool = False,
) -> Checkpointed:
    """Keep only the inputs of a model's repeated blocks for the backward pass, and compute each block again there.

        checkpoint_blocks(model)  # once, before torch.compile, DDP or FSDP and before the loop

    Loss and gradients stay what they were, bit for bit. The price is one more forward of each block per step.

    every: 2 checkpoints every second block, 3 every third; less memory saved, less computed again.
    blocks: which modules; a class, several, or a list of modules. Without it, the repeated blocks that are found by the
        model's structure: classes with several instances. One that is called several times, as in ALBERT, is given.
    keep: "matmuls" keeps what matrix products, convolutions and attention gave, and computes only the rest again;
        "attention" keeps what `scaled_dot_product_attention` gave.
    verify, loss_of: a batch, and `loss_of(model, batch)` as the loop has it. Loss, gradients and buffers of one pass
        without and one with checkpointing are compared, and everything is put back bit for bit. It takes the memory
        of the batch without checkpointing: give a small one.
    allow_unused: verify although some trainable tensors get no gradient from this batch.

    Non-reentrant, so that frozen embeddings and LoRA train. Random numbers and autocast are in the second computation
    what they were in the first. Buffers move once per step, as without checkpointing: running statistics of BatchNorm
    and SyncBatchNorm, power iterations of spectral norm, counters. The model keeps its modules, names and state_dict,
    and can be copied and pickled. Nothing is checkpointed in eval mode or under `no_grad`. Models of transformers make
    no KV cache while they train, and do in evaluation and generation.

    Within a step, a block has to find its inputs and weights in the second computation as they were in the first. Lists
    and dicts that it is given may grow meanwhile; tensors that change in place are an error. A forward that changes
    anything else than buffers (an attribute of its own, a Python counter) does so twice. Not for `nn.DataParallel`.

    Raises:
        UsageError: there are no repeated blocks, the model is checkpointed already, arguments do not go together, or
            the verification found a difference; and in training, that a block cannot be computed again as it was. The
            message says what to do.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise UsageError(f"every={every!r}: it is 1 for each block, 2 for every second one, and so on.")
    if keep is not None and keep not in KEPT:
        raise UsageError(f'keep={keep!r}: it is "matmuls", "attention", or None to keep the inputs of blocks alone.')
    if verify is not None and loss_of is None:
        raise UsageError("verify= needs loss_of=, a function that takes the model and that batch and gives the loss.")
    if verify is None and loss_of is not None:
        raise UsageError("loss_of= is for verify=; give a small batch there, or leave loss_of out.")
    require_not_checkpointed(model)
    names = {module: name or "the model itself" for name, module in model.named_modules()}
    chosen = _choose(model, blocks, names)
    if every > len(chosen):
        raise UsageError(f"every={every}, and there are {len(chosen)} blocks in {type(model).__name__}; give less.")
    chosen = chosen[::every]
    verification = None if loss_of is None else Verification(model, loss_of, verify, chosen)
    checkpointed = Checkpointed(model, {names[block]: block for block in chosen}, keep)
    if verification is not None:
        try:
            checkpointed.verified = verification.compare(allow_unused=allow_unused)
        except BaseException:
            checkpointed.undo()
            raise
        finally:
            verification.restore()
    return checkpointed


class Checkpointed:
    """A model whose blocks are checkpointed; `checkpoint_blocks` makes it, and `undo()` makes it plain again.

        with checkpoint_blocks(model):
            train(model)

    Printed, it says what is checkpointed. `blocks` are the names of the checkpointed blocks, and `verified` is what the
    verification found, if one was asked for.
    """

    def __init__(self, model: nn.Module, blocks: dict[str, nn.Module], keep: Keep | None) -> None:
        self.verified = ""
        self._blocks = blocks
        self._keep = keep
        self._forwards = {name: CheckpointedForward(block, name, keep) for name, block in blocks.items()}
        for name, block in blocks.items():
            block.forward = self._forwards[name]
        inside = {module for block in blocks.values() for module in block.modules()}
        self._hooks = [
            module.register_forward_pre_hook(_without_cache, with_kwargs=True)
            for module in model.modules()
            if module not in inside and _takes_use_cache(module)
        ]
        self._hooks += [
            module.register_forward_pre_hook(require_left_to_us)
            for module in model.modules()
            if module not in inside
            and hasattr(module, "gradient_checkpointing")
            and not inside.isdisjoint(module.modules())
        ]

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the checkpointed blocks, in the model's order."""
        return tuple(self._blocks)

    def undo(self) -> None:
        """Give every block its own forward back; a second call does nothing."""
        for name, block in self._blocks.items():
            self._forwards[name].undo(block)
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Checkpointed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.undo()

    def __str__(self) -> str:
        kept = {None: "keep their inputs alone", "attention": "keep their inputs and what attention gave"}.get(
            self._keep, "keep their inputs and what matrix products, convolutions and attention gave"
        )
        blocks = blocks_in_words(kinds_of(self._blocks.values()))
        said = f"{blocks} {kept} for the backward pass: {name_layers(self.blocks)}."
        return f"{said} {self.verified}".rstrip()


def _choose(model: nn.Module, blocks: Blocks | None, names: dict[nn.Module, str]) -> list[nn.Module]:
    if blocks is None:
        found = repeated_blocks(model)
        if not found:
            raise UsageError(
                f"{type(model).__name__} has no repeated blocks that could be checkpointed. Give blocks=: a class "
                f"(blocks=Block), or the parts to compute again, such as blocks=[model.encoder, model.decoder]."
            )
        return found
    wanted: set[nn.Module] = set()
    for each in _listed(blocks):
        if isinstance(each, type) and issubclass(each, nn.Module):
            of_class = [module for module in names if isinstance(module, each)]
            if not of_class:
                raise UsageError(f"There is no module of class {each.__name__} in {type(model).__name__}.")
            wanted.update(of_class)
        elif isinstance(each, nn.Module):
            if each not in names:
                raise UsageError(f"A {type(each).__name__} among blocks= is no part of {type(model).__name__}.")
            wanted.add(each)
        else:
            raise UsageError(
                f"Of blocks=, {reprlib.repr(each)} is no module; it takes a class of modules, several, or a list of "
                f"modules."
            )
    if not wanted:
        raise UsageError("blocks= is empty, so there is nothing to checkpoint; leave it out to have blocks found.")
    chosen = [module for module in names if module in wanted]
    for block in chosen:
        _require_callable(block, names[block])
        inner = next((each for each in block.modules() if each in wanted and each is not block), None)
        if inner is not None:
            raise UsageError(
                f"Of blocks=, {names[inner]} is inside {names[block]}, and would be computed again twice. Give either "
                f"the outer blocks or the inner ones."
            )
    return chosen


def _listed(blocks: Any) -> list[Any]:
    if isinstance(blocks, nn.ModuleDict):
        return list(blocks.values())
    is_one = isinstance(blocks, (type, str, nn.Module)) or not isinstance(blocks, Iterable)
    return [blocks] if is_one and not isinstance(blocks, nn.ModuleList) else list(blocks)


def _require_callable(block: nn.Module, name: str) -> None:
    if isinstance(block, torch.jit.ScriptModule):
        raise UsageError(f"Block {name} is a ScriptModule, whose forward cannot be replaced; give the plain module.")
    if type(block).forward is nn.Module.forward and "forward" not in vars(block):
        raise UsageError(
            f"{name} is a {type(block).__name__}, which holds modules and is not called itself. Give the modules in it."
        )


def _takes_use_cache(module: nn.Module) -> bool:
    """Whether it is a model of transformers, or of its ways, that makes a KV cache unless told not to."""
    return hasattr(getattr(module, "config", None), "use_cache") and "use_cache" in _parameters_of(module)


def _without_cache(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not (module.training and torch.is_grad_enabled()):
        return args, kwargs
    place = _parameters_of(module).index("use_cache") - 1  # the first is the module itself
    if place < len(args):
        return (*args[:place], False, *args[place + 1 :]), kwargs
    return args, {**kwargs, "use_cache": False}


def _parameters_of(module: nn.Module) -> list[str]:
    return list(inspect.signature(type(module).forward).parameters)

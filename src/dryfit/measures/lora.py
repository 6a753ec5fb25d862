"""LoRA: the model is frozen, and small matrices beside its linear layers are trained, with the package peft."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dryfit.measures.blocks import repeated_blocks
from dryfit.measures.facts import Facts
from dryfit.measures.given_to_ddp import before_ddp_gets
from dryfit.measures.instead import instead
from dryfit.measures.measure import Measure, changes_method
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer
from dryfit.measures.owners import keep_trainable, owners, unwrapped

if TYPE_CHECKING:
    import torch

_DEFAULT_RANK = 16
Adapt = Callable[["torch.nn.Module"], "torch.nn.Module"]


def why_no_adapters(facts: Facts) -> str:
    """Why adapters cannot be put beside the layers of a program's model; "" where they can."""
    if not facts.has_optimizer:
        return "the program makes no optimizer, so nothing is trained"
    if any(model.is_peft for model in facts.models):
        return "the program trains adapters already"
    if not any(model.linear_layers and (model.is_transformers or model.blocks) for model in facts.models):
        return "the model has no linear layers in repeated blocks, to which adapters could be added"
    return ""


def adapt_models(moments: Moments, adapt: Adapt) -> None:
    """Have models adapted where a person would: before a Trainer or DDP gets one, else before an optimizer is made."""

    def before_optimizer(wanted: WantedOptimizer) -> None:
        models = [model for owner in owners(wanted.parameters) for model in adaptable(owner)]
        given = {id(parameter) for parameter in wanted.parameters}
        for model in models:
            if not has_adapters(model):
                adapt(model)
        added = [
            each
            for model in models
            for each in model.parameters()
            if has_adapters(model) and each.requires_grad and id(each) not in given
        ]
        if added:
            _add(wanted, added)
        if any(map(has_adapters, models)):
            keep_trainable(wanted)
            moments.acts()

    def before_trainer(real: Callable[..., Any], self: Any, model: Any = None, *args: Any, **kwargs: Any) -> None:
        if hasattr(model, "modules") and not has_adapters(model) and adaptable(model) == [model]:
            model = moments.guard(adapt)(model)
        real(self, model, *args, **kwargs)

    def adapt_all(model: torch.nn.Module) -> None:
        for each in adaptable(model):
            if not has_adapters(each):
                adapt(each)

    def before_fit(real: Callable[..., Any], self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        moments.guard(adapt_all)(model)
        return real(self, model, *args, **kwargs)

    moments.when_optimizer_is_wanted(before_optimizer)
    before_ddp_gets(moments, adapt_all)
    moments.after_import("transformers.trainer", lambda module: instead(module.Trainer, "__init__", before_trainer))
    for name in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
        moments.after_import(name, lambda module: instead(module.Trainer, "fit", before_fit))


def adaptable(owner: torch.nn.Module) -> list[torch.nn.Module]:
    """The models in a module that can be given adapters: those of transformers, or itself if it has repeated blocks."""
    found = [module for module in owner.modules() if _is_transformers(module)]
    inner = {id(child) for module in found for child in module.modules() if child is not module}
    if found:
        return [module for module in found if id(module) not in inner]
    return [unwrapped(owner)] if repeated_blocks(owner) else []


def with_adapters(model: torch.nn.Module, option: str) -> torch.nn.Module:
    """The model as peft returns it; its linear layers have been replaced in place.

    Raises:
        CannotSwitchOn: peft is not installed, or there are no such layers.
    """
    peft = package("peft")
    targets = "all-linear" if _is_transformers(model) else linear_layers(model)
    if not targets:
        raise CannotSwitchOn(f"{type(model).__name__} has no linear layers in repeated blocks to add adapters to.")
    rank = int(option or _DEFAULT_RANK)
    wrapped: torch.nn.Module = peft.get_peft_model(
        model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets)
    )
    return wrapped


def package(name: str) -> Any:
    """A package that a measure needs.

    Raises:
        CannotSwitchOn: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise CannotSwitchOn(f"the package {name} is not installed: pip install {name}") from None


def has_adapters(model: torch.nn.Module) -> bool:
    return any(hasattr(module, "lora_A") for module in model.modules())


def linear_layers(model: torch.nn.Module) -> list[str]:
    """Names of the linear layers in a model's repeated blocks.

    Not those of nn.MultiheadAttention, which takes their weights without calling them.
    """
    import torch

    blocks = {id(inner) for block in repeated_blocks(model) for inner in block.modules()}
    attentions = [module for module in model.modules() if isinstance(module, torch.nn.MultiheadAttention)]
    not_called = {id(inner) for attention in attentions for inner in attention.modules()}
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and id(module) in blocks and id(module) not in not_called
    ]


def _is_transformers(module: torch.nn.Module) -> bool:
    return any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__)


def _add(wanted: WantedOptimizer, parameters: list[Any]) -> None:
    """Have an optimizer train these too, with the settings of its first group."""
    first = wanted.groups[0]
    if isinstance(first, dict):
        first["params"] = [*first["params"], *parameters] if isinstance(first["params"], list) else parameters
    elif isinstance(first, tuple):
        wanted.groups += [(f"adapter.{number}", each) for number, each in enumerate(parameters)]
    else:
        wanted.groups += parameters


def _switch_on(moments: Moments, option: str) -> None:
    adapt_models(moments, lambda model: with_adapters(model, option))


MEASURES = (
    Measure(
        name="lora",
        title="LoRA",
        what="The model is frozen and small matrices beside its linear layers are trained: only these have gradients "
        "and optimizer states.",
        group="trained",
        why_not=why_no_adapters,
        changes=changes_method,
        switch_on=_switch_on,
        options=lambda _: (str(_DEFAULT_RANK),),
        needs="peft",
        snippets={
            "pytorch": """
blocks = [name for name, module in model.named_modules() if isinstance(module, {blocks})]
layers = [
    name
    for name, module in model.named_modules()
    if isinstance(module, nn.Linear) and name.startswith(tuple(f"{block}." for block in blocks))
]
model = peft.get_peft_model(model, peft.LoraConfig(r={option}, lora_alpha=2 * {option}, target_modules=layers))
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], ...)
""",
            "transformers": """
config = peft.LoraConfig(r={option}, lora_alpha=2 * {option}, target_modules="all-linear")
trainer = Trainer(peft.get_peft_model(model, config), ...)
""",
        },
    ),
)

"""Pure bfloat16: weights, gradients and optimizer states too, and so everything that is computed from them."""

from __future__ import annotations

import functools
import gc
from typing import Any
from weakref import WeakSet

from dryfit.measures import settings
from dryfit.measures.facts import Facts
from dryfit.measures.given_to_ddp import before_ddp_gets
from dryfit.measures.measure import Measure, changes_method
from dryfit.measures.moments import Moments, WantedOptimizer

_HALVES = {"bfloat16", "float16"}


def _why_not(facts: Facts) -> str:
    dtypes = {name for model in facts.models for name, size in model.parameter_bytes.items() if size}
    if dtypes and dtypes <= _HALVES:
        return f"all parameters are {' and '.join(sorted(dtypes))} already"
    if facts.grad_scaler:
        return "the program trains in float16, with a GradScaler, which is for weights in float32"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    seen: WeakSet[torch.nn.Module] = WeakSet()
    is_of_trainer = False  # a trainer of the program's has been told to do it, and does it in its own way

    def convert(model: torch.nn.Module) -> None:
        if is_of_trainer or model in seen:
            return
        seen.add(model)
        if any(each.dtype == torch.float32 for each in model.parameters()):
            _convert(model)
            model.register_forward_pre_hook(cast_inputs, with_kwargs=True)
            moments.acts()

    def convert_late(model: torch.nn.Module, *_: Any) -> None:
        if model not in seen and any(each.is_cuda for each in model.parameters()):
            convert(model)

    def convert_owners(wanted: WantedOptimizer) -> None:
        # Of models that were made on the card, and so are not moved there.
        late = {id(each) for each in wanted.parameters if each.is_cuda and each.dtype == torch.float32}
        if late and not is_of_trainer:
            for model in _models():
                if any(id(each) in late for each in model.parameters()):
                    convert(model)

    def of_lightning(given: settings.Settings) -> None:
        nonlocal is_of_trainer
        is_of_trainer = True
        if given.get("precision") in (None, 32, "32", "32-true"):
            given["precision"] = "bf16-true"
            moments.acts()

    _before_moves_to_card(moments.guard(convert))
    moments.when_optimizer_is_wanted(convert_owners)
    moments.when_model_is_called(convert_late)
    before_ddp_gets(moments, convert_late)
    settings.of_lightning_trainer(moments, of_lightning)


def _convert(model: Any) -> None:
    import torch

    if not hasattr(model, "get_output_embeddings"):
        model.to(torch.bfloat16)
        return
    # With `dtype` transformers makes parameters in that, and keeps in float32 what it computes anew in each process.
    for tensor in model.state_dict(keep_vars=True).values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(torch.bfloat16)


def cast_inputs(_: Any, args: Any, kwargs: Any) -> Any:
    """Arguments of a model with what is float32 in them cast, as a person does in calling it; numbers need not be."""
    import torch

    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.dim():
            return value.to(torch.bfloat16)
        if type(value) in (list, tuple):
            return type(value)(map(cast, value))
        return {key: cast(each) for key, each in value.items()} if type(value) is dict else value

    return cast(args), cast(kwargs)


def _before_moves_to_card(convert: Any) -> None:
    """Have a model converted right before it is moved to the card by `.to` or `.cuda`."""
    import torch

    real_to, real_cuda = torch.nn.Module.to, torch.nn.Module.cuda

    @functools.wraps(real_to)
    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        has_dtype = any(isinstance(each, torch.dtype) for each in given)
        if not has_dtype and any(_is_card(each) for each in given):
            convert(self)
        return real_to(self, *args, **kwargs)

    @functools.wraps(real_cuda)
    def cuda(self: torch.nn.Module, device: Any = None) -> Any:
        convert(self)
        return real_cuda(self, device)

    torch.nn.Module.to = to  # type: ignore[method-assign]
    torch.nn.Module.cuda = cuda  # type: ignore[method-assign]


def _is_card(given: Any) -> bool:
    import torch

    if isinstance(given, (str, torch.device)):
        return torch.device(given).type == "cuda"
    return isinstance(given, int) and not isinstance(given, bool)


def _models() -> list[Any]:
    """All modules there are, those with most parameters first: a model before its parts."""
    import torch

    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    return sorted(modules, key=lambda module: -sum(1 for _ in module.modules()))


MEASURES = (
    Measure(
        name="bf16-weights",
        title="bf16 weights",
        what="Weights, gradients, optimizer states and all that is computed from them are bfloat16, half of float32; "
        "an update that is less than 1/256 of its weight is lost.",
        group="precision",
        why_not=_why_not,
        # Not PRECISION, though it is the same rule with fewer bits: weights that cannot take small steps end elsewhere,
        # which those of autocast do not.
        changes=changes_method,
        switch_on=_switch_on,
        not_counted="It is faster on cards with bfloat16 units (from Ampere on). Small updates of weights are lost.",
        snippets={
            "pytorch": "model = Model().to(torch.bfloat16).cuda()\n"
            "output = model(batch.to(torch.bfloat16))  # what is not float stays as it is",
            "transformers model": "AutoModelForCausalLM.from_pretrained(..., dtype=torch.bfloat16)",
            "transformers": "AutoModelForCausalLM.from_pretrained(..., dtype=torch.bfloat16)",
            "lightning": 'Trainer(..., precision="bf16-true")',
        },
    ),
)

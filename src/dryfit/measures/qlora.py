"""QLoRA: the linear layers of the frozen model are kept in 4 bits, with adapters trained beside them.

With the packages bitsandbytes and peft. A model that transformers loads is quantized as it is loaded; any other one as
it is moved to the card, from where its full weights would have to be removed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dryfit.measures.facts import Facts
from dryfit.measures.lora import adapt_models, linear_layers, package, why_no_adapters, with_adapters
from dryfit.measures.measure import Measure, changes_method
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer
from dryfit.measures.moved import before_model_is_moved
from dryfit.measures.owners import owners, unwrapped

if TYPE_CHECKING:
    import torch


def _why_not(facts: Facts) -> str:
    why = why_no_adapters(facts)
    if not why and any("uint8" in model.parameter_bytes for model in facts.models):
        return "the model is quantized already"
    return why


def _switch_on(moments: Moments, option: str) -> None:
    quantized: list[torch.nn.Module] = []

    def before_card(model: torch.nn.Module) -> bool:
        if linear_layers(model) and all(each.requires_grad for each in model.parameters()):
            quantize(model)
            quantized.append(model)
        return False

    def adapt(model: torch.nn.Module) -> torch.nn.Module:
        if not is_quantized(model):
            if any(parameter.device.type != "cpu" for parameter in model.parameters()):
                raise CannotSwitchOn(
                    f"{type(model).__name__} is made on the card, so that its full weights have been there before they "
                    "can be quantized; make it on the host, and move it to the card then."
                )
            quantize(model)
        prepared = package("peft").prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        return with_adapters(prepared, option)

    def check(wanted: WantedOptimizer) -> None:
        models = list(map(unwrapped, owners(wanted.parameters)))
        others = [model for model in quantized if model not in models]
        if others:
            raise CannotSwitchOn(
                f"{type(others[0]).__name__} has been quantized as it was moved to the card, and the optimizer trains "
                "another model; quantize the one that is trained by hand."
            )

    def of_transformers(module: Any) -> None:
        real = module.PreTrainedModel.from_pretrained.__func__

        def from_pretrained(kind: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("quantization_config") is None:
                kwargs["quantization_config"] = moments.guard(_config)()
            return real(kind, *args, **kwargs)

        module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)

    before_model_is_moved(moments, before_card)
    moments.when_optimizer_is_wanted(check)
    adapt_models(moments, adapt)
    moments.after_import("transformers.modeling_utils", of_transformers)


def quantize(model: torch.nn.Module) -> None:
    """Put a layer of bitsandbytes in the place of each linear layer in a model's blocks; the card then quantizes it.

    Raises:
        CannotSwitchOn: bitsandbytes is not installed, or there are no such layers.
    """
    import torch

    bitsandbytes = package("bitsandbytes")
    names = linear_layers(model)
    if not names:
        raise CannotSwitchOn(f"{type(model).__name__} has no linear layers in repeated blocks that could be quantized.")
    for name in names:
        holder, _, last = name.rpartition(".")
        linear = model.get_submodule(name)
        assert isinstance(linear, torch.nn.Linear)
        layer = bitsandbytes.nn.Linear4bit(
            linear.in_features,
            linear.out_features,
            bias=linear.bias is not None,
            compute_dtype=torch.bfloat16,
            quant_type="nf4",
            device="meta",
        )
        layer.weight = bitsandbytes.nn.Params4bit(
            linear.weight.data, requires_grad=False, quant_type="nf4", module=layer
        )
        layer.bias = linear.bias
        setattr(model.get_submodule(holder), last, layer)


def is_quantized(model: torch.nn.Module) -> bool:
    return any(type(parameter).__name__ == "Params4bit" for parameter in model.parameters())


def _config() -> Any:
    import torch

    return package("transformers").BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )


MEASURES = (
    Measure(
        name="qlora",
        title="QLoRA",
        what="As LoRA; the linear layers of the frozen model are kept in 4 bits.",
        group="trained",
        why_not=_why_not,
        changes=changes_method,
        switch_on=_switch_on,
        options=lambda _: ("16",),
        needs="peft bitsandbytes",
        not_counted="weights are turned into bfloat16 each time that they are used, forward and backward",
        snippets={
            "pytorch": """
blocks = [name for name, module in model.named_modules() if isinstance(module, {blocks})]
layers = []
for name, linear in list(model.named_modules()):  # while the model is on the host
    if isinstance(linear, nn.Linear) and name.startswith(tuple(f"{block}." for block in blocks)):
        layer = bnb.nn.Linear4bit(
            linear.in_features,
            linear.out_features,
            bias=linear.bias is not None,
            compute_dtype=torch.bfloat16,
            quant_type="nf4",
            device="meta",
        )
        layer.weight = bnb.nn.Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4", module=layer)
        layer.bias = linear.bias
        model.set_submodule(name, layer)
        layers.append(name)
model.cuda()
model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
model = peft.get_peft_model(model, peft.LoraConfig(r={option}, lora_alpha=2 * {option}, target_modules=layers))
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], ...)
""",
            "transformers": """
quantized = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
)
model = AutoModelForCausalLM.from_pretrained(name, quantization_config=quantized)
model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
config = peft.LoraConfig(r={option}, lora_alpha=2 * {option}, target_modules="all-linear")
trainer = Trainer(peft.get_peft_model(model, config), ...)
""",
        },
    ),
)

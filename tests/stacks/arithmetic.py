"""What parameters, gradients and optimizer states of a workload take by arithmetic: elements x bytes, rounded to 512.

Builds the workload's model on the meta device from the example's own configuration, so nothing here comes from a
rehearsal. `python -m tests.stacks.arithmetic` writes it; the tests compare it with what footprints say.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from . import goldens

# bitsandbytes keeps states of smaller tensors in 32 bits, and one absmax in 32 bits for each block of the others.
BNB_LEAST_ELEMENTS, BNB_BLOCK_ELEMENTS, BNB_MAP_BYTES = 4096, 256, 256 * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    parameter_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int


def arithmetic(name: str) -> Arithmetic:
    """By arithmetic, for one workload of workloads.toml."""
    import torch

    model_of, states_of = _WORKLOADS[name]
    with torch.device("meta"):
        model = model_of()
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    shared = 2 * rounded(BNB_MAP_BYTES) if states_of is adam_8bit else 0
    return Arithmetic(
        parameter_bytes=sum(rounded(p.numel() * p.element_size()) for p in parameters),
        gradient_bytes=sum(rounded(p.numel() * p.element_size()) for p in trained),
        optimizer_state_bytes=sum(map(states_of, trained)) + shared,
    )


def rounded(size_bytes: int) -> int:
    return -(-size_bytes // 512) * 512


def momentum(parameter: Any) -> int:
    return rounded(parameter.numel() * parameter.element_size())


def adam(parameter: Any) -> int:
    return 2 * momentum(parameter)


def fused_adam(parameter: Any) -> int:
    return 2 * momentum(parameter) + rounded(4)  # its count of steps is on the card


def adam_8bit(parameter: Any) -> int:
    elements = parameter.numel()
    if elements < BNB_LEAST_ELEMENTS:
        return 2 * rounded(4 * elements)
    return 2 * (rounded(elements) + rounded(4 * -(-elements // BNB_BLOCK_ELEMENTS)))


def _example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, goldens.ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _gpt2() -> Any:
    return _example("gpt2").GPT2()


def _resnet152() -> Any:
    import torchvision

    return torchvision.models.resnet152()


def _hugging_face_gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def _small_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32000,
            hidden_size=1024,
            intermediate_size=2816,
            num_hidden_layers=8,
            num_attention_heads=16,
            num_key_value_heads=16,
            max_position_embeddings=2048,
        )
    )


def _small_llama_lora() -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(_small_llama(), LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))


_WORKLOADS: dict[str, tuple[Callable[[], Any], Callable[[Any], int]]] = {
    "gpt2": (_gpt2, adam),
    "gpt2-compile": (_gpt2, adam),
    "resnet152-8": (_resnet152, momentum),
    "resnet152-16": (_resnet152, momentum),
    "trainer": (_small_llama, adam),
    "trainer-bf16": (_small_llama, adam),
    "trainer-checkpointing": (_small_llama, adam),
    "trainer-lora": (_small_llama_lora, adam),
    "adamw-8bit": (_hugging_face_gpt2, adam_8bit),
}
KNOWN = tuple(_WORKLOADS)


_COMMITTED = goldens.HERE / "expected" / "arithmetic.toml"


def committed() -> dict[str, Arithmetic]:
    """What was written last: the tests need no model for it."""
    return {name: Arithmetic(**values) for name, values in goldens.tomllib.loads(_COMMITTED.read_text()).items()}


def main() -> None:
    lines = ["# Bytes by arithmetic, of the models and optimizers themselves: `python -m tests.stacks.arithmetic`."]
    for name in KNOWN:
        lines += ["", f"[{name}]", *(f"{key} = {value}" for key, value in asdict(arithmetic(name)).items())]
    _COMMITTED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

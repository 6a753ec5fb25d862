"""Fused attention: one kernel goes from queries, keys and values to the result, and keeps no square of weights."""

from __future__ import annotations

import functools
from typing import Any
from weakref import WeakSet

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import CannotSwitchOn, Moments

_CALL = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"


def _why_not(facts: Facts) -> str:
    square_bytes = facts.attention_square_bytes
    for model in facts.models:
        if (
            model.attention == "eager"
            or model.multihead_with_weights
            or (square_bytes and model.kind.startswith("timm."))
        ):
            return ""
    if not square_bytes:
        return "no attention was seen whose weights are kept"
    return (
        f"the program computes attention in its own code, with a square of {square_bytes / 2**20:.1f} MiB for each "
        f"layer; write {_CALL} in its place"
    )


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    seen: WeakSet[torch.nn.Module] = WeakSet()

    def fuse(model: torch.nn.Module, *_: Any) -> None:
        if model in seen:
            return
        seen.add(model)
        for module in model.modules():
            if _set_in_transformers(module) or _set_in_timm(module):
                moments.acts()

    moments.when_model_is_called(fuse)
    _have_no_weights_returned(moments)


def _set_in_transformers(module: Any) -> bool:
    """Have a PreTrainedModel that computes attention step by step use torch's own function; whether it did."""
    if not hasattr(module, "set_attn_implementation") or module.config._attn_implementation != "eager":
        return False
    name = type(module).__name__
    if getattr(module.config, "output_attentions", False):
        raise CannotSwitchOn(f"The program asks {name} for the attention's weights (output_attentions=True).")
    try:
        module.set_attn_implementation("sdpa")
    except (ValueError, ImportError) as error:
        raise CannotSwitchOn(f"transformers has no fused attention for {name}: {error}") from error
    if module.config._attn_implementation != "sdpa":
        raise CannotSwitchOn(
            f"transformers has no fused attention for {name}, or cannot set it in a model that exists."
        )
    return True


def _set_in_timm(module: Any) -> bool:
    if not type(module).__module__.startswith("timm.") or getattr(module, "fused_attn", True):
        return False
    module.fused_attn = True
    return True


def _have_no_weights_returned(moments: Moments) -> None:
    """Have nn.MultiheadAttention not return its weights; it then keeps none. A program that uses them is refused."""
    import torch

    @moments.guard
    def refuse() -> None:
        raise CannotSwitchOn(
            "The program uses the weights that nn.MultiheadAttention returns, and a fused kernel has none. Compute "
            "them in a call of its own, without gradients, where they are shown."
        )

    class Unused(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> Any:
            refuse()

    real = torch.nn.MultiheadAttention.forward

    @functools.wraps(real)
    def forward(self: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(("key_padding_mask", "need_weights"), args, strict=False))
        if torch.compiler.is_compiling() or not (given | kwargs).get("need_weights", True):
            return real(self, query, key, value, *args, **kwargs)
        if len(args) > 1:
            args = (args[0], False, *args[2:])
        else:
            kwargs["need_weights"] = False
        moments.acts()
        output, _ = real(self, query, key, value, *args, **kwargs)
        return output, torch.empty(0, device=output.device).as_subclass(Unused)

    torch.nn.MultiheadAttention.forward = forward  # type: ignore[method-assign]


MEASURES = (
    Measure(
        name="fused-attention",
        title="fused attention",
        what="One kernel goes from queries, keys and values to the result; step by step, a square of weights is kept "
        "for each head and each pair of positions.",
        group="attention",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        not_counted="It is faster: the square is not written and read.",
        snippets={
            "pytorch": f"attended = {_CALL}  # for softmax(q @ k.mT) @ v\n"
            "attended, _ = attention(x, x, x, need_weights=False)  # of an nn.MultiheadAttention\n"
            "timm.layers.set_fused_attn(True, experimental=True)  # before a model of timm is made",
            "transformers": 'AutoModelForCausalLM.from_pretrained(..., attn_implementation="sdpa")\n'
            "attended, _ = attention(x, x, x, need_weights=False)  # of an nn.MultiheadAttention",
        },
    ),
)

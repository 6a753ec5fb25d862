"""The estimate: every term, when it is held, and the highest sum of those that are held together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dryfit.cards import Card, find_card, how_it_fits
from dryfit.errors import UsageError
from dryfit.estimate.find import find_model
from dryfit.estimate.left_out import left_out
from dryfit.estimate.lora import ALL_LINEAR, TARGETS, with_lora
from dryfit.estimate.model import Model, Seen, Tensor
from dryfit.estimate.optimizers import Optimizer, check_implementation, find_optimizer
from dryfit.estimate.rule import Rule, rule_of_thumb
from dryfit.estimate.words import nearest_of

SCHEMA = "dryfit.estimate/1"

DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4}
_OTHER_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_FLOAT_BYTES, _AUTOCAST_BYTES = 4, 2

Held = Literal["always", "forward and backward", "backward to zero_grad", "during the step", "outside PyTorch"]
ALWAYS: Held = "always"
FORWARD: Held = "forward and backward"
GRADIENT: Held = "backward to zero_grad"
STEP: Held = "during the step"
MANAGED: Held = "outside PyTorch"

AT_STEP, IN_FORWARD = "optimizer step", "forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of the sum: `size_bytes` held while `held` says; None where it depends on shapes that are not known."""

    name: str
    size_bytes: int | None
    held: Held
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCard:
    """What the terms mean for a card: never that it fits, since they are a lower bound.

    `largest_parameter_count` is the model of the same kind and options with which these terms alone fill the card.
    """

    key: str
    name: str
    usable_bytes: int
    too_small: bool
    largest_parameter_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What training a model takes by arithmetic alone; all sizes are bytes, as PyTorch's allocator counts them.

    `between_steps_bytes` is held always, `forward_bytes` when the forward pass ends and `step_bytes` at the optimizer's
    step; `at_least_bytes` is the higher of the two, at `highest_at`. What `left_out` names comes on top.
    """

    what: str
    found: str
    parameter_count: int
    trained_count: int
    tensor_count: int | None
    options: dict[str, Any]
    terms: tuple[Term, ...]
    between_steps_bytes: int
    forward_bytes: int
    step_bytes: int
    at_least_bytes: int
    highest_at: str
    rule: Rule | None
    card: OnCard | None
    left_out: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.card is not None and self.card.too_small else 0

    def to_dict(self) -> dict[str, Any]:
        """The estimate in JSON's types, as docs/estimate.md has it."""
        return {"schema": SCHEMA, **asdict(self)}


def estimate(
    what: str | Model,
    *,
    dtype: str | None = None,
    optimizer: str = "adamw",
    implementation: str | None = None,
    master_weights: bool = False,
    amp: bool = False,
    lora_rank: int | None = None,
    lora_targets: str = ALL_LINEAR,
    gpu: str | None = None,
) -> Estimate:
    """Add up what training a model takes, without running it.

    >>> round(estimate("125e6", dtype="bf16", optimizer="adamw-32bit").at_least_bytes / 2**30, 2)
    1.4

    `what` is a count of parameters, a model of torchvision or timm, a Hugging Face config.json (or a folder that has
    one), or `module:factory`. `dtype` is that of parameters and gradients; without it they are as built, float32 where
    nothing is. `implementation` is "foreach", "for-loop" or "fused", by default the optimizer's own.

    Raises:
        UsageError: the model, the optimizer or the card is not known, or the options contradict each other.
    """
    chosen = find_optimizer(optimizer)
    implementation = check_implementation(chosen, implementation)
    dtype = _known_dtype(dtype)
    card = find_card(gpu) if gpu else None
    _check(dtype, master_weights=master_weights, amp=amp, lora_rank=lora_rank, lora_targets=lora_targets)
    model = _in_dtype(what if isinstance(what, Model) else find_model(what), dtype)
    adapters: tuple[Tensor, ...] = ()
    if lora_rank is not None:
        model, adapters = with_lora(model, lora_rank, lora_targets)
    trained = [tensor for tensor in (*model.parameters, *adapters) if tensor.trained]
    if not trained:
        raise UsageError(f"No parameter of {model.given} is trained: all are frozen. Nothing is there to optimise.")
    seen = Seen(tensors=tuple(trained), shapes_known=model.shapes_known)
    terms = [
        *_model_terms(model, adapters),
        *_training_terms(seen, chosen, implementation, master_weights=master_weights),
        *(_autocast_terms(model, adapters) if amp else ()),
    ]
    between = _sum(terms, ALWAYS)
    forward, step = between + _sum(terms, FORWARD), between + _sum(terms, GRADIENT, STEP)
    count = model.parameter_count
    return Estimate(
        what=model.given,
        found=model.found,
        parameter_count=count,
        trained_count=sum(tensor.elements for tensor in trained),
        tensor_count=len(model.parameters) if model.shapes_known else None,
        options={
            "dtype": dtype or _dtype_as_built(model),
            "optimizer": chosen.name,
            "optimizer_title": chosen.title,
            "implementation": implementation,
            "master_weights": master_weights,
            "amp": amp,
            "lora_rank": lora_rank,
            "lora_targets": lora_targets if lora_rank is not None else None,
        },
        terms=tuple(terms),
        between_steps_bytes=between,
        forward_bytes=forward,
        step_bytes=step,
        at_least_bytes=max(forward, step),
        highest_at=AT_STEP if step >= forward else IN_FORWARD,
        rule=rule_of_thumb(model, chosen, master_weights=master_weights) if not adapters else None,
        card=_on_card(card, max(forward, step), count) if card else None,
        left_out=left_out(model, amp=amp),
        notes=_notes(model, adapters, dtype),
    )


def _known_dtype(text: str | None) -> str | None:
    if text is None:
        return None
    name = _OTHER_DTYPES.get(text.lower().removeprefix("torch."), text.lower())
    if name not in DTYPES:
        raise UsageError(
            f"{text!r} is no dtype that parameters are trained in. {nearest_of(name, [*DTYPES, *_OTHER_DTYPES])}Choose "
            f"{', '.join(DTYPES)}."
        )
    return name


def _check(dtype: str | None, *, master_weights: bool, amp: bool, lora_rank: int | None, lora_targets: str) -> None:
    """Refuse options that contradict each other."""
    if amp and dtype not in (None, "fp32"):
        raise UsageError(
            "--amp keeps the parameters in float32 and lets autocast make 16-bit copies of them; "
            f"--dtype {dtype} has the parameters themselves in 16 bits. Give one of the two."
        )
    if master_weights and dtype not in ("bf16", "fp16"):
        raise UsageError(
            "--master-weights are a float32 copy of parameters in 16 bits; say which: --dtype bf16 or --dtype fp16."
        )
    if master_weights and lora_rank is not None:
        raise UsageError(
            "--master-weights and --lora-rank exclude each other: peft's adapters are float32 as they are, and nothing "
            "else is trained. Leave out --master-weights."
        )
    if lora_targets not in TARGETS:
        raise UsageError(f"--lora-targets {lora_targets} is not known; choose {' or '.join(TARGETS)}.")


def _in_dtype(model: Model, dtype: str | None) -> Model:
    """The model with its floating tensors in that dtype, as `model.to(dtype)` leaves it."""
    if dtype is None:
        return model

    def cast(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        itemsize = DTYPES[dtype]
        return tuple(replace(tensor, itemsize=itemsize) if tensor.floating else tensor for tensor in tensors)

    return replace(model, parameters=cast(model.parameters), buffers=cast(model.buffers))


def _dtype_as_built(model: Model) -> str:
    sizes = {tensor.itemsize for tensor in model.parameters}
    return "fp32" if sizes == {_FLOAT_BYTES} else "as built"


def _model_terms(model: Model, adapters: tuple[Tensor, ...]) -> list[Term]:
    frozen = " (frozen)" if adapters else ""
    parameters = Seen(tensors=model.parameters, shapes_known=model.shapes_known)
    terms = [Term(name=f"parameters{frozen}", size_bytes=sum(parameters.sizes()), held=ALWAYS)]
    if adapters:
        dtype = "float32" if all(tensor.itemsize == _FLOAT_BYTES for tensor in adapters) else ""
        size_bytes = sum(parameters.only(adapters).sizes())
        what = f"{len(adapters) // 2:,} layers adapted{f', in {dtype}' if dtype else ''}"
        terms.append(Term(name="LoRA adapters", size_bytes=size_bytes, held=ALWAYS, what=what))
    if model.buffers:
        terms.append(Term(name="buffers", size_bytes=sum(parameters.only(model.buffers).sizes()), held=ALWAYS))
    return terms


def _training_terms(seen: Seen, optimizer: Optimizer, implementation: str, *, master_weights: bool) -> list[Term]:
    terms = [Term(name="gradients", size_bytes=sum(seen.sizes()), held=GRADIENT)]
    if master_weights:
        seen = seen.only(replace(tensor, itemsize=_FLOAT_BYTES) for tensor in seen.tensors)
        terms.append(Term(name="master weights", size_bytes=sum(seen.sizes()), held=ALWAYS, what="a float32 copy"))
    for state in optimizer.states(seen, implementation):
        held = MANAGED if state.managed else ALWAYS
        terms.append(
            Term(name=f"optimizer state {state.name}", size_bytes=state.size_bytes, held=held, what=state.what)
        )
    if master_weights:
        what = "the gradients of the master weights"
        terms.append(Term(name="float32 gradients", size_bytes=sum(seen.sizes()), held=STEP, what=what))
    transient = optimizer.transient(seen, implementation)
    terms.append(Term(name="step's temporaries", size_bytes=transient.size_bytes, held=STEP, what=transient.why))
    return terms


def _autocast_terms(model: Model, adapters: tuple[Tensor, ...]) -> list[Term]:
    """The copies that autocast keeps until the forward pass is over, and backward what it needs of them."""
    name = "autocast weight copies"
    if not model.shapes_known:
        what = "up to 2 bytes a parameter; which are cast, a count does not say"
        return [Term(name=name, size_bytes=None, held=FORWARD, what=what)]
    cast = [tensor for tensor in (*model.parameters, *adapters) if tensor.autocasts and tensor.itemsize == _FLOAT_BYTES]
    copies = Seen(tensors=tuple(replace(tensor, itemsize=_AUTOCAST_BYTES) for tensor in cast), shapes_known=True)
    what = "16-bit, of linear and convolution layers"
    return [Term(name=name, size_bytes=sum(copies.sizes()), held=FORWARD, what=what)]


def _sum(terms: Iterable[Term], *held: Held) -> int:
    return sum(term.size_bytes or 0 for term in terms if term.held in held)


def _on_card(card: Card, need_bytes: int, parameter_count: int) -> OnCard:
    return OnCard(
        key=card.key,
        name=card.name,
        usable_bytes=card.usable_bytes,
        too_small=how_it_fits(card, need_bytes) == "too small",
        largest_parameter_count=card.usable_bytes * parameter_count // need_bytes,
    )


def _notes(model: Model, adapters: tuple[Tensor, ...], dtype: str | None) -> tuple[str, ...]:
    notes = list(model.notes)
    if dtype is None and model.config_dtype not in (None, "fp32"):
        notes.append(
            f"The config names another dtype: for a from_pretrained that goes by it, add --dtype {model.config_dtype}."
        )
    if not model.shapes_known:
        notes.append("Of a count, the shapes are not known: nothing is rounded to the allocator's blocks of 512 bytes.")
    frozen = sum(tensor.elements for tensor in model.parameters if not tensor.trained)
    if frozen and not adapters:
        notes.append(f"{frozen:,} parameters are frozen: they have no gradients and no optimizer state.")
    return tuple(notes)

"""What each optimizer keeps, by state, and what its step holds for a while.

Read from the optimizers' sources (torch 2.14, bitsandbytes 0.50) and equal, to the byte, to rehearsals of them on the
virtual card (`tests/estimate/test_optimizers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dryfit.errors import UsageError
from dryfit.estimate import bitsandbytes, step
from dryfit.estimate.model import Seen
from dryfit.estimate.state import State, like_parameters
from dryfit.estimate.step import Transient
from dryfit.estimate.words import nearest_of

FOREACH, FOR_LOOP, FUSED = "foreach", "for-loop", "fused"

_BYTES_OF_A_COUNTER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """An optimizer's arithmetic; the first of `implementations` is its default.

    `rule_bytes` is what the rule of thumb counts for its states, a parameter; None where there is no such rule.
    """

    name: str
    title: str
    implementations: tuple[str, ...]
    states: Callable[[Seen, str], list[State]]
    transient: Callable[[Seen, str], Transient]
    rule_bytes: int | None = None


def find_optimizer(text: str) -> Optimizer:
    """Give the optimizer of that name; case and underscores do not count, and Hugging Face's names are known.

    >>> find_optimizer("AdamW").name, find_optimizer("paged_adamw_8bit").name, find_optimizer("adamw_torch").name
    ('adamw', 'paged-adamw-8bit', 'adamw')

    Raises:
        UsageError: there is none; the nearest names are in the message.
    """
    name = text.lower().replace("_", "-")
    name = _OTHER_NAMES.get(name, name)
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    raise UsageError(
        f"dryfit has no arithmetic for an optimizer called {text!r}. {nearest_of(name, OPTIMIZERS)}"
        f"It knows {', '.join(OPTIMIZERS)}; any other can be rehearsed with `dryfit run`."
    )


def check_implementation(optimizer: Optimizer, wanted: str | None) -> str:
    """Give the implementation that is meant, the default where none is named.

    Raises:
        UsageError: the optimizer has no such implementation.
    """
    if wanted is None or wanted in optimizer.implementations:
        return wanted or optimizer.implementations[0]
    has = optimizer.implementations
    raise UsageError(
        f"{optimizer.title} ({optimizer.name}) has no {wanted} implementation, only {' and '.join(has)}. Leave out "
        f"--{wanted}, or choose an optimizer that has it: {', '.join(_with_implementation(wanted))}."
    )


def _with_implementation(wanted: str) -> list[str]:
    return [name for name, optimizer in OPTIMIZERS.items() if wanted in optimizer.implementations]


def _keeps(*names: str, counter: bool = False) -> Callable[[Seen, str], list[State]]:
    """States like the parameters, in their dtype; a fused step's counter is on the card."""

    def states(seen: Seen, implementation: str) -> list[State]:
        found = [like_parameters(name, seen) for name in names]
        if counter and implementation == FUSED and seen.shapes_known:
            counters_bytes = len(seen.tensors) * seen.block_bytes(1, _BYTES_OF_A_COUNTER)
            found.append(State(name="step", size_bytes=counters_bytes, what="a counter for each tensor"))
        return found

    return states


def _adafactor_states(seen: Seen, implementation: str) -> list[State]:
    """Row and column sums for what has two dimensions or more, as PyTorch's Adafactor keeps them."""
    if not seen.shapes_known:
        why = "rows and columns alone: they depend on the shapes, and are below 1% of large matrices"
        return [State(name="row_var", size_bytes=None, what=why), State(name="col_var", size_bytes=None, what=why)]
    rows = columns = vectors = 0
    for tensor in seen.tensors:
        if len(tensor.shape) > 1:
            rows += seen.block_bytes(tensor.elements // max(tensor.shape[-1], 1), tensor.itemsize)
            columns += seen.block_bytes(tensor.elements // max(tensor.shape[-2], 1), tensor.itemsize)
        else:
            vectors += seen.block_bytes(tensor.elements, tensor.itemsize)
    return [
        State(name="row_var", size_bytes=rows, what="a value for each row"),
        State(name="col_var", size_bytes=columns, what="a value for each column"),
        State(name="variance", size_bytes=vectors, what="of vectors"),
    ]


def _muon_states(seen: Seen, implementation: str) -> list[State]:
    matrices, rest = step.muon_split(seen)
    states = [like_parameters("momentum_buffer", matrices)]
    if rest.tensors:
        states += [like_parameters(name, rest, "of what AdamW has") for name in ("exp_avg", "exp_avg_sq")]
    return states


def _table(*optimizers: Optimizer) -> dict[str, Optimizer]:
    return {optimizer.name: optimizer for optimizer in optimizers}


def _of_torch(
    name: str,
    title: str,
    implementations: tuple[str, ...],
    states: Callable[[Seen, str], list[State]],
    transient: Callable[[Seen, str], Transient],
    rule_bytes: int | None = None,
) -> Optimizer:
    return Optimizer(
        name=name,
        title=f"torch.optim.{title}",
        implementations=implementations,
        states=states,
        transient=transient,
        rule_bytes=rule_bytes,
    )


def _of_bitsandbytes(name: str, title: str, states: int, bits: int, paged: bool = False) -> Optimizer:
    return Optimizer(
        name=name,
        title=f"bitsandbytes {title}",
        implementations=(FUSED,),
        states=lambda seen, _: bitsandbytes.states(seen, count=states, bits=bits, paged=paged),
        transient=lambda seen, _: step.none("its kernel updates in place"),
        rule_bytes=2 * bits // 8 if states == 2 else None,
    )


_ADAM = _keeps("exp_avg", "exp_avg_sq", counter=True)
_ALL = (FOREACH, FOR_LOOP, FUSED)

OPTIMIZERS: dict[str, Optimizer] = _table(
    _of_torch("sgd", "SGD", _ALL, _keeps(), step.sgd),
    _of_torch("momentum", "SGD with momentum", _ALL, _keeps("momentum_buffer"), step.sgd),
    _of_torch("adam", "Adam", _ALL, _ADAM, step.adam, rule_bytes=8),
    _of_torch("adamw", "AdamW", _ALL, _ADAM, step.adam, rule_bytes=8),
    _of_torch("adamw-fused", "AdamW", (FUSED,), _ADAM, step.adam, rule_bytes=8),
    _of_torch("adagrad", "Adagrad", _ALL, _keeps("sum", counter=True), step.adagrad),
    _of_torch("rmsprop", "RMSprop", (FOREACH, FOR_LOOP), _keeps("square_avg"), step.rmsprop),
    _of_torch("adafactor", "Adafactor", (FOR_LOOP, FOREACH), _adafactor_states, step.adafactor),
    _of_torch("muon", "Muon", (FOR_LOOP,), _muon_states, step.muon),
    Optimizer(
        name="lion",
        title="Lion",
        implementations=(FOR_LOOP,),
        states=_keeps("exp_avg"),
        transient=step.lion,
    ),
    _of_bitsandbytes("adam-8bit", "Adam8bit", 2, 8),
    _of_bitsandbytes("adamw-8bit", "AdamW8bit", 2, 8),
    _of_bitsandbytes("adamw-32bit", "AdamW", 2, 32),
    _of_bitsandbytes("lion-8bit", "Lion8bit", 1, 8),
    _of_bitsandbytes("paged-adamw-8bit", "PagedAdamW8bit", 2, 8, paged=True),
    _of_bitsandbytes("paged-adamw-32bit", "PagedAdamW", 2, 32, paged=True),
    _of_bitsandbytes("paged-lion-8bit", "PagedLion8bit", 1, 8, paged=True),
)

# How transformers' TrainingArguments and people call the same.
_OTHER_NAMES = {
    "adamw-torch": "adamw",
    "adamw-torch-fused": "adamw-fused",
    "adamw-bnb-8bit": "adamw-8bit",
    "adam8bit": "adam-8bit",
    "adamw8bit": "adamw-8bit",
    "lion8bit": "lion-8bit",
    "paged-adamw": "paged-adamw-32bit",
    "sgd-momentum": "momentum",
}

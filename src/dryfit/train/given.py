"""What users hand to the helpers: refused in words where it is of another kind."""

from __future__ import annotations

from typing import Any, get_args

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from dryfit.errors import UsageError


def modules_of(model: Any, call: str) -> tuple[nn.Module, ...]:
    """The modules in `model`, which is one, or several in a list or tuple; `call` says how the helper is called.

    Raises:
        UsageError: something in it is no module, or there is none.
    """
    given = tuple(model) if isinstance(model, (list, tuple)) else (model,)
    for each in given:
        if not isinstance(each, nn.Module):
            raise UsageError(
                f"{type(each).__name__} is no torch.nn.Module. The call is {call}, where model is a module, or several "
                f"in a list."
            )
    if not given:
        raise UsageError(f"The list of models is empty. The call is {call}, where model is what gets gradients.")
    return given


def optimizers_of(optimizer: Any) -> tuple[Optimizer, ...]:
    """The optimizers in `optimizer`, which is one, or several in a list or tuple.

    Raises:
        UsageError: something in it is no optimizer, or there is none.
    """
    given = tuple(optimizer) if isinstance(optimizer, (list, tuple)) else (optimizer,)
    if not given:
        raise UsageError("accumulate was given no optimizer.")
    for each in given:
        if isinstance(getattr(each, "optimizer", None), Optimizer):
            raise UsageError(
                f"{type(each).__name__} is a wrapper that decides by itself when to step. Give accumulate the "
                f"optimizer inside it (optimizer.optimizer), or use the accumulation of the library it comes from."
            )
        if not isinstance(each, Optimizer):
            raise UsageError(f"{type(each).__name__} is no torch.optim.Optimizer.")
    return given


def schedulers_of(scheduler: Any) -> tuple[Any, ...]:
    """The schedulers in `scheduler`, which is None, one, or several in a list or tuple.

    Raises:
        UsageError: one has no step of its own.
    """
    if scheduler is None:
        return ()
    given = tuple(scheduler) if isinstance(scheduler, (list, tuple)) else (scheduler,)
    for each in given:
        if isinstance(each, type) or not callable(getattr(each, "step", None)):
            raise UsageError(f"scheduler={each!r} is no schedule that has a step(), such as StepLR(optimizer, 10).")
    return given


def enabled(scaler: Any) -> GradScaler | None:
    """The scaler, unless it is there only to be switched on elsewhere.

    Raises:
        UsageError: it is none.
    """
    if scaler is None:
        return None
    if not isinstance(scaler, GradScaler):
        raise UsageError(f"scaler={scaler!r} is no torch.amp.GradScaler.")
    return scaler if scaler.is_enabled() else None


def require_micro_batch(given: Any, name: str = "micro_batch") -> None:
    """Refuse what is no number of samples.

    Raises:
        UsageError: it is none.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError(f"{name}={given!r}: it is a number of samples, 1 or more.")


def require_one_of(given: Any, kind: Any, name: str) -> None:
    """Refuse what is not among the values of a Literal.

    Raises:
        UsageError: it is not.
    """
    if given not in get_args(kind):
        raise UsageError(f"{name}={given!r} is none of {', '.join(map(repr, get_args(kind)))}.")

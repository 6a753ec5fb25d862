"""The moment at which a program moves a model to the card: what has to be done to it while it is on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dryfit.measures.instead import instead
from dryfit.measures.moments import Moments

if TYPE_CHECKING:
    import torch


def before_model_is_moved(moments: Moments, do: Callable[[torch.nn.Module], bool]) -> None:
    """Have `do(model)` called before a model is moved from the host to the card, with the dtype it is to have there.

    It returns whether the model is on the card then, so that nothing is left to move.
    """
    import torch

    moving = False

    def moved(real: Callable[..., Any], self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal moving
        if moving or not _goes_to_card(args, kwargs) or not _is_on_host(self):
            return real(self, *args, **kwargs)
        moving = True
        try:
            for each in (*args, *kwargs.values()):
                if isinstance(each, torch.dtype):
                    real(self, dtype=each)
            return self if moments.guard(do)(self) else real(self, *args, **kwargs)
        finally:
            moving = False

    def moved_by_name(real: Callable[..., Any], self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return moved(lambda module, *_, **__: real(module, *args, **kwargs), self, "cuda")

    instead(torch.nn.Module, "to", moved)
    instead(torch.nn.Module, "cuda", moved_by_name)


def _goes_to_card(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    import torch

    given = [*args[:1], kwargs.get("device")]
    return any(
        str(each).startswith("cuda") if isinstance(each, (str, torch.device)) else type(each) is int for each in given
    )


def _is_on_host(model: torch.nn.Module) -> bool:
    return {parameter.device.type for parameter in model.parameters()} == {"cpu"}

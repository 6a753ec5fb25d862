"""The moment at which a program gives a model to DDP: what changes parameters has to be done before.

DDP makes its buckets for the parameters that want gradients then, and knows of no others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dryfit.measures.instead import instead
from dryfit.measures.moments import Moments

if TYPE_CHECKING:
    import torch


def before_ddp_gets(moments: Moments, do: Callable[[torch.nn.Module], object]) -> None:
    """Have `do(model)` called before a DistributedDataParallel is made of a model."""
    import torch

    def make(real: Callable[..., None], self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        moments.guard(do)(module)
        real(self, module, *args, **kwargs)

    instead(torch.nn.parallel.DistributedDataParallel, "__init__", make)

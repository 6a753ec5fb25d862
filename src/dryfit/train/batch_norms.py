"""BatchNorm under gradient accumulation: the one common layer whose result depends on how a batch is cut."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import nn

from dryfit.train.warning_classes import BatchNormWarning

_KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_NAMED = 4


def batch_norms_in_train_mode(model: nn.Module) -> dict[str, nn.Module]:
    """The layers that normalise by the statistics of the batch at hand, by their names in the model.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LayerNorm(4))
    >>> list(batch_norms_in_train_mode(model)), list(batch_norms_in_train_mode(model.eval()))
    (['1'], [])

    LayerNorm, GroupNorm and InstanceNorm look at one sample at a time and are never among them. A BatchNorm without
    running statistics is, in eval mode too.
    """
    return {
        name or "the model itself": layer
        for name, layer in model.named_modules()
        if isinstance(layer, _KINDS) and (layer.training or layer.running_mean is None)
    }


def name_layers(names: Sequence[str]) -> str:
    """A few of the names, and how many more there are.

    >>> name_layers(["bn1", "bn2"]), name_layers(["a", "b", "c", "d", "e", "f"])
    ('bn1, bn2', 'a, b, c, d and 2 more')
    """
    named = ", ".join(names[:_NAMED])
    return named if len(names) <= _NAMED else f"{named} and {len(names) - _NAMED} more"


def warn_of_batch_norms(models: Sequence[nn.Module], steps: int) -> None:
    """Warn of BatchNorm layers that will see one micro-batch at a time, where the large batch would be seen at once."""
    names = [name for model in models for name in batch_norms_in_train_mode(model)]
    if names and steps > 1:
        warnings.warn(
            f"BatchNorm in train mode at {name_layers(names)}: it normalises each micro-batch by the statistics of "
            f"that micro-batch alone, and moves its running statistics {steps} times per optimizer step. Gradients "
            f"will not equal those of the large batch. Use GroupNorm, or freeze the statistics (layer.eval()), or keep "
            f"the batch whole and save memory by activation checkpointing instead of accumulation.",
            BatchNormWarning,
            stacklevel=3,
        )

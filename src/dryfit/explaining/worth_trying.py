"""Which other settings of the allocator are worth playing a recording under."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dryfit.rehearse.allocator_settings import AllocatorSettings, parse_settings
from dryfit.units import MIB

# Those that PyTorch's documentation and most answers name. Below the one everything else is split as ever; from 512 MiB
# on are the buffers that smaller tensors should not cut up.
_MAX_SPLIT_BYTES = (128 * MIB, 512 * MIB)
_DIVISIONS = 8
_POWERS = 16


def worth_trying(recorded: AllocatorSettings) -> tuple[AllocatorSettings, ...]:
    """The settings to try beside the recorded ones, the likeliest help first; never what is set already.

    >>> [settings.text() for settings in worth_trying(AllocatorSettings())][:2]
    ['expandable_segments:True', 'max_split_size_mb:128']

    Collecting garbage is left out: without a memory fraction PyTorch never does it, and before it fails it gives back
    all that this could.
    """
    if recorded.expandable_segments:
        return (replace(recorded, expandable_segments=False),)
    found = [replace(recorded, expandable_segments=True, max_split_size_bytes=None)]
    found += [
        replace(recorded, max_split_size_bytes=size)
        for size in _MAX_SPLIT_BYTES
        if size != recorded.max_split_size_bytes
    ]
    if not recorded.roundup_power2_divisions:
        found.append(replace(recorded, roundup_power2_divisions=(_DIVISIONS,) * _POWERS))
    return tuple(found)


def as_asked(settings: str | Iterable[str] | None, recorded: AllocatorSettings) -> tuple[AllocatorSettings, ...]:
    """The settings that a person names, each as `PYTORCH_CUDA_ALLOC_CONF` has it; without any, those worth trying.

    Raises:
        UsageError: they are no settings of PyTorch's allocator.
    """
    if settings is None:
        return worth_trying(recorded)
    asked = [settings] if isinstance(settings, str) else list(settings)
    found = (parse_settings(text) for text in asked)
    return tuple(each for each in dict.fromkeys(found) if each != recorded)

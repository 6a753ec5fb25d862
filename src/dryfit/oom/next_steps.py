"""Next steps, by what a version of PyTorch has and what is set already."""

from __future__ import annotations

import re

from dryfit.oom.conclusion import Facts
from dryfit.oom.settings import UNSUPPORTED, allocator_settings, is_on, with_setting
from dryfit.units import MIB

# What a tensor of a wrong shape asks for, such as (n, 1) with (n,) by broadcasting.
_MANY_DEVICES = 16


def joined(facts: Facts) -> str:
    """How to get the pieces together, by what this version has and is not set to already."""
    message, settings = facts.message, facts.settings
    largest_first = (
        "Let the largest batch come first, so that later ones fit in its memory; a snapshot shows what lies between "
        "the pieces: torch.cuda.memory._record_memory_history(), then `dryfit explain SNAPSHOT`."
    )
    if is_on(settings, "expandable_segments"):
        reason = "Expandable segments cannot be had on this platform. "
        if allocator_settings(settings).get("expandable_segments") != UNSUPPORTED:
            reason = "Expandable segments are on already, so what is left are holes within them. "
        return reason + largest_first
    if message.backend not in ("cuda", "hip", "npu"):
        return largest_first
    if not is_before(message.format, (2, 1)) or message.backend == "npu":
        return f"Set {with_setting(message, settings, 'expandable_segments', 'True')}, which lets such pieces move."
    if is_before(message.format, (1, 10)) or is_on(settings, "max_split_size_mb"):
        return (
            "Take PyTorch 2.1 or later and set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; this version cannot "
            "join such pieces."
        )
    return (
        f"Set {with_setting(message, settings, 'max_split_size_mb', str(_split_mb(message.requested_bytes or 0)))}, "
        "so that small tensors do not break up large segments; PyTorch 2.1 and later do it better, by "
        "expandable_segments:True."
    )


def _split_mb(requested_bytes: int) -> int:
    """The largest power of two that is not above the request, within what is of use."""
    return int(min(max(1 << max((requested_bytes // MIB).bit_length() - 1, 0), 32), 512))


def raised_limit(facts: Facts) -> str:
    settings = allocator_settings(facts.settings)
    if fraction := settings.get("per_process_memory_fraction"):
        return f"Raise per_process_memory_fraction:{fraction}, or lower the peak below it: {facts.smaller}."
    return (
        f"Raise the fraction that set_per_process_memory_fraction was called with, or lower the peak: {facts.smaller}."
    )


def look_at_the_shape(requested_bytes: int, whole_bytes: int) -> str:
    if requested_bytes < _MANY_DEVICES * whole_bytes:
        return ""
    return "So large a tensor is rather a mistake in a shape, such as (n, 1) with (n,): look at the shapes there. "


def who_has_it(facts: Facts) -> str:
    return {"hip": "`rocm-smi --showpids`", "xpu": "`xpu-smi ps`", "npu": "`npu-smi info`"}.get(
        facts.message.backend, "`nvidia-smi`"
    )


def is_before(format: str, version: tuple[int, int]) -> bool:
    """Whether the first version that wrote this format, and so at most a few after it, is before another."""
    found = re.search(r" (\d+)\.(\d+)", format)
    return found is not None and (int(found[1]), int(found[2])) < version

"""Settings that decide how memory is used: as given, and as a text names them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dryfit.oom.message import OomMessage

# The newer name is read first where both are set (2.9 and later).
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF")
_OF_BACKEND = {"hip": "PYTORCH_HIP_ALLOC_CONF", "npu": "PYTORCH_NPU_ALLOC_CONF"}
UNSUPPORTED = "unsupported"

_ASSIGNED = re.compile(
    r"(?<!setting )(?<!Use )\b(?P<name>PYTORCH_(?:CUDA_|HIP_|NPU_)?ALLOC_CONF|PYTORCH_MPS_HIGH_WATERMARK_RATIO"
    r"|UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS)"
    r"['\"]?\]?\s{0,4}[=:,]\s{0,4}['\"]?(?P<value>[\w.:,;>\[\]-]{1,300})"
)
_UNSUPPORTED = re.compile(r"expandable_segments not supported on this platform")


def settings_in(text: str) -> dict[str, str]:
    """The settings of memory that a text sets, other than those that an error's message advises.

    >>> settings_in("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    {'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}
    >>> settings_in("try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.")
    {}
    """
    found = {each["name"]: each["value"].rstrip(".,:;") for each in _ASSIGNED.finditer(text)}
    if _UNSUPPORTED.search(text):
        found["expandable_segments"] = UNSUPPORTED
    return found


def allocator_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The allocator's own settings by name, of environment variables or of names given directly.

    >>> allocator_settings({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True"})
    {'max_split_size_mb': '128', 'expandable_segments': 'True'}
    """
    named: dict[str, str] = {}
    for variable in reversed(VARIABLES):
        # A comma within brackets belongs to a value: roundup_power2_divisions:[256:1,512:2].
        for each in re.split(r",(?![^\[\]]{0,200}\])", settings.get(variable, "")):
            name, colon, value = each.partition(":")
            if colon:
                named[name.strip()] = value.strip()
    return named | {name: value for name, value in settings.items() if name.islower()}


def is_on(settings: Mapping[str, str], name: str) -> bool:
    """Whether a setting of the allocator is there and not off."""
    return allocator_settings(settings).get(name, "False").lower() not in ("false", "0", "")


def with_setting(message: OomMessage, settings: Mapping[str, str], name: str, value: str) -> str:
    """The environment variable that adds a setting to those there are, as the shell takes it."""
    variable = next((each for each in VARIABLES if settings.get(each)), None)
    others = [each for each in settings.get(variable or "", "").split(",") if each and not each.startswith(f"{name}:")]
    variable = variable or _OF_BACKEND.get(message.backend, "PYTORCH_CUDA_ALLOC_CONF")
    return f"{variable}={','.join([*others, f'{name}:{value}'])}"

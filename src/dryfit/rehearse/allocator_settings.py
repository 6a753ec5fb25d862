"""The settings of PyTorch's caching allocator that decide where blocks go, as values and as PyTorch writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dryfit.errors import UsageError
from dryfit.recording.rounding import NO_LIMIT, max_split_bytes
from dryfit.units import MIB

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
# The sizes that `roundup_power2_divisions` is set by, in MiB (`kRoundUpPowerOfTwoIntervals` in AllocatorConfig.h).
_POWERS = tuple(1 << place for place in range(16))
# What torch takes, by its own parser (`AllocatorConfig.cpp`).
_LEAST_SPLIT_MB = 20
_TAKEN = {
    "expandable_segments": "True or False",
    "max_split_size_mb": f"a whole number from {_LEAST_SPLIT_MB} on",
    "garbage_collection_threshold": "a number between 0 and 1",
    "roundup_power2_divisions": "a power of two, or a list of them by size, such as [256:1,512:2,>:4]",
}
# Keys that change no block of the card's memory, or only how fast one is had.
_WITHOUT_EFFECT = (
    "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "pinned_num_register_threads",
    "pinned_use_background_threads", "pinned_reserve_segment_size_mb", "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb", "pinned_max_power2_size_mb", "pinned_free_catch_all",
    "graph_capture_record_stream_reuse",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """What decides where PyTorch's allocator puts a block.

    >>> AllocatorSettings(expandable_segments=True).text()
    'expandable_segments:True'

    The names are PyTorch's; `max_split_size_bytes` is in bytes and None where blocks are split whatever their size.
    `roundup_power2_divisions` are those for sizes from 1, 2, 4 ... MiB on, 0 for none; empty where all are 0.
    """

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    roundup_power2_divisions: tuple[int, ...] = ()
    garbage_collection_threshold: float = 0.0

    def text(self) -> str:
        """The settings as `PYTORCH_CUDA_ALLOC_CONF` has them; "" for PyTorch's defaults."""
        parts = []
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_size_bytes is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size_bytes // MIB}")
        if self.roundup_power2_divisions:
            parts.append(f"roundup_power2_divisions:{_divisions_text(self.roundup_power2_divisions)}")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold:g}")
        return ",".join(parts)

    def in_words(self) -> str:
        """The settings for a sentence."""
        return self.text() or "PyTorch's default settings"

    def for_rounding(self) -> dict[str, Any]:
        """What `recording.replay` reads of a snapshot's `allocator_settings`."""
        divisions = dict(zip(map(str, _POWERS), self.roundup_power2_divisions, strict=False))
        return {"roundup_power2_divisions": divisions, "max_split_size": self.max_split_size_bytes or -1}

    def place_as(self, other: AllocatorSettings) -> bool:
        """Whether blocks lie as under the other settings; collecting garbage only gives memory back earlier."""
        return all(
            getattr(self, each.name) == getattr(other, each.name)
            for each in fields(self)
            if each.name != "garbage_collection_threshold"
        )


def recorded_settings(values: Mapping[str, Any] | None) -> AllocatorSettings:
    """The settings that a snapshot's `allocator_settings` have; what it does not say, or no setting could be, is as by
    default.

    >>> recorded_settings({"max_split_size": 128 * MIB, "expandable_segments": False}).text()
    'max_split_size_mb:128'
    """
    values = values or {}
    split = max_split_bytes(values)
    found = values.get("roundup_power2_divisions")
    divisions: tuple[int, ...] = ()
    if isinstance(found, Mapping):
        divisions = tuple(_whole(found.get(str(power))) for power in _POWERS)
    elif isinstance(found, int):
        divisions = (_whole(found),) * len(_POWERS)
    threshold = values.get("garbage_collection_threshold")
    return AllocatorSettings(
        expandable_segments=values.get("expandable_segments") is True,
        max_split_size_bytes=split if split < NO_LIMIT else None,
        roundup_power2_divisions=divisions if any(divisions) else (),
        garbage_collection_threshold=float(threshold)
        if isinstance(threshold, (int, float)) and 0 < threshold < 1
        else 0.0,
    )


def parse_settings(text: str) -> AllocatorSettings:
    """Read settings as a person writes them for `PYTORCH_CUDA_ALLOC_CONF`.

    >>> parse_settings("expandable_segments:True,roundup_power2_divisions:[256:1,>:4]").text()
    'expandable_segments:True,roundup_power2_divisions:[1:1,2:1,4:1,8:1,16:1,32:1,64:1,128:1,256:1,>:4]'

    Raises:
        UsageError: a key is none of PyTorch's, or decides something else than where blocks go.
    """
    expandable, split, threshold = False, None, 0.0
    divisions: tuple[int, ...] = ()
    for key, value in re.findall(r"\s*([^:,\s]+)\s*:\s*(\[[^\]]*\]|[^,]*)", text.removeprefix(f"{VARIABLE}=")):
        value = value.strip()
        try:
            if key == "expandable_segments":
                expandable = {"true": True, "false": False}[value.lower()]
            elif key == "max_split_size_mb":
                split = int(value) * MIB
                if not _LEAST_SPLIT_MB * MIB <= split < NO_LIMIT:
                    raise ValueError
            elif key == "garbage_collection_threshold":
                threshold = float(value)
                if not 0 < threshold < 1:
                    raise ValueError
            elif key == "roundup_power2_divisions":
                divisions = _parsed_divisions(value)
            elif key == "backend" and value == "native":
                continue
            elif key not in _WITHOUT_EFFECT:
                raise UsageError(
                    f"{key}:{value} is no setting that dryfit can replay a recording under; there are "
                    "expandable_segments, max_split_size_mb, roundup_power2_divisions and garbage_collection_threshold."
                )
        except (ValueError, KeyError):
            raise UsageError(
                f"{key} cannot be {value!r}: PyTorch takes {_TAKEN[key]}; write settings as {VARIABLE} has them, such "
                "as expandable_segments:True,max_split_size_mb:128."
            ) from None
    if text.strip() and ":" not in text:
        raise UsageError(
            f"{text!r} are no settings of PyTorch's allocator; write them as PYTORCH_CUDA_ALLOC_CONF has them, such as "
            "expandable_segments:True,max_split_size_mb:128."
        )
    return AllocatorSettings(
        expandable_segments=expandable,
        max_split_size_bytes=split,
        roundup_power2_divisions=divisions if any(divisions) else (),
        garbage_collection_threshold=threshold,
    )


def _parts(text: str) -> int:
    """Into how many parts a power of two is divided: itself a power of two, or 0 for no rounding."""
    number = int(text)
    if number < 0 or number & (number - 1):
        raise ValueError
    return number


def _parsed_divisions(value: str) -> tuple[int, ...]:
    """One number for all sizes, or a list: the first entry counts for all sizes below it too, ">" for all above."""
    if not value.startswith("["):
        return (_parts(value),) * len(_POWERS)
    divisions = [0] * len(_POWERS)
    is_first, last = True, 0
    for entry in value.strip("[]").split(","):
        power, _, parts = (part.strip() for part in entry.partition(":"))
        if power == ">":
            divisions[last + 1 :] = [_parts(parts)] * (len(_POWERS) - last - 1)
            continue
        last = min(max(int(power).bit_length() - 1, 0), len(_POWERS) - 1)
        divisions[0 if is_first else last : last + 1] = [_parts(parts)] * (last + 1 if is_first else 1)
        is_first = False
    return tuple(divisions)


def _divisions_text(divisions: tuple[int, ...]) -> str:
    if len(set(divisions)) == 1:
        return str(divisions[0])
    end = len(divisions)
    while divisions[end - 1] == divisions[-1] and end > 1:
        end -= 1
    listed = [f"{power}:{parts}" for power, parts in zip(_POWERS, divisions[:end], strict=False)]
    return f"[{','.join([*listed, f'>:{divisions[-1]}'])}]"


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0

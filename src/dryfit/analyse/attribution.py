"""Whose each allocation is: owner, module, line and tensor of every lifetime of a replay."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from dryfit.recording.model import Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Columns beside `Replay.lifetimes`, one entry an allocation.

    `owner` is a place in `recording.model.OWNERS`, `module` one in `modules` (0 is "", no module), `line` one in `lines`
    (0 is none: ("", 0, "")), lines as (file, line, function). `is_logits_or_loss` is 0 or 1. `tensor` has the label that
    names the tensor, where there is one. The block's remainder is not counted with the owner but as `REMAINDER`.
    """

    owner: array[int]
    module: array[int]
    modules: tuple[str, ...]
    line: array[int]
    lines: tuple[tuple[str, int, str], ...]
    is_logits_or_loss: bytearray
    tensor: dict[int, Label]

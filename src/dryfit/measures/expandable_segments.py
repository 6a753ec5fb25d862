"""Expandable segments: the allocator's segments grow in place, so that what is free in them stays in one piece."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import CannotSwitchOn, Moments

_SETTING = "expandable_segments"
# torch 2.4 knows the second alone; newer ones (2.9 to 2.14) read the first, and the second only where that is not set.
_NEWER, _OLDER = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_NO_CACHE = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def merged(settings: str) -> str:
    """The allocator's settings with expandable segments on.

    >>> merged("max_split_size_mb:128,expandable_segments:False")
    'max_split_size_mb:128,expandable_segments:True'
    """
    others = [each for each in settings.split(",") if each.strip() and each.partition(":")[0].strip() != _SETTING]
    return ",".join([*others, f"{_SETTING}:True"])


def _variables(environment: Mapping[str, str], _: str) -> dict[str, str]:
    newer, older = environment.get(_NEWER), environment.get(_OLDER)
    changed = {_OLDER: merged(older or newer or "")}
    return changed if newer is None else {**changed, _NEWER: merged(newer)}


def _why_not(facts: Facts) -> str:
    settings = facts.allocator.get(_NEWER) or facts.allocator.get(_OLDER, "")
    if facts.allocator.get("backend", "native") != "native":
        return f"the program's allocator is {facts.allocator['backend']}, which has no segments"
    if facts.allocator.get(_NO_CACHE, "0") not in ("", "0"):
        return f"{_NO_CACHE} is set: the allocator keeps no segments"
    if f"{_SETTING}:True" in settings.replace(" ", "").split(","):
        return "expandable segments are on already"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    # A program that sets the variable itself has done so by now; the allocator reads it when the card is first used.
    os.environ.update(_variables(os.environ, ""))

    def look(_: Any) -> None:
        if moments.has_acted:
            return
        if torch.cuda.get_allocator_backend() != "native":
            raise CannotSwitchOn("the program's allocator is cudaMallocAsync, which has no segments.")
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        if segments and not any(segment["is_expandable"] for segment in segments):
            raise CannotSwitchOn(
                "The allocator has made segments, and none of them is expandable: the program changes the allocator's "
                f"settings itself after it has imported torch. Have it add {_SETTING}:True there."
            )
        if segments:
            moments.acts()

    moments.when_model_returned(look)


MEASURES = (
    Measure(
        name="expandable-segments",
        title="expandable segments",
        what="The allocator's segments grow in place, so that memory freed in pieces serves a larger tensor later; of "
        "fixed segments what is free between tensors is held and not used.",
        group="allocator",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        variables=_variables,
        not_counted="Mapping memory into a segment takes the place of cudaMalloc, and is no slower.",
        snippets={
            "pytorch": "# in the shell, before the program starts (add it to what is set there already):\n"
            f"export {_OLDER}={_SETTING}:True",
        },
    ),
)

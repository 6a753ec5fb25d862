"""All measures, by name: those first that ask least of a person."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence

from dryfit.errors import UsageError
from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure

# One file each; those before cost a person less than those after, which decides between equal prices.
_FILES = (
    "expandable_segments",
    "zero_grad",
    "evaluation_no_grad",
    "checkpoint_blocks",
    "torch_compile",
    "offload_activations",
    "fused_optimizer",
    "fused_attention",
    "micro_batch",
    "chunked_cross_entropy",
    "bf16_autocast",
    "bf16_weights",
    "adamw_8bit",
    "torchao_adamw_8bit",
    "adafactor",
    "offload_optimizer",
    "bucket_views",
    "resharding",
    "zero_redundancy",
    "fsdp_for_ddp",
    "fsdp",
    "freeze_blocks",
    "lora",
    "qlora",
)  # fmt: skip


@functools.cache
def all_measures() -> tuple[Measure, ...]:
    """Every measure, in the order of the catalogue."""
    modules = (importlib.import_module(f"dryfit.measures.{name}") for name in _FILES)
    return tuple(measure for module in modules for measure in module.MEASURES)


def measures_of(words: Sequence[str]) -> list[tuple[Measure, str]]:
    """The measures of words such as "checkpoint-blocks" or "micro-batch:4", each with its option, in catalogue order.

    A measure that has options and is named without one has the first, if that is the same for all programs.

    Raises:
        UsageError: there is no such measure or option, or two that do not go together.
    """
    known = {measure.name: measure for measure in all_measures()}
    asked: dict[str, str] = {}
    for word in words:
        name, _, option = word.partition(":")
        if name not in known:
            raise UsageError(f"There is no measure {name!r}; there are {', '.join(known)}.")
        option = _option_of(known[name], option)
        if asked.setdefault(name, option) != option:
            raise UsageError(
                f"{name} is named twice, as {name}:{asked[name]} and as {name}:{option}; choose one of them."
            )
    chosen = [(measure, asked[measure.name]) for measure in all_measures() if measure.name in asked]
    for place, (measure, _) in enumerate(chosen):
        for other, _ in chosen[place + 1 :]:
            if not go_together(measure, other):
                raise UsageError(f"{measure.name} and {other.name} do not go together; choose one of them.")
    return chosen


def _option_of(measure: Measure, option: str) -> str:
    """The option as it was given, or the one that counts where none was."""
    name, usual = measure.name, measure.options(Facts())
    if usual == ("",):
        if option:
            raise UsageError(f"{name} has no options, and {name}:{option} names one; write {name} alone.")
        return ""
    first = next(iter(usual), "")  # "" where it depends on the program
    number, _, rest = (option or first).partition(":")
    if not (number.isascii() and number.isdigit() and int(number)) or rest not in ("", "placed"):
        word = f"{name}:{option}" if option else f"{name} alone"
        raise UsageError(f"{name} needs a number, 1 or more, which {word} does not give; write {name}:{first or 4}")
    return option or first


def go_together(one: Measure, other: Measure) -> bool:
    """Whether both can be on at a time."""
    return one.group != other.group and other.name not in one.without and one.name not in other.without

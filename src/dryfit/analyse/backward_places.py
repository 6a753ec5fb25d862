"""Which module and line backward's allocations belong to: autograd's threads have no Python stack to say it.

Right after a node of autograd has run, it lets go of what forward saved for it. So what was allocated before such a
free belongs to the line of the forward pass that made the saved activation.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from dryfit.analyse import stack_facts as facts
from dryfit.analyse.lines import Rank, rank_of
from dryfit.analyse.owners import ACTIVATION, AUTOCAST_COPY, GRADIENT, TEMPORARY, Evidence
from dryfit.recording.model import BACKWARD

_SAVED = (ACTIVATION, AUTOCAST_COPY)
# Logits in 16 bits have gradients in 32. What is larger is of a node that lets go of nothing, such as one whose input
# the program holds.
_MOST_OF_LOSS = 2
_PLACED = (TEMPORARY, GRADIENT)


def place_backward(
    owners: array[int],
    module_of: array[int],
    line_of: array[int],
    lines: Sequence[tuple[str, int, str]],
    is_logits_or_loss: bytearray,
    made_at: array[int],
    freed_at: array[int],
    evidence: Evidence,
) -> None:
    """Fill in module, line and whether it is of the loss, for what autograd's engine allocated."""
    lifetimes, stretches = evidence.lifetimes, evidence.stretches
    of_event = stretches.of_event
    largest_of_loss: dict[int, int] = {}
    for size, begin, is_loss in zip(lifetimes.requested_bytes, lifetimes.begin, is_logits_or_loss, strict=True):
        if is_loss:
            largest_of_loss[of_event[begin]] = max(size, largest_of_loss.get(of_event[begin], 0))
    is_of_program = [rank_of(file) == Rank.PROGRAM if file else False for file, _, _ in lines]
    for stretch in stretches.all:
        if stretch.phase != BACKWARD:
            continue
        saved = -1
        for event in range(stretch.end - 1, stretch.begin - 1, -1):
            freed = freed_at[event]
            if freed >= 0 and owners[freed] in _SAVED:
                saved = freed
            made = made_at[event]
            if made < 0 or saved < 0 or owners[made] not in _PLACED:
                continue
            if evidence.facts[lifetimes.stack[made]] & facts.IN_MODULE:
                continue
            module_of[made] = module_of[made] or module_of[saved]
            of_loss_bytes = largest_of_loss.get(of_event[lifetimes.begin[saved]], 0)
            if lifetimes.requested_bytes[made] <= _MOST_OF_LOSS * of_loss_bytes:
                is_logits_or_loss[made] |= is_logits_or_loss[saved]
            if not is_of_program[line_of[made]]:
                line_of[made] = line_of[saved]

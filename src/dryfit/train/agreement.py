"""What ranks tell each other before a window, so that they take the same number of steps and none waits for ever."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed

from dryfit.errors import DryfitError


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one rank has ready for the next window: the items of each of its micro-batches, in their order."""

    items: tuple[float, ...]
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What all ranks know of the next window; each takes the same number of micro-batches, the fewest that any has."""

    shares: tuple[Share, ...]

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return len(self.shares)

    @property
    def micro_batches(self) -> int:
        """How many micro-batches each rank takes."""
        return min(len(share.items) for share in self.shares)

    @property
    def items(self) -> float:
        """How many items all ranks' micro-batches have together."""
        return math.fsum(item for share in self.shares for item in share.items[: self.micro_batches])

    @property
    def most_ready(self) -> int:
        """How many micro-batches the rank with the most of them has ready."""
        return max(len(share.items) for share in self.shares)

    def say_ready(self) -> str:
        """Which rank has how many.

        >>> Agreed(shares=(Share(items=(1.0, 1.0)), Share(items=()))).say_ready()
        'rank 0 has 2, rank 1 none'
        """
        return ", ".join(
            f"rank {rank} {'has ' if rank == 0 else ''}{len(share.items) or 'none'}"
            for rank, share in enumerate(self.shares)
        )


def agree(share: Share, groups: Sequence[Any]) -> Agreed:
    """Exchange shares over the groups, one after the other; with no groups there is one rank, this one.

    Raises:
        DryfitError: another rank could not read its micro-batches; its own error says why.
    """
    shares = [share]
    for group in groups:
        gathered: list[list[Share]] = [[] for _ in range(torch.distributed.get_world_size(group))]
        torch.distributed.all_gather_object(gathered, shares, group=group)
        shares = [each for of_rank in gathered for each in of_rank]
    failed = [rank for rank, each in enumerate(shares) if each.failure]
    if failed and not share.failure:
        raise DryfitError(
            f"Rank {failed[0]} of {len(shares)} could not read its next micro-batches, so this rank stops too: "
            f"{shares[failed[0]].failure}. The traceback is in that rank's output."
        )
    return Agreed(shares=tuple(shares))

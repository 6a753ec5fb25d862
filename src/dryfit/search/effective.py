"""A global batch made of micro-batches: micro-batch x accumulation steps x GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveBatch:
    """`micro * accumulation * gpus` samples for each optimiser step; `remainder` is what `effective` has more."""

    effective: int
    gpus: int
    micro: int
    accumulation: int

    @property
    def remainder(self) -> int:
        """The samples that are left over, 0 where it divides evenly.

        >>> EffectiveBatch(effective=500, gpus=3, micro=8, accumulation=20).remainder
        20
        """
        return self.effective - self.micro * self.accumulation * self.gpus

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"remainder": self.remainder}


def even_splits(effective: int, gpus: int, values: Sequence[int], largest: int) -> Iterator[EffectiveBatch]:
    """The micro-batches among the values, up to the largest that fits, that divide a global batch; largest first.

    >>> [split.micro for split in even_splits(512, 2, range(1, 4097), 22)]
    [16, 8, 4, 2, 1]
    """
    if effective % gpus:
        return
    each = effective // gpus
    for micro in range(min(largest, each), 0, -1):
        if each % micro == 0 and micro in values:
            yield EffectiveBatch(effective=effective, gpus=gpus, micro=micro, accumulation=each // micro)


def uneven_split(effective: int, gpus: int, largest: int) -> EffectiveBatch:
    """As many whole micro-batches of the largest size that fits as a global batch holds; the rest is left over.

    >>> split = uneven_split(500, 3, 22)
    >>> split.micro, split.accumulation, split.remainder
    (22, 7, 38)
    """
    micro = min(largest, max(1, effective // gpus))
    return EffectiveBatch(effective=effective, gpus=gpus, micro=micro, accumulation=max(1, effective // (gpus * micro)))

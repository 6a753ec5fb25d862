"""What a set of measures costs: counted FLOPs, bytes over the host's bus and to other ranks, and what it changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dryfit.measures.measure import CHANGES, NOTHING

# A byte between card and host takes as long as about this many FLOPs: PCIe 4.0 x16 moves some 25 GB/s, and matrix
# multiplications in training reach some 50 TFLOP/s on the cards between an RTX 3090 and an A100. It only decides which
# of two measures is ranked first where one costs FLOPs and the other copies; both are printed as they were counted.
FLOPS_OF_A_HOST_BYTE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of one optimizer step: FLOPs and bytes were counted, beside those of the program as it is.

    `host_bytes` go between card and host, `sent_bytes` from one rank to others. `changes` is NOTHING, PRECISION or
    METHOD. `cards` are as many as share the work, `measures` as many as are on.
    `is_counted` is False where FLOPs could not be counted, and are taken to be the program's own.
    """

    flops: int
    base_flops: int
    host_bytes: int = 0
    base_host_bytes: int = 0
    sent_bytes: int = 0
    base_sent_bytes: int = 0
    changes: str = NOTHING
    cards: int = 1
    measures: int = 0
    is_counted: bool = True

    @property
    def extra_percent(self) -> float:
        """FLOPs beyond those of the program as it is, in percent of these.

        >>> Price(flops=133, base_flops=100).extra_percent
        33.0
        """
        return 100.0 * (self.flops - self.base_flops) / self.base_flops if self.base_flops else 0.0

    @property
    def extra_host_bytes(self) -> int:
        return self.host_bytes - self.base_host_bytes

    @property
    def extra_sent_bytes(self) -> int:
        return self.sent_bytes - self.base_sent_bytes

    @property
    def order(self) -> tuple[int, int, int, int, int]:
        """What prices are ranked by: what they change, cards, work, what is sent, and how many measures there are.

        How long a byte takes to another rank depends on what joins the cards, so that it is not weighed against work.
        """
        extra = self.flops - self.base_flops + FLOPS_OF_A_HOST_BYTE * max(0, self.extra_host_bytes)
        sent = max(0, self.extra_sent_bytes)
        return CHANGES.index(self.changes), self.cards, max(0, extra), sent, self.measures

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "extra_percent": round(self.extra_percent, 2),
            "extra_host_bytes": self.extra_host_bytes,
            "extra_sent_bytes": self.extra_sent_bytes,
        }

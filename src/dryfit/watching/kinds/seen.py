"""What the figures of a growth come to, as findings tell them."""

from __future__ import annotations

from dataclasses import dataclass

from dryfit.findings import Place
from dryfit.findings.finding import DEVICE, HOST
from dryfit.units import format_bytes
from dryfit.watching.graphs import NODE_BYTES
from dryfit.watching.growth import Growth
from dryfit.watching.situation import Situation


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Between which steps, how much of each, whose memory. `unit` is what counts: a step, or an evaluation's batch."""

    home: frozenset[str]
    is_on_card: bool
    is_evaluation: bool
    first_step: int
    last_step: int
    has_backward: bool
    nodes_per_step: int
    kept_per_step: int
    allocated_per_step: int
    retains: Place | None
    creates: Place | None
    situation: Situation

    @classmethod
    def of(cls, growth: Growth, situation: Situation, *, is_evaluation: bool) -> Seen:
        """The figures of the intervals that tell of the growth."""
        settled = growth.settled()
        steps = sum(each.steps for each in settled)
        storages = {storage for each in settled for storage in each.storages() if storage.device in situation.home}
        return cls(
            home=frozenset(situation.home),
            is_on_card=situation.is_on_card(),
            is_evaluation=is_evaluation,
            first_step=settled[0].first_step,
            last_step=growth.intervals[-1].last_step,
            has_backward=any(each.has_backward for each in settled),
            nodes_per_step=sum(each.nodes for each in settled) // steps,
            kept_per_step=sum(each.size_bytes for each in storages) // steps,
            allocated_per_step=growth.allocated_per_step(),
            retains=situation.retains,
            creates=situation.creates,
            situation=situation,
        )

    @property
    def unit(self) -> str:
        return "batch" if self.is_evaluation else "step"

    @property
    def memory(self) -> str:
        """Whose memory tensors of the model's are in."""
        return DEVICE if self.is_on_card else HOST

    @property
    def graph_bytes_per_step(self) -> int:
        """What the nodes cost the host, about."""
        return self.nodes_per_step * NODE_BYTES

    def tells_of(self, size_bytes: int) -> str:
        """As in "1.50 MiB of the card's memory for each step"."""
        whose = "the card's memory" if self.is_on_card else "the host's memory"
        return f"{format_bytes(size_bytes)} of {whose} for each {self.unit}"

    def span(self) -> str:
        """As in "from step 2 to step 5"."""
        return f"from {self.unit} {self.first_step} to {self.unit} {self.last_step}"

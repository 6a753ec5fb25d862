"""What counts of memory tell: growth that no holder explains (DF114, DF115), empty_cache at each step (DF403)."""

from __future__ import annotations

import itertools
from collections import deque

import torch

from dryfit.findings import Evidence, Finding
from dryfit.findings.finding import HOST
from dryfit.units import KIB, format_bytes
from dryfit.watching import source_places
from dryfit.watching.census import Census, Storage, storage_of
from dryfit.watching.device_memory import allocated_bytes
from dryfit.watching.frames import program_codes
from dryfit.watching.host_memory import resident_bytes
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.rising import STEPS_IN_A_ROW, is_rising
from dryfit.watching.situation import Situation
from dryfit.watching.torch_private import allocator_counts

# The host's memory goes up and down with much else: a lowest point is taken of each so many steps.
_HOST_STEPS, _HOST_EACH, _HOST_WINDOWS = 25, 5, 5
_HOST_LEAST_BYTES_PER_STEP = 64 * KIB
_CACHE_STEPS = 4


class Allocator(Kind):
    """Follows the counts at the end of each step; `is_live` says whether the host's memory tells anything."""

    def __init__(self, situation: Situation, *, is_live: bool) -> None:
        super().__init__(situation)
        self._is_live = is_live
        self._ends: deque[int] = deque(maxlen=STEPS_IN_A_ROW)
        self._in_sight: set[Storage] = set()
        self._host: list[int] = []
        self._lowest: deque[int] = deque(maxlen=_HOST_WINDOWS)
        self._counts: dict[str, int] = {}
        self._emptied, self._has_told_emptied, self._looks = 0, False, 0

    def step_is_over(self, step: int, census: Census | None) -> None:
        self._ends.append(allocated_bytes())
        if census is not None and self._rises(STEPS_IN_A_ROW - 1):
            before, self._in_sight = self._in_sight, _storages_in_sight(census)
            if self._rises(STEPS_IN_A_ROW):
                # Batches that become longer leave more in the loop's own variables: that is of the last step alone.
                new = self._in_sight - before
                if self._ends[-1] - self._ends[0] > sum(each.size_bytes for each in new):
                    self._tell_growth(step)
                self._ends.clear()
        if not self._has_told_emptied and self._looks < 16:
            self._looks += 1
            self._count_emptied()
        if self._is_live and step % _HOST_EACH == 0:
            self._follow_host(step)

    def needs_census(self, step: int) -> bool:
        return self._rises(STEPS_IN_A_ROW - 2)  # one before the step that ends such a row, and one after it

    def needs_more_steps(self) -> bool:
        return self._rises(3)

    def _rises(self, steps: int) -> bool:
        return is_rising([*self._ends], steps) and not self.situation.has_named_growth

    def _tell_growth(self, step: int) -> None:
        first, last = self._ends[0], self._ends[-1]
        per_step = (last - first) // (STEPS_IN_A_ROW - 1)
        self.found.append(
            Finding(
                code="DF114",
                claim=f"Each of the last {STEPS_IN_A_ROW} steps left more on the card than the one before: from "
                f"{format_bytes(first)} after step {step - STEPS_IN_A_ROW + 1} to {format_bytes(last)} after step "
                f"{step}, about {format_bytes(per_step)} a step.",
                advice="Look for what is kept from step to step: `dryfit run --report` shows whose memory grows.",
                evidence=Evidence(
                    size_bytes=last - first,
                    bytes_per_step=per_step,
                    first_step=step - STEPS_IN_A_ROW + 1,
                    last_step=step,
                ),
            )
        )

    def _follow_host(self, step: int) -> None:
        self._host.append(resident_bytes())
        if len(self._host) < _HOST_STEPS // _HOST_EACH:
            return
        self._lowest.append(min(self._host))
        self._host.clear()
        least = _HOST_LEAST_BYTES_PER_STEP * _HOST_STEPS
        if len(self._lowest) == _HOST_WINDOWS and all(
            late - early >= least for early, late in itertools.pairwise(self._lowest)
        ):
            grown, steps = self._lowest[-1] - self._lowest[0], _HOST_STEPS * (_HOST_WINDOWS - 1)
            self.found.append(
                Finding(
                    code="DF115",
                    claim=f"The host's memory of this process has grown by {format_bytes(grown)} over {steps} steps, "
                    f"about {format_bytes(grown // steps)} a step, and in each {_HOST_STEPS} of them.",
                    advice="Look for what the loop or the data loading keeps: samples that are cached, numbers and "
                    "texts that are gathered, graphs of losses.",
                    evidence=Evidence(
                        memory=HOST,
                        size_bytes=grown,
                        bytes_per_step=grown // steps,
                        first_step=step - steps,
                        last_step=step,
                    ),
                )
            )
            self._lowest.clear()

    def _count_emptied(self) -> None:
        """An allocator counts how often it gives all back; when memory runs out it does so by itself."""
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return
        counts = allocator_counts(torch.cuda.current_device())
        before, self._counts = self._counts, counts
        if not before or not counts:
            return
        moved = {name: counts[name] - before[name] for name in counts}
        emptied = moved["num_sync_all_streams"] - moved["num_alloc_retries"]
        self._emptied = self._emptied + 1 if emptied > 0 else 0
        if self._emptied == _CACHE_STEPS:
            self._has_told_emptied = True
            place = next(filter(None, (source_places.of_call(code, "empty_cache") for code in program_codes())), None)
            self.found.append(
                Finding(
                    code="DF403",
                    claim=f"empty_cache was called at each of the last {_CACHE_STEPS} steps: what it gives back the "
                    f"next step has to ask the driver for again, and waits for the card each time.",
                    advice="Leave it out of the loop. It frees no tensor; PyTorch gives unused memory back by itself "
                    "before an allocation fails.",
                    place=place,
                    evidence=Evidence(numbers={"steps": _CACHE_STEPS}),
                )
            )


def _storages_in_sight(census: Census) -> set[Storage]:
    """What tensors of Python hold on cards. Who keeps one from step to step has a name, which is another finding."""
    storages = {storage_of(each) for each in census.tensors}
    return {each for each in storages if each is not None and each.device != "cpu"}

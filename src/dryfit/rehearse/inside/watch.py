"""Everything that is watched in one process once torch is there, and the facts it comes to."""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dryfit.rehearse.events import NOT_SWITCHED_ON, RECORDING_SUFFIX, EventWriter, Orders
from dryfit.rehearse.inside import oom, torch_hooks, torch_private, used_on_card, watchdog
from dryfit.rehearse.inside.history import History
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.inside.longest.giving import Longest
from dryfit.rehearse.inside.measuring import FACTS, Measuring
from dryfit.rehearse.inside.observing import Observing
from dryfit.rehearse.inside.peaks import PeakMeter
from dryfit.rehearse.inside.phases import Progress, StepEvent
from dryfit.rehearse.inside.recorder import Recorder
from dryfit.rehearse.inside.stopping import LEAST_STEPS, WATCHED_STEPS, seen_enough
from dryfit.rehearse.inside.traffic import StepTraffic
from dryfit.virtual_card import calls

if TYPE_CHECKING:
    from dryfit.rehearse.inside.facts import FactFinder


class Watch:
    """The hooks of one process, placed; `facts()` says what they have seen, once the process is about to end."""

    def __init__(
        self,
        orders: Orders,
        writer: EventWriter,
        stop: Callable[[str], None],
        fault: Callable[[], None],
        all_have_seen_enough: Callable[..., bool],
    ) -> None:
        self._orders, self._writer, self._stop = orders, writer, stop
        self._all_have_seen_enough = all_have_seen_enough
        self._peaks: list[tuple[int, int]] = []
        self._history = History(is_wanted=orders.recording)
        self._recorder = Recorder(self._history.take_if_large)
        meter = PeakMeter(used_on_card.meter() if orders.real_card else calls.take_peak_used_bytes)
        self._traffic = StepTraffic(calls.traffic) if not orders.real_card else None
        self._progress = Progress(meter, self._write_step, self._step_ended, self._phase_begins)
        self._measuring = Measuring(self._cannot_switch_on)
        self._observing = Observing()
        self._observing.begin_anew(is_wanted=orders.observe, looks_closely=orders.watch)
        self._longest = Longest()
        self._longest.begin_anew(orders.longest, orders.steps)
        torch_hooks.place(
            self._progress, self._recorder, self._measuring, self._observing, self._longest, fault,
            _no_time if orders.real_card else watchdog.let_it_look,
        )  # fmt: skip
        self._first_buckets = watchdog.FirstBuckets(
            lambda: (self._progress.step, self._progress.phase), lambda: meter.peak_so_far().allocated_bytes
        )
        if not orders.real_card:
            after_import("torch.distributed.distributed_c10d", self._first_buckets.watch)
        oom.watch(self._progress, writer)
        self._values = None
        if orders.values:
            from dryfit.rehearse.inside import values

            self._values = values.install(calls.answer, calls.forget, orders.assume)
        self.introduce()
        self._measuring.switch_on(orders.measures)
        self._facts: FactFinder | None = None
        self._find_facts()

    def introduce(self) -> None:
        """Write what the figures depend on: Python, torch, the CUDA it was built with."""
        self._writer.write("torch", versions={"python": platform.python_version(), **torch_private.versions()})

    def begin_anew(self, orders: Orders) -> None:
        """Forget what the parent did: this is a forked child, and has orders of its own."""
        self._orders = orders
        self._peaks.clear()
        if self._traffic is not None:
            self._traffic.begin_anew()
        self._recorder.begin_anew()
        self._first_buckets.begin_anew()
        self._history.begin_anew(is_wanted=orders.recording)
        self._progress.begin_anew()
        self._observing.begin_anew(is_wanted=orders.observe, looks_closely=orders.watch)
        self._longest.begin_anew(orders.longest, orders.steps)
        self.introduce()
        self._measuring.switch_on(orders.measures)
        self._find_facts()

    def facts(self) -> dict[str, Any]:
        """What is known now, as plain values for the `end` event."""
        seen = {"steps": self._progress.finish(), "allocator_settings": torch_private.allocator_settings()}
        if self._orders.real_card:
            return {**seen, "card": used_on_card.facts()}
        return {
            **seen,
            "unfaithful_calls": calls.unfaithful_calls(),
            "workspaces": asdict(calls.workspaces_in_doubt()),
            "devices": [asdict(use) for use in calls.devices_in_use()],
            "communication": self._traffic.of_the_step() if self._traffic is not None else {},
            "first_buckets": self._first_buckets.facts(),
            "communicators": [asdict(made) for made in calls.communicators()],
            "module_loading": os.environ.get("CUDA_MODULE_LOADING"),
            "guessed": [asdict(guessed) for guessed in calls.guessed()],
            "inventions": [asdict(invention) for invention in self._values.inventions()] if self._values else [],
            "not_computed": self._values.failures if self._values else {},
            "assumptions": self._values.fates if self._values else {},
            "measures": self._measuring.acted(),
            "loaders": self._longest.facts(),
            "findings": self._observing.findings(),
            "not_observed": self._observing.failure,
            **({"program": self._facts.facts().to_dict()} if self._facts is not None else {}),
        }

    def _find_facts(self) -> None:
        if not self._orders.facts:
            return
        if self._facts is not None:  # by the process that this one was forked from
            self._facts.begin_anew()
            return
        from dryfit.rehearse.inside.facts import FactFinder

        self._facts = FactFinder(self._measuring.add(FACTS), self._recorder, self._progress)

    def _cannot_switch_on(self, measure: str, why: str, trace: str) -> None:
        self._writer.write("measure", name=measure, why=why, trace=trace)
        self._stop(NOT_SWITCHED_ON)

    def write_recording(self) -> None:
        """Write the recording of this process; its last words are said by then."""
        if not self._orders.recording:
            return
        path = f"{self._orders.folder}/{os.getpid()}{RECORDING_SUFFIX}"
        try:
            self._history.write(path, self._recorder)
            failure = self._recorder.failure
        except Exception:
            failure = traceback.format_exc()
        if failure:
            self._writer.write("unrecorded", trace=failure)

    def _write_step(self, step: StepEvent) -> None:
        self._writer.write("step", **step)

    def _phase_begins(self, step: int, phase: str) -> None:
        if self._traffic is not None:
            self._traffic.is_in(step)
        self._recorder.enter(step, phase)  # guarded once the hooks are placed, so it is looked up here

    def _step_ended(self, step: StepEvent) -> None:
        figures = step["phases"].values()
        self._peaks.append((max(f[0] for f in figures), max(f[1] for f in figures)))
        if self._traffic is not None and (passed := self._traffic.of_the_step()):
            self._writer.write("communication", step=step["step"], passed=passed)
        self._observing.step_is_over(step["step"])
        why = seen_enough(
            self._peaks,
            self._orders.steps,
            all_have_stepped_twice=self._progress.all_optimizers_have_stepped_twice,
            least_steps=WATCHED_STEPS if self._orders.watch else LEAST_STEPS,
            wants_more=self._observing.needs_more_steps,
            period=self._longest.period,
        )
        if self._all_have_seen_enough(len(self._peaks), this_one=why is not None) and why is not None:
            self._stop(why)


def _no_time() -> None:
    """Time passes on a real card by itself."""

"""NCCL's watchdog, where time does not pass.

From torch 2.8 on a collective keeps its tensors until somebody waits for its work. Where nobody does (DDP waits for
futures, a program drops what `async_op=True` returns) it keeps them until the card has finished it, the watchdog thread
has looked, which it does every 100 ms, and the process has called its next collective. A virtual card finishes at once,
and a whole step is over before the watchdog looks: what is kept then is a matter of chance, and more than a card whose
steps take longer keeps.

So a rehearsal waits for the watchdog where a step's time would have passed: when a backward pass is over, and when an
optimizer has stepped. It does not wait anywhere inside them. A card may be between two looks there, and what a backward
pass piles up in works that nobody waits for is its peak. One moment lies between two steps and may come within 100 ms
on a card, too: DDP makes its buckets anew when the second step begins, and what it held before may still be kept then.
The waiting hides that, so `FirstBuckets` says how large it is.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from dryfit.rehearse.inside.phases import BACKWARD
from dryfit.rehearse.inside.watchdog import torch_private


def let_it_look() -> None:
    """Wait, some 0.1 s, until NCCL's watchdog has seen that what this process has called is finished."""
    torch_private.wait_for_watchdog()


class FirstBuckets:
    """What DDP gave up when it made its buckets anew, and what tensors held at most until the backward pass reduced.

    `where()` says the step and phase that the program is in, `peak_bytes()` what tensors held at most in this phase.
    """

    def __init__(self, where: Callable[[], tuple[int, str]], peak_bytes: Callable[[], int]) -> None:
        self._where, self._peak_bytes = where, peak_bytes
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know of none, as in a forked child."""
        self._by_step: dict[int, dict[str, int]] = {}
        _waiting.clear()

    def watch(self, _: ModuleType) -> None:
        """Look at the buckets of `torch.distributed`, which is being imported."""
        if torch_private.keeps_tensors_of_works():
            torch_private.when_buckets_are_made_anew(self._were_made_anew)

    def facts(self) -> list[dict[str, int]]:
        """By step: what was given up, and the peak within the backward pass so far, where that is known."""
        return list(self._by_step.values())

    def _were_made_anew(self, freed_bytes: int) -> None:
        if not torch_private.is_there():  # gloo's works keep nothing
            return
        step, _ = self._where()
        found = self._by_step.setdefault(step, {"step": step, "bytes": 0})
        found["bytes"] += freed_bytes
        _waiting[:] = [self._reduces]

    def _reduces(self) -> bool:
        """Whether this collective is the backward pass's; broadcasts of buffers come before it."""
        step, phase = self._where()
        if phase != BACKWARD:
            return False
        if step in self._by_step:
            self._by_step[step]["peak_before_reducing_bytes"] = self._peak_bytes()
        return True


_waiting: list[Callable[[], bool]] = []


def a_collective_is_called() -> None:
    """The process calls a collective; whoever waits for one of its kind hears of it once."""
    if _waiting:
        _waiting[:] = [wait for wait in _waiting if not wait()]

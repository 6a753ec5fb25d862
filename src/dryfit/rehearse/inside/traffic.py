"""What a step of this process passes to other ranks, from the counts of the virtual card."""

from __future__ import annotations

from collections.abc import Callable

Counts = dict[str, tuple[int, int, int]]


class StepTraffic:
    """What has been passed since the step began; `read` gives what was since the process did, as `calls.traffic`."""

    def __init__(self, read: Callable[[], Counts]) -> None:
        self._read = read
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin at what is counted now, as in a forked child."""
        self._step, self._at_its_beginning = 0, self._read()

    def is_in(self, step: int) -> None:
        """The program is in this step; what the setup passed belongs to none."""
        if step != self._step:
            self._step, self._at_its_beginning = step, self._read()

    def of_the_step(self) -> Counts:
        """Calls, bytes of payload and bytes sent, by kind; without kinds of which there were none."""
        passed: Counts = {}
        for kind, (calls, payload_bytes, sent_bytes) in self._read().items():
            before = self._at_its_beginning.get(kind, (0, 0, 0))
            if calls > before[0]:
                passed[kind] = (calls - before[0], payload_bytes - before[1], sent_bytes - before[2])
        return passed

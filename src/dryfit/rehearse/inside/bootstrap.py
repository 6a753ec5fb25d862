"""The first code of ours in every Python process of a rehearsal, run by `hook/sitecustomize.py`.

Imports nothing heavy. The hooks are placed when the program itself imports torch, so that whatever it sets before
(environment variables, allocator settings) still counts.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dryfit.rehearse.events import ORDERS_VARIABLE, EventWriter, Orders
from dryfit.rehearse.inside import ending
from dryfit.rehearse.inside.imports import after_import

if TYPE_CHECKING:
    from dryfit.rehearse.inside.watch import Watch

# The parent's request to write the last event and leave. A real-time signal, because programs hardly use those.
STOP_SIGNAL = signal.SIGRTMIN + 7


def start() -> None:
    """Begin watching this process, if it belongs to a rehearsal."""
    text = os.environ.get(ORDERS_VARIABLE)
    if not text:
        return
    if os.environ.get("DRYFIT_SANDBOX"):  # the kernel does less than a throw-away layer here
        from dryfit.rehearse.sandbox import refuse

        refuse.install_as_told()
    _Process(Orders.from_text(text))


class _Process:
    """This process's event file and what has been learnt; forked children (data-loader workers) write nothing."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._watch: Watch | None = None
        self._pid = os.getpid()
        self._began = time.monotonic()
        self._writer = EventWriter(orders.folder)
        self._writer.write("python", pid=self._pid, parent=os.getppid(), argv=sys.orig_argv)
        self._faults = open(f"{orders.folder}/{self._pid}.fault", "w")  # noqa: SIM115, PTH123 - open to the end
        faulthandler.enable(file=self._faults)
        signal.signal(STOP_SIGNAL, lambda *_: self._stop("told to stop"))
        # Registered first, so it runs last: after everything the program does at its own exit.
        atexit.register(self._at_exit)
        after_import("torch", self._place_hooks)
        if orders.skip_weights:
            from dryfit.rehearse.inside import skip_weights

            skip_weights.prepare()

    def _place_hooks(self, torch: ModuleType) -> None:
        from dryfit.rehearse.inside.watch import Watch

        self._watch = Watch(self._orders, self._writer, self._stop)
        self._writer.write("torch", versions=self._watch.versions())

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"seconds": time.monotonic() - self._began}
        return facts | self._watch.facts() if self._watch is not None else facts

    def _stop(self, how: str) -> None:
        if os.getpid() == self._pid:
            ending.stop_now(self._writer.write, self._facts, how)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            ending.last_words(self._writer.write, self._facts, "finished")

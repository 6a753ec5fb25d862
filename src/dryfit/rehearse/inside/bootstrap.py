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
import traceback
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from dryfit.errors import DryfitError
from dryfit.rehearse.events import ORDERS_VARIABLE, EventWriter, Orders
from dryfit.rehearse.inside import ending
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.inside.rank import Rank

if TYPE_CHECKING:
    from dryfit.rehearse.inside.watch import Watch
    from dryfit.rehearse.world import World

# The parent's request to write the last event and leave. A real-time signal, because programs hardly use those.
STOP_SIGNAL = signal.SIGRTMIN + 7


def start() -> None:
    """Begin watching this process, if it belongs to a rehearsal."""
    global _this_process
    text = os.environ.get(ORDERS_VARIABLE)
    if not text:
        return
    _install_refusals()
    _this_process = _Process(Orders.from_text(text))


def start_again(*, learns: bool) -> None:
    """Begin watching a fork of a fork server: it has an environment, and so orders, of its own.

    With `learns` it is to say which modules the server could import.
    """
    assert _this_process is not None
    _install_refusals()
    _this_process.follow(Orders.from_text(os.environ[ORDERS_VARIABLE]), learns=learns)


def leave_at_once_when_finished() -> None:
    """Have this process leave once its exit handlers have run: taking its modules apart takes half a second."""
    if _this_process is not None:
        _this_process.leaves_at_once = True


_this_process: _Process | None = None


def _install_refusals() -> None:
    if os.environ.get("DRYFIT_SANDBOX"):  # the kernel does less than a throw-away layer here
        from dryfit.rehearse.sandbox import refuse

        refuse.install_as_told()


class _Process:
    """This process's event file and what has been learnt. A forked child begins anew, with a file of its own."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._watch: Watch | None = None
        self.leaves_at_once = False
        self._writer = EventWriter(orders.folder)
        self._rank = Rank(orders.folder, self._becomes_rank, alone=orders.world is not None)
        self._begin()
        signal.signal(STOP_SIGNAL, self._told_to_stop)
        # Registered first, so it runs last: after everything the program does at its own exit.
        atexit.register(self._at_exit_of_python)
        os.register_at_fork(after_in_child=self._begin_anew)
        # A process that multiprocessing forked leaves without running exit handlers, but for its own finalizers.
        after_import("multiprocessing.util", lambda util: util.register_after_fork(self, _Process._finalize_with))
        after_import("torch", self._place_hooks)
        after_import("torch.distributed.distributed_c10d", self._rank.watch)
        if orders.world is not None:
            self._play(orders.world)
        if orders.skip_weights:
            from dryfit.rehearse.inside import skip_weights

            skip_weights.prepare()

    def follow(self, orders: Orders, *, learns: bool) -> None:
        """Begin, as a fork that has had no orders so far."""
        self._orders, self._learns = orders, learns
        if orders.world is not None:
            self._play(orders.world)
        self._begin_anew()

    def _play(self, world: World) -> None:
        from dryfit.rehearse.inside import alone

        os.environ.update(world.variables())  # in place of what a launcher has said
        asked = (world.rank, world.size)
        alone.place(
            world,
            self._note_on_world,
            lambda rank, ranks: self._writer.write("joined", rank=rank, ranks=ranks, asked=asked),
        )

    def _begin(self) -> None:
        if not self._orders.folder:
            return
        if self._orders.modules:
            from dryfit.rehearse.inside.imported import Imported
            from dryfit.virtual_card.calls import looks_at_card

            self._imported = Imported(looks_at_card, with_names=self._learns)
        self._writer.write("python", pid=os.getpid(), parent=os.getppid(), argv=sys.orig_argv)
        self._faults = open(f"{self._orders.folder}/{os.getpid()}.fault", "w")  # noqa: SIM115, PTH123 - to the end
        faulthandler.enable(file=self._faults)

    def _begin_anew(self) -> None:
        if not self._orders.folder:
            return
        self._writer.reopen(self._orders.folder)
        self._rank.begin_anew(self._orders.folder, alone=self._orders.world is not None)
        self._begin()
        if self._watch is not None:
            self._watch.begin_anew(self._orders)

    def _finalize_with(self) -> None:
        from multiprocessing.util import Finalize

        Finalize(None, self._at_exit, exitpriority=-1000)

    def _place_hooks(self, torch: ModuleType) -> None:
        from dryfit.rehearse.inside.watch import Watch

        try:
            self._watch = Watch(self._orders, self._writer, self._stop, self._fault, self._rank.all_have_seen_enough)
            if not self._orders.exact_weights:
                from dryfit.rehearse.inside import light_init

                light_init.prepare()
            if not self._orders.real_card:
                from dryfit.rehearse.inside import deepspeed_private

                after_import("deepspeed.ops.op_builder.builder", deepspeed_private.leave_updates_out)
        except Exception:
            self._fault()

    def _becomes_rank(self, rank: int, ranks: int) -> None:
        self._writer.write("rank", rank=rank, ranks=ranks)
        if not self._orders.real_card:
            from dryfit.virtual_card import calls

            calls.is_rank(rank)

    def _fault(self) -> NoReturn:
        """An exception in our own code, to be known as ours: going on, it would look like the program's."""
        self._writer.write("fault", trace=traceback.format_exc())
        os._exit(DryfitError.exit_code)

    def _facts(self) -> dict[str, Any]:
        return self._watch.facts() if self._watch is not None else {}

    def _say_of(self, world: World) -> str:
        """Say what a rank alone has to; give what is to be said after its error."""
        from dryfit.rehearse.inside import alone

        error = ending.last_exception()
        if error is not None:
            return alone.has_failed(world, error, has_received=self._has_received())
        alone.has_ended(world, self._note_on_world, used_card=self._has_used_the_card())
        return ""

    def _has_used_the_card(self) -> bool:
        if self._watch is None:
            return False
        from dryfit.virtual_card import calls

        return bool(calls.devices_in_use())

    def _has_received(self) -> bool:
        if self._watch is None:
            return False
        from dryfit.virtual_card import calls

        return calls.RECEIVED_ALONE in calls.unfaithful_calls()

    def _say(self, how: str) -> None:
        """Write the last event, and the recording after it: where there is no time for that, the figures are safe."""
        if self._orders.modules:
            self._writer.write("modules", **self._imported.facts())
        world = self._orders.world if how != "told to stop" else None
        advice = self._say_of(world) if world is not None else ""
        ending.last_words(self._writer.write, self._facts, how, advice)
        self._rank.ends()
        if self._watch is not None:
            self._watch.write_recording()

    def _note(self, text: str) -> None:
        self._writer.write("note", text=text)

    def _note_on_world(self, text: str) -> None:
        """A sentence of a program whose world is another than the one that was asked for."""
        self._writer.write("note", text=text, is_on_world=True)

    def _told_to_stop(self, _: int, frame: FrameType | None) -> None:
        if self._orders.world is not None:
            from dryfit.rehearse.inside import alone

            alone.is_stopped(self._orders.world, frame, self._note)
        self._stop("told to stop")

    def _stop(self, how: str) -> None:
        ending.stop_now(self._say, how)

    def _at_exit(self) -> None:
        self._say("finished")
        if self.leaves_at_once:
            ending.leave_finished()
        ending.leave_out_of_memory()

    def _at_exit_of_python(self) -> None:
        self._at_exit()
        if self._orders.world is not None:
            from dryfit.rehearse.inside import alone

            alone.end()
        if self._watch is not None:
            ending.spare_installed_modules()

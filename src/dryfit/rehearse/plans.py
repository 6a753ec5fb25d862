"""Who answers a rehearsal's questions about cuDNN's plans: a process in a sandbox of its own, beside the program's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from dryfit.rehearse import sandbox
from dryfit.virtual_card.cudnn import Oracle, PlanServer


def plan_server(folder: str, oracle: Oracle) -> PlanServer:
    """Answer the questions of processes that see `folder`; see `PlanServer`."""
    return PlanServer(folder, oracle, lambda *started: _InSandbox(oracle, *started))


class _InSandbox:
    """The process that answers; it may write into the folder of answers alone."""

    def __init__(self, oracle: Oracle, words: Sequence[str], variables: Mapping[str, str], descriptor: int) -> None:
        assert oracle.answers is not None and oracle.library is not None
        self._keeper = sandbox.start(
            words,
            cwd=str(oracle.library.parent),
            env=variables,
            writable=[str(oracle.answers.parent)],
            own_temporary=False,
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ended(self) -> bool:
        return self._keeper.poll() is not None

    def end(self) -> None:
        with self._keeper:  # which stops it and sees its layer removed
            pass

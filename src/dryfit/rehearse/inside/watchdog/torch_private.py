"""Private names of torch.distributed that have to do with NCCL's watchdog; each with the versions checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

# The watchdog looks every 100 ms.
_PAUSE_SECONDS = 0.25


def wait_for_watchdog() -> None:
    """Wait until NCCL's watchdog thread has looked at every collective that has been called; 0.1 s where there are any.

    `_wait_for_pending_works` polls every 100 ms and returns at once where nothing is left to look at. Checked on
    2.14.1; process groups have had it since 2.1, backends perhaps not. A fork of the process has no watchdog.
    """
    import torch

    if torch.cuda._is_in_bad_fork():
        return
    for backend in _nccl_backends():
        if hasattr(backend, "_wait_for_pending_works"):
            backend._wait_for_pending_works()
        else:
            time.sleep(_PAUSE_SECONDS)


def _nccl_backends() -> Iterator[Any]:
    """NCCL's part of every process group; what is wrapped, where one is (TORCH_DISTRIBUTED_DEBUG=DETAIL)."""
    import torch

    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    kind = getattr(c10d, "ProcessGroupNCCL", None)
    if kind is None:
        return
    for group in list(c10d._world.pg_map):  # type: ignore[union-attr]
        try:
            backend = group._get_backend(torch.device("cuda"))
        except RuntimeError:  # a group of gloo's alone
            continue
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, kind):
            yield backend

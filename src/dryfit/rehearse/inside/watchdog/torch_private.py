"""Private names of torch.distributed that have to do with NCCL's watchdog; each with the versions checked."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# The watchdog looks every 100 ms.
_PAUSE_SECONDS = 0.25


def wait_for_watchdog() -> None:
    """Wait until NCCL's watchdog thread has looked at every collective that has been called; 0.1 s where there are any.

    `_wait_for_pending_works` polls every 100 ms and returns at once where nothing is left to look at. Checked on
    2.14.1; where a torch has no such call, one pause is enough for all groups. A fork of the process has no watchdog.
    """
    import torch

    if torch.cuda._is_in_bad_fork():
        return
    for backend in _nccl_backends():
        if not hasattr(backend, "_wait_for_pending_works"):
            time.sleep(_PAUSE_SECONDS)
            return
        backend._wait_for_pending_works()


def is_there() -> bool:
    """Whether a process group is NCCL's."""
    return next(_nccl_backends(), None) is not None


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


def keeps_tensors_of_works() -> bool:
    """Whether works keep tensors until the watchdog has looked: 2.8 to 2.14; 2.6 leaves them to the allocator."""
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)


def when_buckets_are_made_anew(seen: Callable[[int], None]) -> None:
    """Have `seen(freed_bytes)` called when DDP has made its buckets anew, which it does once (2.14.1).

    The reducer asks for its new buckets after two small broadcasts, whose tensors are left out.
    """
    reducer: Any = sys.modules["torch._C._distributed_c10d"].Reducer
    real = reducer._rebuild_buckets

    @functools.wraps(real)
    def rebuild_buckets(self: Any) -> Any:
        freed_bytes = _freed_bytes()
        is_anew = real(self)
        if is_anew:
            seen(_freed_bytes() - freed_bytes)
        return is_anew

    reducer._rebuild_buckets = rebuild_buckets


def _freed_bytes() -> int:
    """What large blocks have been freed on the current card so far; 0 where nothing was put on one."""
    import torch

    return int(torch.cuda.memory_stats().get("allocated_bytes.large_pool.freed", 0))

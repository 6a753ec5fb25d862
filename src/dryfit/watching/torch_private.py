"""The private names of torch that this room uses; tests/watching ran on 2.6.0 and 2.14.1, and on none between."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

Node = Any
"""A node of an autograd graph, as `grad_fn` gives it."""


def without_torch_function() -> contextlib.AbstractContextManager[None]:
    """A region in which neither modes nor tensor subclasses of the program's see what is done to tensors."""
    region: contextlib.AbstractContextManager[None] = torch._C.DisableTorchFunction()
    return region


def next_sequence_number() -> int:
    """The number that autograd gives the next node this thread makes; nodes made later have higher ones."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number


def sequence_number_of(node: Node) -> int:
    """The number that autograd gave a node as it was made."""
    number: int = node._sequence_nr()
    return number


def replace_engine_run_backward(change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Wrap the Python function through which `backward` and `grad` reach autograd's engine; the answer undoes that.

    Where something else has wrapped it since, that one's wrapper stays, and the answer leaves all as it is.
    """
    homes = (torch.autograd.graph, torch.autograd)  # the second imports it by name
    real = torch.autograd.graph._engine_run_backward
    wrapped = change(real)
    for home in homes:
        home._engine_run_backward = wrapped  # type: ignore[attr-defined, unused-ignore]

    def undo() -> None:
        for home in homes:
            if home._engine_run_backward is wrapped:  # type: ignore[attr-defined, unused-ignore]
                home._engine_run_backward = real  # type: ignore[attr-defined, unused-ignore]

    return undo


def is_function_context(value: Any) -> bool:
    """Whether this is the `ctx` of an autograd Function written in Python, which is its node too."""
    return isinstance(value, torch.autograd.function.BackwardCFunction)


def function_of(context: Any) -> Any:
    """The Function class a `ctx` belongs to; None if torch does not say."""
    return getattr(type(context), "_forward_cls", None)


def allocator_counts(device: int) -> dict[str, int]:
    """How often an allocator gave all its unused segments back, and how often because memory ran out.

    Empty where this torch does not count it.
    """
    counts = torch.cuda.memory_stats(device)
    names = ("num_sync_all_streams", "num_alloc_retries")
    return {name: int(counts[name]) for name in names} if all(name in counts for name in names) else {}


def has_memory_history() -> bool:
    """Whether someone already has the CUDA allocator keep its history."""
    return bool(torch._C._cuda_isHistoryEnabled()) if hasattr(torch._C, "_cuda_isHistoryEnabled") else False


def record_memory_history(most_events: int) -> Callable[[], None]:
    """Have the CUDA allocator keep its last events with their Python stacks; the answer ends that."""
    record = torch.cuda.memory._record_memory_history
    record("all", context="alloc", stacks="python", max_entries=most_events)
    return lambda: record(None)


def save_memory_snapshot(path: str) -> None:
    """Write what the CUDA allocator holds, and the history it kept, as `torch.cuda.memory` does."""
    torch.cuda.memory._dump_snapshot(path)  # type: ignore[no-untyped-call]


_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def hooks_of(module: torch.nn.Module) -> list[Any]:
    """What was registered to be called as a module is, forward and backward."""
    return [hook for name in _HOOKS for hook in list(getattr(module, name, {}).values())]


def hooks_of_all_modules() -> list[Any]:
    """What was registered to be called as any module is."""
    from torch.nn.modules import module

    return [hook for name in _HOOKS for hook in list(getattr(module, f"_global{name}", {}).values())]


def memory_counts(device: int) -> tuple[int, int, int, int] | None:
    """What a CUDA device's allocator holds: allocated and reserved now, and the peaks of both, in bytes.

    A tenth of the time that `torch.cuda.memory_stats` takes, which sorts all counts there are. None if this torch has
    no such function.
    """
    read = getattr(torch._C, "_cuda_memoryStats", None)
    if read is None:
        return None
    stats = read(device)
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return allocated["current"], reserved["current"], allocated["peak"], reserved["peak"]


def make_dynamo_skip(package: str) -> None:
    """Have Dynamo run the frames of a package as they are, without tracing into them."""
    from torch._dynamo import trace_rules

    trace_rules.add(package)

"""Every private name of torch that dryfit touches, each with the versions it was checked on.

torch may rename these in any release; a function here then changes, and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_Stats = dict[str, Any]


# --- memory statistics: checked on 2.4.1, 2.6.0, 2.9.1, 2.11.0, 2.14.1 -------------------------------------------


def memory_statistics() -> tuple[Callable[[int], _Stats], Callable[[int], None]]:
    """The functions behind `torch.cuda.memory_stats` and `reset_peak_memory_stats`, as they are now."""
    import torch

    return torch._C._cuda_memoryStats, torch._C._cuda_resetPeakMemoryStats


def replace_memory_statistics(change: Callable[[int, _Stats], _Stats], reset: Callable[[int], None]) -> None:
    """Let what the program reads pass through `change`, and its resets go to `reset`; also by `torch.accelerator`."""
    import torch

    def reader(real: Callable[[int], _Stats]) -> Callable[[int], _Stats]:
        return lambda device: change(device, real(device))

    for name in ("_cuda_memoryStats", "_accelerator_getDeviceStats"):  # the second since 2.6
        if hasattr(torch._C, name):
            setattr(torch._C, name, reader(getattr(torch._C, name)))
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, reset)


def before_counts_are_reset(see: Callable[[int], None]) -> None:
    """Have `see(device)` called before the program has an allocator begin its counts anew (2.6 to 2.14)."""
    import torch

    def reset(real: Callable[[int], None]) -> Callable[[int], None]:
        def seen(device: int) -> None:
            see(device)
            real(device)

        return seen

    for name in ("_cuda_resetAccumulatedMemoryStats", "_accelerator_resetAccumulatedStats"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, reset(getattr(torch._C, name)))


def current_statistics(device: int) -> dict[str, int]:
    """Bytes allocated and reserved on a device at this moment."""
    import torch

    stats = torch._C._cuda_memoryStats(device)
    return {name: stats[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes")}


def allocator_settings() -> dict[str, str]:
    """The allocator's backend, and the settings the program or the shell gave it."""
    import torch

    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")
    settings = {name: os.environ[name] for name in names if name in os.environ}
    return {"backend": torch.cuda.get_allocator_backend(), **settings}


# --- the allocator's own record: checked on 2.4.1, 2.6.0, 2.9.1, 2.11.0, 2.14.1 ---------------------------------------


def counted_events(stats: _Stats) -> int:
    """How many allocations, frees and failures an allocator has counted, from its statistics."""
    count = stats["allocation"]["all"]
    return int(count["allocated"]) + int(count["freed"]) + int(stats["num_ooms"])


def memory_history(most_events: int) -> tuple[Callable[[], None], Callable[[], None], Callable[[], _Stats]]:
    """Functions that start the allocator's record, with the Python stacks of allocations, stop it, and give it.

    The record is as PyTorch's snapshots have it; starting it forgets what was recorded before. Of more events than
    `most_events` the last are kept.
    """
    import torch

    record, snapshot = torch.cuda.memory._record_memory_history, torch.cuda.memory._snapshot
    forgets = "clear_history" in inspect.signature(record).parameters  # since 2.8

    def start() -> None:
        if forgets:
            record("all", context="alloc", stacks="python", max_entries=most_events, clear_history=True)
        else:
            record(None)
            record("all", context="alloc", stacks="python", max_entries=most_events)

    return start, functools.partial(record, None), snapshot


def when_cuda_is_ready(call: Callable[[], None]) -> None:
    """Call once CUDA is initialised, before anything is allocated; at once if it is already."""
    import torch

    torch.cuda._lazy_call(call)


def replace_history_switch(switched: Callable[[bool], None]) -> None:
    """Have `switched(on)` called instead where the program switches the allocator's record on or off."""
    import torch

    real = torch.cuda.memory._record_memory_history

    @functools.wraps(real)
    def switch(enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
        switched(bool(enabled))

    torch.cuda.memory._record_memory_history = switch


# --- CUDA's state -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def told_of_looks(looked: Callable[[], None]) -> Iterator[None]:
    """Have `looked()` called whenever Python asks torch about the cards, also where torch has the answer by now.

    Whatever is asked goes through one of two functions, in 2.4 to 2.14.
    """
    import torch

    initialize, count = torch.cuda._lazy_init, torch._C._cuda_getDeviceCount

    def told(real: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(real)
        def asked() -> Any:
            looked()
            return real()

        return asked

    torch.cuda._lazy_init, torch._C._cuda_getDeviceCount = told(initialize), told(count)
    try:
        yield
    finally:
        torch.cuda._lazy_init, torch._C._cuda_getDeviceCount = initialize, count


def cuda_is_initialized() -> bool:
    import torch

    return torch.cuda.is_initialized()


def autocast_query() -> Callable[[], bool]:
    """A function that says whether autocast is on for CUDA in this thread."""
    import torch

    return functools.partial(torch.is_autocast_enabled, "cuda")


def device_count() -> int:
    import torch

    return torch.cuda.device_count()


def versions() -> dict[str, str | None]:
    import torch

    return {"torch": str(torch.__version__), "cuda": torch.version.cuda}


def cudnn_version() -> int | None:
    """The version of the cuDNN that torch has loaded, as cudnnGetVersion counts it; public, but without types."""
    import torch

    version: int | None = torch.backends.cudnn.version()
    return version


def observe_out_of_memory(observe: Callable[[int, int, int, int], None]) -> None:
    """Have `observe(device, requested, allowed, free)`, in bytes, called before an out-of-memory error is raised.

    The observers live in the allocator, which exists only once CUDA is initialised. Checked on 2.4.1, 2.6.0, 2.9.1,
    2.11.0 and 2.14.1.
    """
    import torch

    def attach() -> None:
        with contextlib.suppress(RuntimeError):  # backend:cudaMallocAsync has no observers
            torch._C._cuda_attach_out_of_memory_observer(observe)

    torch.cuda._lazy_call(attach)


# --- autograd, Dynamo, distributed --------------------------------------------------------------------------------


def wrap_engine_run_backward(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap the one Python function through which `backward` and `grad` reach autograd's engine (2.4 to 2.14)."""
    import torch

    wrapped = wrap(torch.autograd.graph._engine_run_backward)
    torch.autograd.graph._engine_run_backward = wrapped
    torch.autograd._engine_run_backward = wrapped  # imported there by name


def wanted_of_engine(arguments: Sequence[Any]) -> tuple[Any, bool | None, bool]:
    """Of the arguments of that function: the tensors, `retain_graph` and `create_graph` (2.4 to 2.14)."""
    tensors, _, retain_graph, create_graph, *_ = arguments
    return tensors, retain_graph, create_graph


def wrap_next_batch(dataloader: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap what iterators of `torch.utils.data.DataLoader` do for a batch; `dataloader` is its module (2.4 to 2.14)."""
    iterator = dataloader._BaseDataLoaderIter
    iterator.__next__ = wrap(iterator.__next__)


def pinned(batch: Any) -> Any:
    """A batch with its tensors in pinned memory, as a loader with `pin_memory` gives it (2.4 to 2.14)."""
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(batch) if torch.cuda.is_available() else batch


def make_dynamo_skip(package: str) -> None:
    """Have Dynamo run the frames of a package as they are, without tracing into them (2.4 to 2.14)."""
    from torch._dynamo import trace_rules

    trace_rules.add(package)


def is_tracing() -> bool:
    """Whether operators are being traced into a graph instead of run, as AOTAutograd does (2.4 to 2.14)."""
    import torch

    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def process_group_exists() -> bool:
    """Whether the program has joined a distributed run."""
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


# --- operators seen from Python: checked on 2.14.1 -----------------------------------------------------------------


def dispatch_mode(run: Callable[[Any, Sequence[type], tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """A mode in which each operator is run by `run(operator, types, args, kwargs)`; what is compiled stays compiled.

    Where `run` returns NotImplemented, a tensor subclass among `types` runs it, with the mode on.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # or Dynamo would leave everything under the mode alone, and fail where that is forbidden

        def __torch_dispatch__(
            self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            return run(func, types, args, kwargs or {})

    return Mode()


def dispatch_modes() -> list[Any]:
    """The dispatch modes that are on in this thread, the outermost first."""
    from torch.utils import _python_dispatch

    return list(_python_dispatch._get_current_dispatch_mode_stack())


def dispatch_modes_are_asked() -> bool:
    """Whether operators of this thread go to the modes that are on."""
    import torch

    return torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)


def dispatches_itself(kind: type) -> bool:
    """Whether a class of tensors says itself what an operator does, as DTensor and fake tensors do."""
    import torch

    return getattr(kind, "__torch_dispatch__", None) is not torch._C._disabled_torch_dispatch_impl


def overloads_of(operator: Any) -> Any:
    """What all overloads of an operator have in common, such as `torch.ops.aten.mm`, or a higher-order operator."""
    return getattr(operator, "_overloadpacket", operator)


def returns_view(operator: Any) -> bool:
    """Whether what an operator returns shares the memory of an argument, and leaves it as it is."""
    returns = operator._schema.returns if hasattr(operator, "_schema") else ()
    return any(each.alias_info is not None and not each.alias_info.is_write for each in returns)


# --- storages and modes -------------------------------------------------------------------------------------------
# Checked on 2.4.1, 2.6.0, 2.11.0, 2.14.1. Functions called for every operator are handed out: no import in each call.


def storage_identity() -> Callable[[Any], int]:
    """The function from a tensor to its storage's identity.

    Unlike `tensor.untyped_storage()` it makes no Python object of the storage. From about 2.10 on such an object counts
    as one more owner for as long as the storage lives, and autograd then adds gradients out of place: more memory.
    """
    import torch

    return torch._C._storage_id


def storage_address() -> Callable[[Any], int]:
    """The function from a tensor to where its storage begins; 0 for none, an exception for a kind that cannot have one.

    Unlike `data_ptr` it gives a tensor that shares its memory until it is written no memory of its own, and does not
    warn of fake tensors.
    """
    import torch

    return torch._C._data_address


def storage_reference() -> Callable[[Any], Any]:
    """The class of weak references to a storage: they keep its identity from being used again, but not its memory."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef


def host_storage(address: int, size_bytes: int) -> Any:
    """A CPU storage over bytes of this process that somebody else owns."""
    import torch

    return torch._C._construct_storage_from_data_pointer(address, torch.device("cpu"), size_bytes)


def is_wrapped(tensor: Any) -> bool:
    """Whether a tensor is functorch's (of `vmap`, `grad`), which has no memory of its own: 2.4 to 2.14."""
    import torch

    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def dispatch_mode_is_on() -> bool:
    """Whether a mode looks at operators, or replaces them (fake tensors, counted FLOPs): 2.4 to 2.14."""
    import torch

    return torch._C._len_torch_dispatch_stack() > 0


def truncates_uniform_numbers() -> bool:
    """Whether `nn.init.trunc_normal_` draws a uniform number for each of its own; 2.14 rejects normal ones instead."""
    import torch

    return "erfinv_" in inspect.getsource(torch.nn.init._no_grad_trunc_normal_)


def in_backward() -> Callable[[], int]:
    """A function that gives the number of the backward pass this thread is in, -1 outside one."""
    import torch

    return torch._C._current_graph_task_id


def below_autograd() -> Any:
    """A context in which operators go straight to the kernels of their device."""
    import torch

    return torch._C._AutoDispatchBelowAutograd()


def without_torch_function() -> Any:
    """A context in which neither `__torch_function__` nor a mode such as `torch.device("cuda")` is looked at."""
    import torch

    return torch._C.DisableTorchFunction()


def is_capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    import torch

    return torch._C._cuda_isCurrentStreamCapturing()


def entries_of(sparse: Any) -> tuple[Any, int]:
    """The indices of a sparse COO tensor and how many there are, also where it is not coalesced."""
    return sparse._indices(), sparse._nnz()


def parts_of_sparse(sparse: Any) -> tuple[Any, ...]:
    """The strided tensors that a sparse tensor is made of, without a word to the program's modes; () if unknown."""
    import torch

    with torch._C._DisableTorchDispatch():
        if sparse.layout is torch.sparse_coo:
            return sparse._indices(), sparse._values()
        if sparse.layout in (torch.sparse_csr, torch.sparse_bsr):
            return sparse.crow_indices(), sparse.col_indices(), sparse.values()
        if sparse.layout in (torch.sparse_csc, torch.sparse_bsc):
            return sparse.ccol_indices(), sparse.row_indices(), sparse.values()
    return ()

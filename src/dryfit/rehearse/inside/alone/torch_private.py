"""Private names of torch.distributed, for a rank whose peers are not there; each with the versions checked."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dryfit.rehearse.inside.alone import gloo_private, last_words

# --- checked on 2.14.1 ---------------------------------------------------------------------------


def meet_nobody(
    c10d: ModuleType, rendezvous: Callable[..., Any], store: Any, joined: Callable[[int, int], None]
) -> None:
    """Have process groups made from `rendezvous` and `store`, without a connection to anybody.

    `c10d` is `torch.distributed.distributed_c10d`. Stores that a program makes for itself are `store` too. `joined`
    hears of the size of the group of all ranks, and of this one's rank. Communicators are not split from others: of a
    split, NCCL alone knows the sizes.
    """
    import torch.distributed as dist
    import torch.distributed.rendezvous as rendezvous_module

    c10d.rendezvous = rendezvous  # type: ignore[attr-defined]
    for name in ("TCPStore", "FileStore"):
        replaced = _in_place_of(getattr(dist, name), store)
        for module in (dist, rendezvous_module, c10d):
            if hasattr(module, name):
                setattr(module, name, replaced)
    c10d._new_process_group_helper = _of_nobody(c10d, store, joined)  # type: ignore[attr-defined]
    gloo_private.wait_for_nobody(c10d)
    c10d._create_process_group_wrapper = _unwrapped  # type: ignore[attr-defined]
    if hasattr(c10d, "_get_split_source"):  # since 2.6, and a group that is bound to no device may be one, too
        c10d._get_split_source = lambda _: None  # type: ignore[attr-defined]
    if hasattr(c10d, "split_group"):  # since 2.5
        c10d.split_group = dist.split_group = _made_anew(c10d)  # type: ignore[attr-defined]
    c10d.get_backend = dist.get_backend = _called_gloo(c10d.get_backend)  # type: ignore[attr-defined]
    c10d._tensor_to_object = _own_in_place_of(c10d._tensor_to_object)  # type: ignore[attr-defined]
    for name, kind in _OF_OBJECTS.items():
        function = kind(getattr(c10d, name))
        for module in (c10d, dist):
            setattr(module, name, function)


def _of_nobody(c10d: ModuleType, store: Any, joined: Callable[[int, int], None]) -> Callable[..., Any]:
    """Make groups that talk to nobody: torch's "fake" in place of gloo's, bound to no device, over `store` alone.

    From a group that is bound to a device others are split. A stand-in may not be registered as gloo's: DDP's C++ takes
    whatever is for a `ProcessGroupGloo`.
    """
    real = c10d._new_process_group_helper

    @functools.wraps(real)
    def make(
        group_size: int, group_rank: int, global_ranks: Any, backend: Any, given: Any, *args: Any, **kwargs: Any
    ) -> Any:
        global _is_bound
        importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers it
        if not global_ranks and group_size > 0:  # it is -1 where a launcher of MPI knows
            joined(group_size, group_rank)
        if "device_id" in kwargs:
            if not global_ranks:
                _is_bound = kwargs["device_id"] is not None
            kwargs["device_id"] = None
        if not _is_over(store, given):
            given = store
        faked = _faked(backend)
        over_gloo = _devices_of_fake(c10d, faked)
        own_kind = c10d.ProcessGroup
        if over_gloo:
            c10d.ProcessGroup = gloo_private.group_of(over_gloo)  # type: ignore[attr-defined]
        try:
            return real(group_size, group_rank, global_ranks, faked, given, *args, **kwargs)
        finally:
            c10d.ProcessGroup = own_kind  # type: ignore[attr-defined]

    return make


_is_bound = False  # whether the program bound the group of all ranks to a device


def _made_anew(c10d: ModuleType) -> Callable[..., Any]:
    """`split_group`, which makes the group of this rank's part anew; unbound groups are refused as torch does."""
    real = c10d.split_group

    @functools.wraps(real)
    def split_group(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(real).bind(*args, **kwargs).arguments
        parts = given.get("split_ranks")
        if not parts or not _is_bound:
            return real(*args, **kwargs)
        parent = c10d.get_process_group_ranks(given.get("parent_pg") or c10d.GroupMember.WORLD)
        of_parts = ([parent[rank] for rank in part] for part in parts)
        own = next((ranks for ranks in of_parts if c10d.get_rank() in ranks), None)
        if own is None:
            return c10d.GroupMember.NON_GROUP_MEMBER
        kept = {name: given[name] for name in ("timeout", "backend", "group_desc") if given.get(name) is not None}
        return c10d.new_group(own, **kept)

    return split_group


def _is_over(store: Any, given: Any) -> bool:
    """Whether a store is `store`, or prefixes its keys."""
    return getattr(given, "_underlying_non_prefix_store", given) is store


def _unwrapped(wrapped_pg: Any, *_: Any, **__: Any) -> Any:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compares what ranks do, over gloo; there is nobody to compare with."""
    return wrapped_pg


def _faked(backend: Any) -> Any:
    return str(backend).replace("gloo", "fake") if backend is not None else backend


def _devices_of_fake(c10d: ModuleType, backend: Any) -> frozenset[str]:
    """The kinds of device that the stand-in of gloo answers for; "fake" without a colon is for all."""
    if "fake" not in str(backend):
        return frozenset()
    of_devices = c10d.BackendConfig(c10d.Backend(str(backend))).get_device_backend_map()
    return frozenset(device for device, name in of_devices.items() if name == "fake")


def _called_gloo(real: Callable[..., Any]) -> Callable[..., Any]:
    """`get_backend`, with the name that the program gave."""

    @functools.wraps(real)
    def get_backend(*args: Any, **kwargs: Any) -> Any:
        return str(real(*args, **kwargs)).replace("fake", "gloo")

    return get_backend


def end_groups() -> None:
    """End all process groups, with their threads."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _in_place_of(kind: type, store: Any) -> type:
    """A name for a kind of store that gives `store`; a launcher has its own, with which it meets its workers."""

    class Kind(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return kind(*args, **kwargs) if _is_launching else store

        def __instancecheck__(cls, other: Any) -> bool:
            return isinstance(other, kind)

    return Kind(kind.__name__, (), {})


# --- objects: checked on 2.14.1 ------------------------------------------------------------------


_has_objects = False


def has_objects_of_others() -> bool:
    """Whether this process has had objects that other ranks would have sent."""
    return _has_objects


def _have_objects(given: dict[str, Any]) -> None:
    """Objects of others come by this call, but where the one source is this rank itself."""
    global _has_objects
    import torch.distributed as dist

    if given.get("group_src") is not None:
        is_own = given["group_src"] == dist.get_rank(given.get("group"))
    else:
        is_own = "obj" not in given and (given.get("src") or 0) == dist.get_rank()
    _has_objects = _has_objects or not is_own


def _kept(real: Callable[..., Any]) -> Callable[..., Any]:
    """`broadcast_object_list`: from another rank comes what this one has."""

    @functools.wraps(real)
    def broadcast_object_list(*args: Any, **kwargs: Any) -> Any:
        _have_objects(inspect.signature(real).bind(*args, **kwargs).arguments)

    return broadcast_object_list


def _first_of_own(real: Callable[..., Any]) -> Callable[..., Any]:
    """`scatter_object_list`: from the source comes this rank's of the list that it has itself, or else nothing."""

    @functools.wraps(real)
    def scatter_object_list(*args: Any, **kwargs: Any) -> Any:
        import torch.distributed as dist

        given = inspect.signature(real).bind(*args, **kwargs).arguments
        _have_objects(given)
        objects, rank = given.get("scatter_object_input_list"), dist.get_rank(given.get("group"))
        if objects and rank >= 0:
            given["scatter_object_output_list"][0] = objects[rank]

    return scatter_object_list


def _refused(real: Callable[..., Any]) -> Callable[..., Any]:
    """`recv_object_list`: nobody can say what another rank would send."""

    @functools.wraps(real)
    def recv_object_list(*args: Any, **kwargs: Any) -> Any:
        import torch.distributed as dist

        raise RuntimeError(
            "dryfit plays this rank alone, and torch.distributed.recv_object_list waits for objects that only another "
            "rank has, as a pipeline's stage does for the shapes of the one before. Rehearse real processes instead: "
            f"{last_words.real_processes(dist.get_world_size())}"
        )

    return recv_object_list


_gathering = threading.local()  # `pickled`: the object that this thread is gathering


def _all_own(real: Callable[..., Any]) -> Callable[..., Any]:
    """`all_gather_object` and `gather_object`: every rank has sent what this one has, of whatever size."""

    @functools.wraps(real)
    def gather(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(real).bind(*args, **kwargs).arguments
        _have_objects(given)
        _gathering.pickled = pickle.dumps(given["obj"])
        try:
            return real(*args, **kwargs)
        finally:
            _gathering.pickled = None

    return gather


def _own_in_place_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """`_tensor_to_object`, which reads what was gathered: of what is larger than 1 MiB the card has no bytes."""

    @functools.wraps(real)
    def tensor_to_object(*args: Any, **kwargs: Any) -> Any:
        pickled = getattr(_gathering, "pickled", None)
        return real(*args, **kwargs) if pickled is None else pickle.loads(pickled)

    return tensor_to_object


def _nothing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def monitored_barrier(*args: Any, **kwargs: Any) -> None:
        return None

    return monitored_barrier


_OF_OBJECTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "all_gather_object": _all_own,
    "gather_object": _all_own,
    "broadcast_object_list": _kept,
    "scatter_object_list": _first_of_own,
    "recv_object_list": _refused,
    "monitored_barrier": _nothing,
}


# --- distributed checkpoints: checked on 2.14.1 --------------------------------------------------


def plan_alone(utils: ModuleType) -> None:
    """Have what runs a checkpoint's steps on all ranks run them on this one."""
    kind = utils._DistWrapper
    real = kind.__init__

    @functools.wraps(real)
    def begin(self: Any, group: Any, use_dist: bool, coordinator_rank: int) -> None:
        real(self, group, False, coordinator_rank)

    kind.__init__ = begin


def allow_parts(planner: ModuleType) -> None:
    """Have a plan pass that leaves out what the other ranks would save."""
    real = planner._validate_global_plan

    @functools.wraps(real)
    def validate(*args: Any, **kwargs: Any) -> Any:  # whether it is right; since about 2.12 what is wrong with it
        return [] if isinstance(real(*args, **kwargs), list) else True

    planner._validate_global_plan = validate  # type: ignore[attr-defined]


# --- launchers: checked on 2.14.1 ----------------------------------------------------------------

_is_launching = False


def is_launching() -> bool:
    """Whether this process is a launcher's, and no rank."""
    return _is_launching


def launches() -> None:
    """Be a launcher's process from here on."""
    global _is_launching
    _is_launching = True


def start_one_worker(api: ModuleType, as_rank: Callable[[], None], asked: Callable[[int, int, int], None]) -> None:
    """Have torchrun's agent, which accelerate and notebooks use too, start one process and meet no node.

    `api` is `torch.distributed.launcher.api`. A function that is launched is called after `as_rank()`, which can be
    pickled. `asked` hears of what was to be started: processes of a node, and nodes at least and at most.
    """
    real = api.launch_agent

    @functools.wraps(real)
    def launch_agent(config: Any, entrypoint: Any, *args: Any, **kwargs: Any) -> Any:
        launches()
        asked(config.nproc_per_node, config.min_nodes, config.max_nodes)
        config.min_nodes = config.max_nodes = config.nproc_per_node = 1
        config.rdzv_backend, config.rdzv_endpoint, config.run_id = "c10d", "localhost:0", "alone"
        if callable(entrypoint):
            entrypoint = functools.update_wrapper(functools.partial(_launched, as_rank, entrypoint), entrypoint)
        return real(config, entrypoint, *args, **kwargs)

    api.launch_agent = launch_agent  # type: ignore[attr-defined]


def _launched(as_rank: Callable[[], None], function: Callable[..., Any], *args: Any) -> Any:
    global _is_launching
    _is_launching = False  # this may be a fork of the launcher
    as_rank()
    return function(*args)


def start_one_process(spawn: ModuleType, index: int) -> None:
    """Have `torch.multiprocessing.spawn` and its likes start the process of one index, in place of several.

    `spawn` is the module `torch.multiprocessing.spawn`, which the function of that name hides.
    """
    real = spawn.start_processes

    @functools.wraps(real)
    def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *more: Any, **kwargs: Any) -> Any:
        fn = functools.partial(_with_index, fn, min(index, max(nprocs - 1, 0)))
        return real(fn, args, min(nprocs, 1), *more, **kwargs)

    for module in (spawn, sys.modules.get("torch.multiprocessing")):
        if module is not None:
            module.start_processes = start_processes  # type: ignore[attr-defined]


def _with_index(function: Callable[..., Any], index: int, _: int, *args: Any) -> Any:
    try:
        return function(index, *args)
    except Exception as error:
        sys.last_value = error  # torch catches it, has its text sent to the parent, and leaves
        raise

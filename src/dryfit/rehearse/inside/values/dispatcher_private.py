"""Private names of torch's dispatcher. Checked on 2.4.1, 2.6.0, 2.11.0, 2.14.1.

Functions called for every operator are handed out: no import in each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def cuda_operators(namespace: str) -> list[str]:
    """Names such as "aten::add.Tensor" of the operators of a namespace with a kernel of their own for CUDA."""
    import torch

    names: list[str] = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    return [name for name in names if name.startswith(f"{namespace}::")]


def operator_schema(name: str) -> Any:
    """The schema of an operator by its full name; raises RuntimeError if there is no such operator."""
    import torch

    base, _, overload = name.partition(".")
    return torch._C._get_schema(base, overload)


def process_group(boxed: Any) -> Any:
    """The `ProcessGroup` that an operator of `c10d` was given; that of all ranks where torch cannot say (2.14 can)."""
    import torch

    kind = torch._C._distributed_c10d.ProcessGroup
    return kind.unbox(boxed) if hasattr(kind, "unbox") else torch.distributed.group.WORLD


def operator_library(namespace: str) -> Any:
    """A library in which kernels of our own can be given to the operators of a namespace, for as long as it lives."""
    import torch

    return torch.library.Library(namespace, "IMPL")


def computed_kernels() -> Callable[[str, str], Callable[..., Any]] | None:
    """The function from an operator's name and a dispatch key to its kernel, called as `kernel(keyset, *args)`.

    None on torch that does not have it (2.6 does not, 2.11 does).
    `torch.library.get_kernel` itself is public, the name of what it returns is not.
    """
    import torch

    if not hasattr(torch.library, "get_kernel"):
        return None

    def kernel(name: str, key: str) -> Callable[..., Any]:
        call: Callable[..., Any] = torch.library.get_kernel(name, key).call_boxed
        return call

    return kernel


def keys_below_backend_select() -> Any:
    """The set of the dispatch keys that an operator still has before it after BackendSelect."""
    import torch

    return torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)


def below_backend_select(operator: Any) -> Callable[..., Any]:
    """Run an operator of `torch.ops` on the kernels below BackendSelect, called as `run(keyset, *args)`."""
    below = keys_below_backend_select()
    redispatch = operator._handle.redispatch_boxed

    def run(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        return redispatch(keyset & below, *args, **kwargs)

    return run


def backend_select_operators() -> set[str]:
    """Names of the operators with a kernel of their own at BackendSelect: those that make tensors from no tensor."""
    import torch

    return set(torch._C._dispatch_get_registrations_for_dispatch_key("BackendSelect"))


def dispatch_key(name: str) -> Any:
    """The dispatch key of a name, such as "CUDA"."""
    import torch

    return torch._C.DispatchKey.__members__[name]


def first_key() -> Callable[[Any], Any]:
    """The function from a set of dispatch keys to the one whose kernel an operator goes to first."""
    import torch

    return torch._C.DispatchKeySet.highestPriorityTypeId

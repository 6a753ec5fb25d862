"""The private names of Triton, and of what torch.compile generates with it: kernels launched past the dispatcher.

Looked at in Triton 3.0.0, 3.2.0, 3.6.0 and 3.8.0, which torch 2.4.1, 2.6.0, 2.11.0 and 2.14.1 come with; run on the
last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TRITON_LAUNCHES, INDUCTOR_LAUNCHES = "triton.runtime.jit", "torch._inductor.runtime.triton_heuristics"
"""The modules that define them."""


def before_triton_launches(module: Any, see: Callable[[Any, Any, Any], None]) -> None:
    """Have `see(kernel, args, kwargs)` called before each launch of a `@triton.jit` kernel; `module` is its own."""
    _before(module.JITFunction, see)


def before_inductor_launches(module: Any, see: Callable[[Any, Any, Any], None]) -> None:
    """The same for the kernels that torch.compile generates."""
    _before(module.CachingAutotuner, see)


def _before(kernels: Any, see: Callable[[Any, Any, Any], None]) -> None:
    launch = kernels.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        see(self, args, kwargs)
        return launch(self, *args, **kwargs)

    kernels.run = run


def triton_kernel(kernel: Any) -> tuple[str, list[str]]:
    """The source of a `@triton.jit` kernel and the names of its arguments."""
    return kernel.src, kernel.arg_names


def triton_name(kernel: Any) -> str:
    """The name of a `@triton.jit` kernel."""
    return str(kernel.fn.__name__)


def triton_helpers(kernel: Any) -> list[Any]:
    """The other `@triton.jit` functions that a kernel's source names."""
    around = getattr(kernel.fn, "__globals__", {})
    return [around[name] for name in kernel.fn.__code__.co_names if isinstance(around.get(name), type(kernel))]


def triton_of_inductor(kernel: Any) -> Any:
    """The `@triton.jit` kernel of one that torch.compile has generated."""
    return kernel.fn


def inductor_kernel(kernel: Any) -> tuple[list[str], frozenset[str]]:
    """The names of a generated kernel's arguments, and of those that it changes in place."""
    return list(getattr(kernel.fn, "arg_names", ())), frozenset(getattr(kernel, "mutated_arg_names", None) or ())

"""Big weights that the program draws in this machine's memory stay zeros, and cost neither time nor memory.

A GPT-2 draws 163 million numbers before its first step, a GPT-2 XL keeps 6 GB of them; the virtual card, which stores
no copy of that size, then drops them all. So where `normal_`, `uniform_` or a `trunc_normal_` would fill a weight of
2 MiB or more, its whole pages go back to the system, which gives zeros when they are read: as if every number drawn
were the middle of its distribution. The generator is moved on by what would have been drawn, so that all that is drawn
next is the same: biases, shuffles, the lengths of samples.

Only parameters count, and what shares their memory (`.data`). Where zero is not the middle, where the generator cannot
be moved on exactly, or where memory is shared with other processes, numbers are drawn as always.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
import mmap
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.imports import after_import
from dryfit.virtual_card import calls

# Twice what the card stores of a copy: weights that are made half as large before they are sent are unknown there too.
LIGHT_BYTES = 2 << 20

# PyTorch's normal numbers come from 24 or 53 random bits, and so never lie farther out, in standard deviations.
_FARTHEST_NORMAL = 9.0
# normal_ fills blocks of 16, and draws more for what is left than there is.
_BLOCK = 16

# Of a CPU generator's state, the part that is read: two counts and a seed, and 624 words of 8 bytes.
_LEAST_STATE_BYTES = 24 + 624 * 8

_Fill = Callable[..., Any]


def prepare() -> None:
    """Change how weights are filled from now on; torch has just been imported."""
    weights = _Weights()
    _remember_parameters(weights)
    normal, uniform = torch.Tensor.normal_, torch.Tensor.uniform_
    torch.Tensor.normal_ = _light(weights, normal, _is_centred_normal, normal)  # type: ignore[method-assign]
    torch.Tensor.uniform_ = _light(weights, uniform, _is_around_zero, uniform)  # type: ignore[method-assign]

    init: Any = torch.nn.init
    if torch_private.truncates_uniform_numbers():
        init.trunc_normal_ = _light(weights, init.trunc_normal_, _is_truncated_around_zero, uniform)
    else:  # normal numbers, drawn again where they lie outside
        init.trunc_normal_ = _light(weights, init.trunc_normal_, _is_truncated_far_out, normal)

    def change_timm(module: ModuleType) -> None:
        for name in ("trunc_normal_", "trunc_normal_tf_"):
            setattr(module, name, _light(weights, getattr(module, name), _is_truncated_around_zero, uniform))

    after_import("timm.layers.weight_init", change_timm)


class _Weights:
    """The storages of big parameters on the host, for as long as they live."""

    def __init__(self) -> None:
        self._identity, self._refer_to = torch_private.storage_identity(), torch_private.storage_reference()
        self._references: dict[int, Any] = {}
        self._look_through_at = 1024
        self._changing = threading.RLock()  # reentrant: collected objects may make parameters

    def add(self, parameter: torch.Tensor) -> None:
        """Remember a parameter's storage; that keeps its identity from being used again, and no memory."""
        with self._changing:
            if len(self._references) >= self._look_through_at:
                for identity, reference in self._references.copy().items():
                    if reference.expired():
                        self._references.pop(identity, None)
                self._look_through_at = max(1024, 2 * len(self._references))
            self._references[self._identity(parameter)] = self._refer_to(parameter.untyped_storage())

    def hold(self, tensor: torch.Tensor) -> bool:
        """Whether all of a tensor, which is big itself, is of a weight."""
        return (
            _is_big_on_host(tensor)
            and self._identity(tensor) in self._references
            and tensor.is_contiguous()
            and not tensor.is_shared()  # type: ignore[no-untyped-call]
        )


def _is_big_on_host(tensor: Any) -> bool:
    """Whether this is one of torch's own tensors, with memory on the host, of a size that is felt."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and tensor.nbytes >= LIGHT_BYTES
        and not torch_private.is_wrapped(tensor)
    )


def _remember_parameters(weights: _Weights) -> None:
    kind: Any = torch.nn.Parameter
    real = kind.__new__

    @functools.wraps(real)
    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        parameter = real(cls, *args, **kwargs)
        if _is_big_on_host(parameter):
            weights.add(parameter)
        return parameter

    kind.__new__ = staticmethod(__new__)


def _light(weights: _Weights, real: _Fill, leaves_zeros: Callable[..., bool], drawn_by: _Fill) -> _Fill:
    """`real`, but for a big weight and arguments for which zeros are as good: then nothing is drawn.

    `leaves_zeros` has the arguments of `real`, and `drawn_by` is the method that draws as many numbers.
    """
    signature = inspect.signature(leaves_zeros)

    def is_done(tensor: Any, args: Any, kwargs: Any) -> bool:
        if real is drawn_by and torch.is_grad_enabled() and getattr(tensor, "requires_grad", False):
            return False  # the methods refuse it; initialisers see to it themselves
        if torch.compiler.is_compiling() or torch_private.dispatch_mode_is_on() or not weights.hold(tensor):
            return False
        try:
            bound = signature.bind(*args, **{_NAMES.get(name, name): value for name, value in kwargs.items()})
        except TypeError:
            return False  # `real` says what is wrong
        generator = bound.arguments.get("generator") or torch.default_generator
        return leaves_zeros(*bound.args, **bound.kwargs) and _pass_over(tensor, drawn_by, generator)

    @functools.wraps(real)
    def fill(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        was_within = getattr(_within, "real", False)
        if not was_within and is_done(tensor, args, kwargs):
            return tensor
        _within.real = True
        try:
            return real(tensor, *args, **kwargs)
        finally:
            _within.real = was_within

    return fill


# Whether this thread is in a function that draws as always: it may look at the numbers that it has drawn.
_within = threading.local()

_NAMES = {"from": "low"}  # of uniform_, and no name in Python


def _is_centred_normal(mean: float = 0.0, std: float = 1.0, *, generator: object = None) -> bool:
    return mean == 0 and 0 <= std < math.inf


def _is_around_zero(low: float = 0.0, to: float = 1.0, *, generator: object = None) -> bool:
    return -math.inf < low <= 0 <= to < math.inf


def _is_truncated_around_zero(
    mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: object = None
) -> bool:
    return mean == 0 and 0 < std < math.inf and a < 0 < b


def _is_truncated_far_out(
    mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: object = None
) -> bool:
    """Whether no number can be drawn that has to be drawn again."""
    return _is_truncated_around_zero(mean, std, a, b) and std * _FARTHEST_NORMAL <= min(-a, b)


def _pass_over(tensor: torch.Tensor, drawn_by: _Fill, generator: torch.Generator) -> bool:
    """Leave zeros in a tensor, and the generator as if the tensor had been filled; False if one of them cannot be."""
    whole, rest = divmod(tensor.numel(), _BLOCK)
    words = _words_drawn(drawn_by, tensor.dtype, rest)
    if words is None or generator.device.type != "cpu" or not _clear(tensor.data_ptr(), tensor.nbytes):
        return False
    state = generator.get_state()
    calls.pass_over_random_words(state.data_ptr(), whole * words[0] + words[1])
    generator.set_state(state)
    return True


@functools.cache
def _words_drawn(fill: _Fill, dtype: torch.dtype, rest: int) -> tuple[int, int] | None:
    """The 32-bit words that a block of numbers takes from a generator, and those that so many after the blocks do.

    It is tried, since versions of torch differ; None where a generator is not moved on in such a way.
    """

    def moves_so(blocks: int, rest: int, words: int) -> bool:
        generator = torch.Generator()
        state = generator.get_state()
        if state.numel() < _LEAST_STATE_BYTES:
            return False
        fill(torch.empty(blocks * _BLOCK + rest, dtype=dtype, device="cpu"), generator=generator)
        calls.pass_over_random_words(state.data_ptr(), words)
        return torch.equal(state, generator.get_state())

    for each in (_BLOCK, 2 * _BLOCK):
        if moves_so(64, 0, 64 * each):
            for after in range(4 * _BLOCK):
                if moves_so(64, rest, 64 * each + after) and moves_so(99, rest, 99 * each + after):
                    return each, after
    return None


def _clear(address: int, size_bytes: int) -> bool:
    """Make private memory zeros, and give its whole pages back to the system; False, and nothing done, if it cannot."""
    first_page = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = address + size_bytes
    last_page = end // mmap.PAGESIZE * mmap.PAGESIZE
    if _c_library().madvise(ctypes.c_void_p(first_page), ctypes.c_size_t(last_page - first_page), mmap.MADV_DONTNEED):
        return False  # locked memory, or huge pages
    ctypes.memset(address, 0, first_page - address)
    ctypes.memset(last_page, 0, end - last_page)
    return True


@functools.cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)

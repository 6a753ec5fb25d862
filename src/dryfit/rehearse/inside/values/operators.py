"""Which operators are followed, and what of each one's schema matters: what it writes, what it reads, what it draws."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Any

import torch

from dryfit.rehearse.inside.values import dispatcher_private

# Kernels for CUDA that only make or re-describe memory, and so write no value; `zero_` calls `fill_`.
_NO_VALUES = re.compile(
    r"aten::(empty|_efficientzerotensor|set_|as_strided|view|_reshape_alias|unfold\b|record_stream|is_set_to|is_pinned|"
    r"_pin_memory|_nested|zero_$|_fused_sdp_choice|_use_|_cudnn_init_dropout_state|_cudnn_rnn_flatten_weight)"
)
# The heavy kernels: their results are activations, large or computed from weights, and no program branches on them
# unreduced. Following them would cost time in every step; what they give is unknown, which is the default.
_HEAVY = re.compile(
    r"mm\b|mm_|convolution|conv_|conv\d|attention|cudnn|miopen|(layer|batch|group|rms)_norm|rnn|lstm|gru|upsample|pool|grid_sampl|embedding_bag|quantize|"
    r"_fft|grouped|sparse|_cslt|_backward\b"
)
# Called by `2 ** x` with a number that lies on the card, which torch can't hand to Python.
_NOT_FOR_PYTHON = ("aten::pow.Tensor_Tensor_out",)
# Batch normalisation updates them, and its older schemas do not say so.
_WRITTEN_UNSAID = ("running_mean", "running_var")
# Written from the other arguments alone: what was there before plays no part.
_OVERWRITE_SELF = {
    "copy_", "fill_", "zero_",
    "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_",
}  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# Not registered for CUDA by name (their kernel serves all devices), yet what copies onto and off the card goes through.
_FOLLOWED_BESIDES = ("aten::copy_", "aten::masked_scatter_backward")


class Operator:
    """What matters of one operator.

    Example:
        Operator("aten::add_.Tensor").written  # ((0, "self"),)

    `written` are the positions and names of the arguments it writes, `first_read` the first position it reads, and
    `number_positions` those of its tensors where a Python number may stand, as in `x * 2`.
    `dimension_at` is the position of `dim`, `indices_at` are those of the results called indices, `argument_names` are
    the names of all arguments in their order.
    Raises RuntimeError if there is no such operator.
    """

    def __init__(self, name: str) -> None:
        schema = dispatcher_private.operator_schema(name)
        self.name = name
        self.base = name.partition("::")[2].partition(".")[0]
        self.written = tuple(
            (position, argument.name)
            for position, argument in enumerate(schema.arguments)
            if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name in _WRITTEN_UNSAID
        )
        self.first_read = 1 if self.base in _OVERWRITE_SELF else 0
        self.argument_names = [argument.name for argument in schema.arguments]
        tensors = [at for at, argument in enumerate(schema.arguments) if str(argument.type) == "Tensor"]
        self.number_positions = tuple(at for at in tensors if (at, schema.arguments[at].name) not in self.written)
        if len(tensors) < 2:
            self.number_positions = ()
        self.dimension_at = next((at for at, argument in enumerate(schema.arguments) if argument.name == "dim"), None)
        self.indices_at = tuple(at for at, returned in enumerate(schema.returns) if returned.name == "indices")
        self.compares = self.base in _COMPARISONS and not self.written
        self.takes_generator = any(argument.name == "generator" for argument in schema.arguments)

    @cached_property
    def overload(self) -> Any:
        """The callable of `torch.ops`; resolved when first needed, because that is slow."""
        namespace, _, rest = self.name.partition("::")
        base, _, overload = rest.partition(".")
        return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")

    @cached_property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        return torch.Tag.nondeterministic_seeded in self.overload.tags

    def targets(self, args: Any, kwargs: Any) -> list[Any]:
        """The arguments of a call that are written."""
        return [args[at] if at < len(args) else kwargs.get(name) for at, name in self.written]


def with_tensors_for_numbers(operator: Operator, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with a tensor in place of each Python number that stands for one, as in `x * 2`.

    Kernels called from Python take tensors alone there, and none can be marked as a number, which has no say in the
    type of the result. So the number gets a type that leaves the result's as it would have been: the widest of its
    kind beside a tensor with dimensions, for its digits count on the CPU, else the other's.
    """
    for at in operator.number_positions:
        if at < len(args) and args[at].__class__ in _WIDE:
            number = args[at]
            args = (*args[:at], _tensor_for(number, _type_for(number, args)), *args[at + 1 :])
    return args


_WIDE = {float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128}


def _type_for(number: complex, args: tuple[Any, ...]) -> torch.dtype:
    wide = _WIDE[number.__class__]
    others = [value for value in args if isinstance(value, torch.Tensor)]
    other = max(others, key=lambda tensor: (_category(tensor.dtype), tensor.dim() > 0), default=None)
    if other is None or _category(other.dtype) < _category(wide):
        return torch.result_type(number, number)
    return wide if other.dim() else other.dtype


def _category(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1


@lru_cache(maxsize=1024)
def _tensor_for(number: complex, dtype: torch.dtype) -> torch.Tensor:
    return torch.scalar_tensor(number, dtype=dtype, device="cpu")


def followed() -> list[Operator]:
    """The operators of `aten` that are followed, as this torch has them: about a thousand."""
    names = [name for name in dispatcher_private.cuda_operators("aten") if not _NO_VALUES.match(name)]
    operators = [Operator(name) for name in names if name not in _NOT_FOR_PYTHON]
    kept = [operator for operator in operators if operator.written or not _HEAVY.search(operator.name)]
    return [*kept, *(Operator(name) for name in _FOLLOWED_BESIDES)]

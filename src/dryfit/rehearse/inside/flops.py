"""Counts the FLOPs of what this process runs on the card, by PyTorch's own formulas, and says what has none.

The formulas are `torch.utils.flop_counter`'s: two for a multiplication and an addition, of dense operands.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from dryfit.rehearse.inside import torch_private, triton_private
from dryfit.rehearse.inside.identities import Identities
from dryfit.rehearse.inside.imports import after_import

Look = Callable[[tuple[Any, ...], dict[str, Any], Any], None]

# Operators that multiply matrices, by their names. aten has some that only look like it: lgamma, upsample_linear1d.
_MULTIPLIES_IN_ATEN = re.compile(r"(?:^|_|add|b|pack)mm(?:_|$)|rnn|trilinear")
_MULTIPLIES = re.compile(r"mm(?:_|$)|matmul|gemv|gemm|attn|attention|linear|conv|rnn|lstm|dot(?:_|$)")


# Quantised ones of which PyTorch has no formula; each multiplies its first argument by a matrix.
_BY_A_MATRIX = (
    "aten::_int_mm", "aten::_weight_int4pack_mm", "aten::_weight_int8pack_mm", "bitsandbytes::gemm_4bit",
    "bitsandbytes::gemv_4bit", "bitsandbytes::int8_linear_matmul", "bitsandbytes::int8_mixed_scaled_mm",
    "bitsandbytes::int8_scaled_mm",
)  # fmt: skip
_BY_GROUPS = ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")


class FlopCounter:
    """`total` FLOPs so far; `uncounted` names operators and kernels that multiply matrices and have no formula."""

    def __init__(self) -> None:
        self.total = 0
        self._uncounted: dict[str, None] = {}
        self._of_graph: Identities[int] = Identities()
        self._kernels: dict[Any, bool] = {}

    @property
    def uncounted(self) -> tuple[str, ...]:
        return tuple(sorted(self._uncounted))

    def look_for(self, operator: Any) -> Look | None:
        """What to do after each run of an operator of `torch.ops`; None for one that multiplies nothing."""
        formula = flop_registry.get(torch_private.overloads_of(operator))
        name = operator.name().partition(".")[0]
        if formula is None:
            formula = _own_formula(name)
        if formula is not None:
            return functools.partial(self._count, name, formula)
        space, _, base = name.rpartition("::")
        multiplies = _MULTIPLIES_IN_ATEN if space == "aten" else _MULTIPLIES
        return functools.partial(self._leave_out, name) if multiplies.search(base) else None

    def follow_launches(self) -> None:
        """See Triton's kernels and CUDA graphs too, which go past the dispatcher."""
        after_import(
            triton_private.TRITON_LAUNCHES,
            lambda module: triton_private.before_triton_launches(module, lambda kernel, *_: self._launched(kernel)),
        )
        after_import(
            triton_private.INDUCTOR_LAUNCHES,
            lambda module: triton_private.before_inductor_launches(
                module, lambda kernel, *_: self._launched(triton_private.triton_of_inductor(kernel))
            ),
        )
        self._follow_graphs(torch.cuda.CUDAGraph)

    def _count(
        self, name: str, formula: Callable[..., int], args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if is_on_card(args, output):
            try:
                self.total += int(formula(*args, **kwargs, out_val=output))
            except Exception:  # of a formula that does not know these arguments
                self._uncounted[name] = None

    def _leave_out(self, name: str, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        if is_on_card(args, output):
            self._uncounted[name] = None

    def _launched(self, kernel: Any) -> None:
        multiplies = self._kernels.get(kernel)
        if multiplies is None:
            multiplies = self._kernels[kernel] = _multiplies_in_triton(kernel)
        if multiplies:
            self._uncounted[f"Triton kernel {triton_private.triton_name(kernel)}"] = None

    def _follow_graphs(self, graphs: Any) -> None:
        """What is captured into a graph runs with each replay of it, unseen, and not when it is captured."""
        begin, end, replay = graphs.capture_begin, graphs.capture_end, graphs.replay
        total_before: Identities[int] = Identities()

        @functools.wraps(begin)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            total_before.put(graph, self.total)
            return begin(graph, *args, **kwargs)

        @functools.wraps(end)
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            before = total_before.get(graph) or 0
            self._of_graph.put(graph, self.total - before)
            self.total = before
            return end(graph, *args, **kwargs)

        @functools.wraps(replay)
        def replayed(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self.total += self._of_graph.get(graph) or 0
            return replay(graph, *args, **kwargs)

        graphs.capture_begin, graphs.capture_end, graphs.replay = capture_begin, capture_end, replayed


def _own_formula(name: str) -> Callable[..., int] | None:
    if name in _BY_A_MATRIX:
        return _flops_by_a_matrix
    return _flops_by_groups if name in _BY_GROUPS else None


def _flops_by_a_matrix(given: Any, *others: Any, out_val: Any, **named: Any) -> int:
    made = out_val[0] if isinstance(out_val, tuple) else out_val
    if made is None:  # it was written where the program said
        made = named.get("out", others[-1] if others else None)
    return 2 * int(given.numel()) * int(made.shape[-1])


def _flops_by_groups(one: Any, other: Any, *_: Any, **__: Any) -> int:
    """Of the rows of one matrix by several in turn, or of several by the columns of one in turn."""
    rows_and_inner = one.numel() // one.shape[0] if one.dim() > other.dim() else one.numel()
    return 2 * int(rows_and_inner) * int(other.shape[-1])


def is_on_card(args: tuple[Any, ...], output: Any) -> bool:
    """Whether an operator that was given this, and gave that, ran on the card."""
    for value in (*args, output):
        if isinstance(value, torch.Tensor):
            return value.is_cuda
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            return bool(value[0].is_cuda)
    return False


def _multiplies_in_triton(kernel: Any, depth: int = 0) -> bool:
    try:
        source, _ = triton_private.triton_kernel(kernel)
        helpers = triton_private.triton_helpers(kernel) if depth < 3 else ()
    except AttributeError:  # not of a kind that is known
        return False
    return "tl.dot" in source or any(_multiplies_in_triton(helper, depth + 1) for helper in helpers)

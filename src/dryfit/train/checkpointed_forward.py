"""The forward of one block that is checkpointed, in place of the block's own."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from dryfit.errors import UsageError
from dryfit.train.batch_norms import name_layers
from dryfit.train.changed_buffers import ChangedBuffers
from dryfit.train.kept_outputs import KeptOutputs
from dryfit.train.nested import tensors_with_places
from dryfit.train.random_states import read_random_states
from dryfit.train.torch_private import has_lasting_buffers
from dryfit.train.unchanged import Unchanged, with_own_containers

Keep = Literal["matmuls", "attention"]

# What takes long to compute, among the operators a block runs; of torch 2.4 to 2.14.
_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
KEPT: dict[Keep, tuple[str, ...]] = {
    "attention": _ATTENTION,
    "matmuls": ("mm", "addmm", "bmm", "convolution", *_ATTENTION),
}

# Compiled code of older versions computes what changes a buffer again in the backward pass, with its effect. It was so
# on 2.6, and is not on 2.14; pytorch/pytorch#155354, of June 2025, bans it.
BUFFERS_MOVE_TWICE_IF_COMPILED = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9)

# Names by which blocks are given a KV cache.
_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache", "kv_cache")


class CheckpointedForward:
    """Set as a block's `forward`: computes it under `torch.utils.checkpoint` in training, and plainly otherwise.

    It refers to its block weakly, so that `del model` frees a model without waiting for the garbage collector.
    """

    def __init__(self, block: nn.Module, name: str, keep: Keep | None) -> None:
        self.name = name
        self._is_on = True
        self._keep = keep
        self._own_forward: Callable[..., Any] | None = vars(block).get("forward")
        self._block = weakref.ref(block)
        self._changing: set[str] | None = None
        self._is_compiled = not (BUFFERS_MOVE_TWICE_IF_COMPILED and has_lasting_buffers(block))

    def undo(self, block: nn.Module) -> None:
        """Give the block the forward back that it had; checkpoint nothing where another one is put around this one."""
        self._is_on = False
        if vars(block).get("forward") is not self:
            return
        if self._own_forward is None:
            del block.forward
        else:
            block.forward = self._own_forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        block = self._block()
        assert block is not None
        # the class's is looked up each time, as FSDP2 changes the class
        forward = functools.partial(type(block).forward, block) if self._own_forward is None else self._own_forward
        if not (self._is_on and block.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        if torch.compiler.is_compiling() and not self._is_compiled:
            return buffers_would_move_twice_if_compiled(self, *args, **kwargs)
        _require_once(block, self.name)
        _require_no_cache(args, kwargs, self.name)
        if torch.compiler.is_compiling():  # a compiled graph changes each buffer once
            selective: dict[str, Any] = {} if self._keep is None else {"context_fn": _SELECTIVE[self._keep]}
            return checkpoint(forward, *args, use_reentrant=False, **selective, **kwargs)
        inputs = Unchanged(tensors_with_places((args, kwargs)))
        changes = ChangedBuffers(block, self._changing)
        output = self._checkpoint(block, forward, changes, args, kwargs)
        if inputs.changed():
            raise UsageError(
                f"Block {self.name} changes its input in place, so it cannot be computed again from it. Set "
                f"inplace=False where the block begins, or give blocks= without it."
            )
        self._changing = (self._changing or set()) | changes.note()
        return output

    def _checkpoint(
        self,
        block: nn.Module,
        forward: Callable[..., Any],
        changes: ChangedBuffers,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        names, count = tuple(kwargs), len(args)
        first = [(args, kwargs)]  # taken out when used, as nothing else may keep what the program lets go
        weights = dict(block.named_parameters())
        unchanged = Unchanged(weights.items())
        kept_outputs = KeptOutputs(() if self._keep is None else _operators(self._keep))
        numbers = read_random_states(())  # for Python's and numpy's; checkpoint sees to torch's

        def compute(*kept: Any) -> Any:
            if first:
                own_args, own_kwargs = first.pop()
                return forward(*own_args, **own_kwargs)
            _require_same_weights(weights, unchanged, block, self.name)
            given = with_own_containers(kept)  # once more, as there may be another backward
            return forward(*given[:count], **dict(zip(names, given[count:], strict=True)))

        def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            if self._keep is None:
                return nullcontext(), _Together(lambda: changes, numbers.replayed)
            keeping, again = _SELECTIVE[self._keep]()
            explained = functools.partial(_mutations_explained, self.name, self._keep)
            first_pass = _Together(lambda: keeping, lambda: kept_outputs)
            return first_pass, _Together(explained, lambda: changes, numbers.replayed, lambda: again)

        # checkpoint looks for devices, whose random number generators it keeps, in positional arguments alone
        kept = map(with_own_containers, (*args, *kwargs.values()))
        output = checkpoint(compute, *kept, use_reentrant=False, context_fn=contexts)
        if kept_outputs.changed:
            _refuse_mutation(self.name, self._keep)
        return output

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_block": self._block()}  # copied and pickled with its block

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "_block": weakref.ref(state["_block"])})


class _Together:
    """Contexts as one that, unlike a generator's, can be entered again for a second backward."""

    def __init__(self, *contexts: Callable[[], AbstractContextManager[Any]]) -> None:
        self._contexts = contexts
        self._entered = ExitStack()

    def __enter__(self) -> None:
        self._entered = ExitStack()
        for context in self._contexts:
            self._entered.enter_context(context())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._entered.__exit__(kind, error, at)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def buffers_would_move_twice_if_compiled(forward: CheckpointedForward, *args: Any, **kwargs: Any) -> Any:
    """Call a block outside of compiled code; with `fullgraph=True` PyTorch refuses that, by this name."""
    return forward(*args, **kwargs)


def _keep_matmuls() -> Any:
    return create_selective_checkpoint_contexts(_operators("matmuls"))  # type: ignore[no-untyped-call]


def _keep_attention() -> Any:
    return create_selective_checkpoint_contexts(_operators("attention"))  # type: ignore[no-untyped-call]


def _operators(keep: Keep) -> list[Any]:
    aten = torch.ops.aten
    return [getattr(aten, name).default for name in KEPT[keep] if hasattr(aten, name)]


# Plain functions, which torch.compile takes as contexts.
_SELECTIVE: dict[Keep, Callable[[], Any]] = {"matmuls": _keep_matmuls, "attention": _keep_attention}


def _require_once(block: nn.Module, name: str) -> None:
    if getattr(block, "gradient_checkpointing", False):
        raise UsageError(
            f"Block {name} was checkpointed a second time, by gradient_checkpointing_enable() or a Trainer's "
            f"gradient_checkpointing=True, so each backward would compute it twice more. Leave one of the two out."
        )


def _require_no_cache(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
    for given in (*args, *kwargs.values()):
        is_cache = hasattr(given, "update") and hasattr(given, "get_seq_length")
        if is_cache or (isinstance(given, dict) and any(given is kwargs.get(key) for key in _CACHES)):
            raise UsageError(
                f"Block {name} was given a KV cache in training, a {type(given).__name__}. Recomputation in the "
                f"backward pass would write into it a second time. Do not pass a cache to a model that is trained with "
                f"checkpointing; prefix tuning needs one, and cannot be checkpointed."
            )


def _require_same_weights(noted: Mapping[str, torch.Tensor], unchanged: Unchanged, block: nn.Module, name: str) -> None:
    changed = unchanged.changed()
    if changed:
        raise UsageError(
            f"Weights of block {name} were changed between its forward and the backward pass, such as by "
            f"optimizer.step(): {name_layers(changed)}. The block would be computed again with the new ones, for "
            f"another gradient. Step after the backward pass of every loss."
        )
    # FullyShardedDataParallel has tensors in place of parameters too, but then in the backward pass as well
    lent = [each for each, now in block.named_parameters() if _is_parameter(now) and not _is_parameter(noted.get(each))]
    if lent:
        raise UsageError(
            f"Block {name} was called with weights that were not its own, as torch.func.functional_call has it: "
            f"{name_layers(lent)}. It would be computed again with its own, for another gradient. Leave one of the two "
            f"out."
        )


def _is_parameter(weight: torch.Tensor | None) -> bool:
    return weight is None or isinstance(weight, nn.Parameter)


@contextmanager
def _mutations_explained(name: str, keep: Keep) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if "has been mutated" not in str(error):
            raise
        _refuse_mutation(name, keep, error)


def _refuse_mutation(name: str, keep: Keep | None, error: BaseException | None = None) -> None:
    raise UsageError(
        f'Block {name} changes in place what keep="{keep}" has kept of it, such as by an activation with inplace=True '
        f"right behind a convolution, or `scores += bias` behind a matmul. Write it without changing in place, or "
        f"leave keep= out."
    ) from error

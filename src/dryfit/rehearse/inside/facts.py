"""Finds out what a rehearsed program is like, for the measures that ask whether they apply: `measures.facts`.

It sees the program through the moments of measures, the recorder's observations and the operators that run. Nothing of
the program's is kept alive, and nothing is changed.
"""

from __future__ import annotations

import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from dryfit.measures.facts import Facts, ModelFacts
from dryfit.measures.measure import ACCELERATE, LIGHTNING, PYTORCH, TRANSFORMERS
from dryfit.measures.moments import Moments
from dryfit.measures.owners import owners
from dryfit.rehearse.inside import phases, tensors, torch_private
from dryfit.rehearse.inside.facts_of_loaders import Loaders
from dryfit.rehearse.inside.facts_of_models import card_bytes, model_facts, optimizer_facts, parameters_of
from dryfit.rehearse.inside.facts_of_operators import OperatorFacts
from dryfit.rehearse.inside.identities import Identities
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.inside.names import has_parameters
from dryfit.rehearse.inside.operators_seen import OperatorsSeen
from dryfit.rehearse.inside.phases import Progress
from dryfit.rehearse.inside.recorder import Recorder

# Whose loop it is, by the packages and modules among the callers of backward and of an optimizer's step.
_WAYS = (
    (TRANSFORMERS, ("transformers.trainer",)),
    (LIGHTNING, ("lightning.", "pytorch_lightning.", "lightning_fabric.")),
    (ACCELERATE, ("accelerate.",)),
)


class FactFinder:
    """Finds facts from the moment it is made; `facts()` says what they are. There is one for a process and its forks.

    `moments` are those of one more measure, `recorder` and `progress` what the hooks on torch tell.
    """

    def __init__(self, moments: Moments, recorder: Recorder, progress: Progress) -> None:
        self._recorder, self._progress = recorder, progress
        self._operators = OperatorFacts()
        self._seen = OperatorsSeen(self._operators.look_for)
        self._loaders = Loaders()
        self._begin()
        moments.when_model_is_called(self._guarded(self._model_is_called))
        moments.when_model_returned(lambda _: self._seen.end_call())
        moments.when_model_gave(self._guarded(self._model_gave))
        moments.when_backward_begins(self._guarded(self._backward_begins))
        moments.when_backward_is_over(self._seen.end_call)
        moments.when_optimizer_was_made(self._guarded(self._optimizer_was_made))
        moments.when_all_have_stepped(self._guarded(self._round_over))
        register_optimizer_step_pre_hook(self._guarded(self._optimizer_begins))
        register_optimizer_step_post_hook(self._guarded(self._optimizer_ended))
        self._operators.flops.follow_launches()
        after_import("torch.utils.data.dataloader", self._loaders.watch)
        recorder.autocast_changed = _after(recorder.autocast_changed, self._guarded(self._note_autocast))  # type: ignore[method-assign]
        recorder.module_returned = _after(recorder.module_returned, self._guarded(self._module_returned))  # type: ignore[method-assign]

    def begin_anew(self) -> None:
        """Forget everything, as in a forked child."""
        self._seen.leave()
        self._operators.begin_anew()
        self._begin()

    def _begin(self) -> None:
        self._failure = ""
        self._way, self._has_closure = PYTORCH, False
        self._called: list[weakref.ref[Any]] = []
        self._to_be_trained: list[weakref.ref[Any]] = []
        self._known: Identities[bool] = Identities()
        self._made: list[weakref.ref[Any]] = []
        self._stepped: Identities[tuple[bool, bool]] = Identities()  # whether the last step was foreach, fused
        self._loader = self._last_call = (0, False)
        self._autocast = self._autocast_of_call = ""
        self._recomputed: set[str] = set()
        self._multihead: dict[str, int] = {}
        self._found: Facts | None = None
        # Of the round so far, and of the last one that was whole.
        self._flops_before, self._host_bytes_before = self._operators.flops.total, 0
        self._flops = self._host_bytes = 0
        self._backwards = self._most_backwards = 0
        self._backwards_per_step = 1
        self._round_is_over = self._looks_at_gradients = False
        self._gradient_bytes = 0
        self._world = 1
        # Models in evaluation whose output has a graph that no backward pass has gone through yet.
        self._graphs: Identities[bool] = Identities()
        self._waits_for_backward = False
        self._evaluation_with_graph = False

    def facts(self) -> Facts:
        """What has been found out; never raises."""
        try:
            return self._told(self._found or self._look_uncompiled())
        except Exception:
            return Facts(failure=traceback.format_exc())

    # --- moments -------------------------------------------------------------------------------------------------

    def _guarded(self, do: Callable[..., None]) -> Callable[..., None]:
        """Have an error of ours end the finding, and not the program."""

        def guarded(*args: Any) -> None:
            if self._failure:
                return
            try:
                do(*args)
            except Exception:
                self._failure = traceback.format_exc()

        return guarded

    def _model_is_called(self, model: Any, _: tuple[Any, ...], __: dict[str, Any]) -> None:
        self._seen.begin_call()
        if not torch.is_grad_enabled():
            return
        if model.training and self._graphs.get(model):  # it has been evaluated, and is trained on
            self._evaluation_with_graph = True
        if has_parameters(model):  # a loss is called with logits that are to be known
            self._operators.forget_tensors()
        self._note_autocast()
        self._last_call = self._loaders.last
        if self._looks_at_gradients:
            self._looks_at_gradients = False
            self._gradient_bytes = sum(card_bytes(each.grad) for each in self._trained() if each.grad is not None)
        if self._known.get(model) is None and has_parameters(model):
            self._known.put(model, True)
            self._to_be_trained.append(weakref.ref(model))

    def _model_gave(self, model: Any, output: Any) -> None:
        evaluates = not model.training and torch.is_grad_enabled() and has_parameters(model)
        if evaluates and any(tensor.requires_grad for _, tensor in tensors.tensors_in(output)):
            self._graphs.put(model, True)
            self._waits_for_backward = True

    def _backward_begins(self) -> None:
        self._seen.begin_call()
        self._graphs = Identities()
        self._waits_for_backward = self._round_is_over = False
        # Only now it is known that those calls were of training: some train in evaluation mode, for batch norms' sake.
        self._called += self._to_be_trained
        self._to_be_trained.clear()
        self._loader, self._autocast = self._last_call, self._autocast_of_call or self._autocast
        self._backwards += not _returns_gradients()
        self._note_way()

    def _optimizer_was_made(self, optimizer: Any) -> None:
        self._made.append(weakref.ref(optimizer))

    def _optimizer_begins(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._seen.stay()
        self._note_way()
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:  # or the backward pass is within the step
            self._most_backwards, self._backwards = max(self._most_backwards, self._backwards), 0
        elif not _is_lightnings(closure):
            self._has_closure = True
        self._operators.foreach = self._operators.fused = False

    def _optimizer_ended(self, optimizer: Any, _: tuple[Any, ...], __: dict[str, Any]) -> None:
        self._stepped.put(optimizer, (self._operators.foreach, self._operators.fused))
        if all(each() is not optimizer for each in self._made):
            self._optimizer_was_made(optimizer)

    def _round_over(self) -> None:
        flops, host_bytes = self._operators.flops.total, self._operators.host_bytes
        self._flops, self._flops_before = flops - self._flops_before, flops
        self._host_bytes, self._host_bytes_before = host_bytes - self._host_bytes_before, host_bytes
        self._backwards_per_step = max(self._most_backwards, self._backwards, 1)
        self._most_backwards = self._backwards = 0
        self._round_is_over = self._looks_at_gradients = True
        self._world = _world()  # a program that ends by itself has no group any more
        self._found = self._look_uncompiled()

    # --- what is seen beside them --------------------------------------------------------------------------------

    def _note_autocast(self) -> None:
        if torch.is_grad_enabled() and torch.is_autocast_enabled("cuda"):
            self._autocast_of_call = tensors.name_of_dtype(torch.get_autocast_dtype("cuda"))

    def _module_returned(self, path: str, kind: str, output: Any) -> None:
        phase = self._progress.phase
        if phase == phases.BACKWARD and torch.is_grad_enabled():
            self._recomputed.add(path)
        if phase == phases.FORWARD and kind == "MultiheadAttention" and _has_second(output):
            self._multihead[path] = self._multihead.get(path, 0) + 1

    def _note_way(self) -> None:
        if self._way != PYTORCH or self._progress.steps_done > 1:
            return
        callers = set(_modules_that_call())
        for way, names in _WAYS:
            if any(caller.startswith(names) for caller in callers):
                self._way = way
                return

    # --- what it comes to ----------------------------------------------------------------------------------------

    def _optimizers(self) -> list[Any]:
        """Those that have stepped; all there are, if none has."""
        made = [optimizer for each in self._made if (optimizer := each()) is not None]
        return [each for each in made if self._stepped.get(each) is not None] or made

    def _trained(self) -> Iterator[Any]:
        for optimizer in self._optimizers():
            yield from parameters_of(optimizer)

    def _models(self) -> list[Any]:
        """The models that the program calls in training, and those of the optimizers' parameters that it does not."""
        models = [model for each in self._called if (model := each()) is not None]
        held = {id(parameter) for model in models for parameter in model.parameters()}
        not_called = [parameter for parameter in self._trained() if id(parameter) not in held]
        if not_called:
            found = owners(not_called)
            self._called += map(weakref.ref, found)
            models += found
        parts = {id(part) for model in models for part in model.modules() if part is not model}
        # The graph that a compiled step is made of has the parameters of what it was made from.
        held = {id(parameter) for model in models if not _is_graph(model) for parameter in model.parameters()}
        return [
            model
            for model in models
            if id(model) not in parts
            and not (_is_graph(model) and all(id(parameter) in held for parameter in model.parameters()))
        ]

    def _look_uncompiled(self) -> Facts:
        """Look, though Dynamo may be at work: it compiles what is called by what it has been told to leave alone."""
        look: Callable[[], Facts] = self._look
        if "torch._dynamo" in sys.modules:
            look = torch.compiler.disable(look)  # type: ignore[no-untyped-call]
        return look()

    def _look(self) -> Facts:
        """Look at models and optimizers: at the end of a round, as a program that has ended has none any more."""
        optimizers = self._optimizers()
        how = [self._stepped.get(each) or (False, False) for each in optimizers]
        return Facts(
            models=tuple(map(self._model_facts, self._models())),
            optimizers=tuple(
                optimizer_facts(each, foreach=foreach, fused=fused)
                for each, (foreach, fused) in zip(optimizers, how, strict=True)
            ),
        )

    def _model_facts(self, model: Any) -> ModelFacts:
        path_of = self._recorder.labels.names.path_of
        root = path_of(model) or ""
        # The first model has no name before the names of its parts, so it is the one of what no other begins with.
        others = [path for each in self._models() if (path := path_of(each) or "") and path != root]

        def is_of_model(path: str) -> bool:
            inside = [each for each in (root, *others) if not each or path == each or path.startswith(f"{each}.")]
            return bool(inside) and max(inside, key=len) == root

        return model_facts(
            model,
            is_checkpointed=any(map(is_of_model, self._recomputed)),
            multihead_with_weights=sum(map(is_of_model, self._multihead)),
        )

    def _told(self, found: Facts) -> Facts:
        seen = self._operators
        left_graph = self._waits_for_backward and (self._round_is_over or not self._made)
        return Facts(
            way=self._way,
            optimizers=found.optimizers,
            models=found.models,
            flops=self._flops,
            uncounted=seen.flops.uncounted,
            host_bytes=self._host_bytes,
            autocast=self._autocast,
            grad_scaler=seen.grad_scaler,
            loader_batch=self._loader[0],
            loader_samplers=self._loader[1],
            backwards_per_step=self._backwards_per_step,
            gradient_bytes_in_forward=self._gradient_bytes,
            evaluation_with_graph=self._evaluation_with_graph or left_graph,
            cross_entropy_classes=seen.cross_entropy_classes,
            cross_entropy_bytes=seen.cross_entropy_bytes,
            cross_entropy_from_linear=seen.cross_entropy_from_linear,
            attention_square_bytes=seen.attention_square_bytes,
            attention_is_torchs=seen.attention_is_torchs,
            has_closure=self._has_closure,
            allocator=torch_private.allocator_settings(),
            world=max(self._world, _world()),
            failure=self._failure or self._seen.failure,
        )


def _after(real: Callable[..., None], see: Callable[..., None]) -> Callable[..., None]:
    def both(*args: Any) -> None:
        real(*args)
        see(*args)

    return both


def _world() -> int:
    return torch.distributed.get_world_size() if torch_private.process_group_exists() else 1


def _is_graph(model: Any) -> bool:
    return isinstance(model, torch.fx.GraphModule)


def _returns_gradients() -> bool:
    """Whether it is `torch.autograd.grad` that runs the engine, which accumulates nothing."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "torch.autograd":
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_name == "grad"


def _has_second(output: Any) -> bool:
    return isinstance(output, tuple) and len(output) > 1 and output[1] is not None


def _modules_that_call() -> Iterator[str]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_globals.get("__name__") or ""
        frame = frame.f_back  # type: ignore[assignment]


def _is_lightnings(closure: Any) -> bool:
    """Whether Lightning made it: it hands one to every optimizer, of whatever the program's own step is."""
    function = getattr(closure, "func", closure)
    return (getattr(function, "__module__", None) or "").startswith(("lightning.", "pytorch_lightning."))

"""Switches measures on in this process, and lets their moments come.

A measure that cannot be switched on ends the rehearsal: its figures would be those of another program.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dryfit.measures.catalogue import measures_of
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer
from dryfit.rehearse.inside.imports import after_import

Refuse = Callable[[str, str, str], None]

FACTS = "facts"
"""The name of the moments that are no measure's: `inside.facts` looks at the program in them."""


class Measuring:
    """The moments of all measures that are on, and of whoever else wants to know of them (`inside.facts`).

    `refuse(name, why, trace)` is called where a measure cannot be switched on, or fails; it does not return.
    """

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self._all: list[Moments] = []
        self._watches_optimizers = False

    def switch_on(self, words: Sequence[str]) -> None:
        """Switch measures on, by their names and options, as in "micro-batch:4"."""
        if self._all:  # by the process that this one was forked from
            return
        for measure, option in measures_of(words):
            moments = self.add(measure.name)
            self._guarded(moments, measure.switch_on, moments, option)

    def add(self, name: str) -> Moments:
        """Moments for one more, which come after those there are."""
        guarding = Moments(name=name, after_import=lambda module, do: after_import(module, do))
        guarding.after_import = lambda module, do: after_import(
            module, lambda found: self._guarded(guarding, do, found)
        )
        guarding.guard = lambda do: functools.partial(self._guarded, guarding, do)
        self._all.append(guarding)
        if not self._watches_optimizers:
            self._watches_optimizers = True
            self._watch_optimizers()
        return guarding

    def acted(self) -> dict[str, bool]:
        """Of each measure, whether it has found something to do."""
        return {moments.name: moments.has_acted for moments in self._all if moments.name != FACTS}

    def model_is_called(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for moments in self._all:
            for do in moments.on_model_called:
                self._guarded(moments, do, model, args, kwargs)

    def model_gave(self, model: Any, output: Any) -> None:
        for moments in reversed(self._all):
            for do in moments.on_model_gave:
                self._guarded(moments, do, model, output)

    def model_returned(self, model: Any) -> None:
        for moments in reversed(self._all):
            for do in moments.on_model_returned:
                self._guarded(moments, do, model)

    def backward_begins(self) -> None:
        for moments in self._all:
            for do in moments.on_backward:
                self._guarded(moments, do)

    def backward_is_over(self) -> None:
        for moments in self._all:
            for do in moments.on_backward_over:
                self._guarded(moments, do)

    def all_have_stepped(self) -> None:
        for moments in self._all:
            for do in moments.on_round_over:
                self._guarded(moments, do)

    def _guarded(self, moments: Moments, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        import torch

        try:
            return do(*args, **kwargs)
        except CannotSwitchOn as error:
            self._refuse(moments.name, str(error), "")
        except torch.OutOfMemoryError:
            raise  # the card is full, as it would be with the measure written by hand
        except Exception as error:
            self._refuse(moments.name, f"{type(error).__name__}: {error}", traceback.format_exc())

    def _watch_optimizers(self) -> None:
        """Have each optimizer made as the measures want it: of another class, of other parameters or settings."""
        import torch

        within: set[int] = set()

        def making(real: Callable[..., None]) -> Callable[..., None]:
            @functools.wraps(real)
            def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:
                if id(self_) in within:  # a subclass that calls its parent's
                    real(self_, *args, **kwargs)
                    return
                if self_.__dict__.pop("_dryfit_is_made", False):
                    return
                within.add(id(self_))
                try:
                    wanted = self_.__dict__.pop("_dryfit_wanted", None)
                    if wanted is None:
                        real(self_, *args, **kwargs)
                    else:
                        real(self_, wanted.groups, **wanted.settings)
                        self._tell_made(self_)
                finally:
                    within.discard(id(self_))

            __init__.making = True  # type: ignore[attr-defined]
            return __init__

        def __new__(kind: type, *args: Any, **kwargs: Any) -> Any:
            wanted = _wanted(kind, args, kwargs)
            if wanted is not None:
                for moments, do in self._wanting():
                    self._guarded(moments, do, wanted)
                if wanted.kind is not kind:
                    instead = _made_instead(wanted)
                    if isinstance(instead, kind):  # Python then calls its `__init__` once more
                        instead.__dict__["_dryfit_is_made"] = True
                    return instead
            made: Any = object.__new__(kind)
            if wanted is not None:
                if not getattr(kind.__init__, "making", False):  # type: ignore[misc]
                    kind.__init__ = making(kind.__init__)  # type: ignore[misc]
                made.__dict__["_dryfit_wanted"] = wanted
            return made

        torch.optim.Optimizer.__new__ = __new__  # type: ignore[method-assign,assignment]

    def _wanting(self) -> Iterator[tuple[Moments, Callable[[WantedOptimizer], None]]]:
        for moments in self._all:
            for do in moments.on_optimizer_wanted:
                yield moments, do

    def _tell_made(self, optimizer: Any) -> None:
        for moments in self._all:
            for do in moments.on_optimizer_made:
                self._guarded(moments, do, optimizer)


def _wanted(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> WantedOptimizer | None:
    """What the program asks for; None where that is not the usual: parameters first, and settings with names."""
    try:
        bound = inspect.signature(kind.__init__).bind(None, *args, **kwargs)  # type: ignore[misc]
    except (TypeError, ValueError):
        return None  # for the program to be told by the optimizer itself
    _, *given = bound.arguments.items()
    named: dict[str, Any] = {}
    for name, value in given:
        parameter = bound.signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            return None
        named |= value if parameter.kind is parameter.VAR_KEYWORD else {name: value}
    groups = named.pop("params", None)
    if groups is None or isinstance(groups, dict) or not hasattr(groups, "__iter__"):
        return None
    return WantedOptimizer(kind=kind, groups=list(groups), settings=named)


def _made_instead(wanted: WantedOptimizer) -> Any:
    """An optimizer of another class; settings that it does not know are left out."""
    parameters = inspect.signature(wanted.kind.__init__).parameters.values()  # type: ignore[misc]
    known = {each.name for each in parameters}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return wanted.kind(wanted.groups, **{k: v for k, v in wanted.settings.items() if takes_any or k in known})

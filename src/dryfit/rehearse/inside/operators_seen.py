"""Shows the operators that this process runs to who looks at them: in each thread that trains, and in backward passes.

A dispatch mode does it, which autograd's own threads inherit. Ours is the outermost of its thread, where it can be:
the program's modes come and go within it. It is entered when training begins, so that a setup is not slowed.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.flops import Look


class OperatorsSeen:
    """`look_for(operator)` gives what to do after each run of an operator with its arguments and output, or None.

    Where that fails, `failure` says what, and nothing more is looked at; the program goes on.
    """

    def __init__(self, look_for: Callable[[Any], Look | None]) -> None:
        self._look_for = look_for
        self._looks: dict[Any, Look | None] = {}
        self._has_parts: dict[Any, bool] = {}
        self._mode = torch_private.dispatch_mode(self._run)
        self._here = threading.local()
        self.failure = ""

    def stay(self) -> None:
        """See all that this thread runs from now on, where nothing of the program's is on that would have to go first.

        Leaving inference mode takes off the modes that were entered in it.
        """
        if self._is_on():
            self._enter_again_if_lost()
        elif not self._is_within():
            self._enter()

    def begin_call(self) -> None:
        """See all from now on, as `stay` does, or else until `end_call`."""
        self.stay()
        calls = getattr(self._here, "calls", 0)
        if calls or not self._is_on():
            self._here.calls = calls + 1
        if not self._is_on():
            self._enter()

    def end_call(self) -> None:
        """A call or backward pass is over that was begun."""
        calls = getattr(self._here, "calls", 0)
        if calls:
            self._here.calls = calls - 1
        if calls == 1:
            self._leave()

    def leave(self) -> None:
        """See no more in this thread, which has been forked with the mode on."""
        if self._is_on() and torch_private.dispatch_modes()[-1:] == [self._mode]:
            self._leave()

    def _is_on(self) -> bool:
        return getattr(self._here, "is_on", False)

    def _enter_again_if_lost(self) -> None:
        """Code that torch has compiled restores what it has found, and a mode that was entered in it is not asked."""
        if not torch_private.dispatch_modes_are_asked() and torch_private.dispatch_modes() == [self._mode]:
            self._leave()
            self._enter()

    def _is_within(self) -> bool:
        return torch.is_inference_mode_enabled() or torch_private.dispatch_mode_is_on()

    def _enter(self) -> None:
        self._mode.__enter__()
        self._here.is_on = True

    def _leave(self) -> None:
        self._here.is_on = False
        self._mode.__exit__(None, None, None)

    def _run(self, operator: Any, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if types and any(torch_private.dispatches_itself(kind) for kind in types):
            # What such a tensor is made of comes here again. A mode of its own, as fake tensors have, is not asked by
            # torch once we have refused.
            return operator(*args, **kwargs) if torch_private.dispatch_mode_is_on() else NotImplemented
        # There nothing has been taken apart by autograd before.
        if torch.is_inference_mode_enabled() and self._has_parts.get(operator, hasattr(operator, "decompose")):
            with self._mode:
                output = operator.decompose(*args, **kwargs)
            if output is not NotImplemented:
                return output
            self._has_parts[operator] = False
        try:
            look = self._looks[operator]
        except KeyError:
            look = self._looks[operator] = self._guarded(operator)
        output = operator(*args, **kwargs)
        if look is not None:
            look(args, kwargs, output)
        return output

    def _guarded(self, operator: Any) -> Look | None:
        look = None
        if not self.failure:
            try:
                look = self._look_for(operator)
            except Exception:
                self._fail()
        if look is None:
            return None

        def guarded(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if self.failure:
                return
            try:
                with torch_private.without_torch_function():
                    look(args, kwargs, output)
            except Exception:
                self._fail()

        return guarded

    def _fail(self) -> None:
        self.failure = self.failure or traceback.format_exc()

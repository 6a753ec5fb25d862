"""The moments of a rehearsed program at which a measure can do something.

    def switch_on(moments, option):
        def use_fused(wanted):
            wanted.settings |= {"fused": True, "foreach": None}
            moments.acts()

        moments.when_optimizer_is_wanted(use_fused)

`rehearse.inside.measuring` has one of these for each measure that is on, and lets its moments come. What a measure does
there has to allocate and free as the program would, had a person written the measure into it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


def _unguarded(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


class CannotSwitchOn(Exception):
    """This measure cannot be switched on in this program; the message says why, for a person."""


@dataclass(slots=True, kw_only=True)
class WantedOptimizer:
    """An optimizer that the program is about to make: its class, its parameters or groups, and its settings by name.

    A measure may change any of them. `groups` is what the program gave, as a list: tensors, groups as dictionaries, or
    pairs of names and tensors.
    """

    kind: type
    groups: list[Any]
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        for each in self.groups:  # the parameters of a group may be a generator, which can be gone through once
            if isinstance(each, dict) and not hasattr(each["params"], "grad_fn"):
                each["params"] = list(each["params"])

    @property
    def parameters(self) -> list[Any]:
        """All tensors to be trained, in order."""
        found: list[Any] = []
        for each in self.groups:
            members = each["params"] if isinstance(each, dict) else [each]
            members = [members] if hasattr(members, "grad_fn") else members
            found += [member[1] if isinstance(member, tuple) else member for member in members]
        return found


@dataclass(slots=True, kw_only=True)
class Moments:
    """What one measure does, and when: functions by moment. It has acted once it has called `acts`.

    What it does elsewhere, as in a function of a library's that it has wrapped, goes through `guard`: an error in it
    then ends the rehearsal as it does in a moment, instead of reaching the program.
    """

    name: str
    after_import: Callable[[str, Callable[[ModuleType], None]], None]
    guard: Callable[[Callable[..., Any]], Callable[..., Any]] = _unguarded
    has_acted: bool = False
    on_model_called: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], None]] = field(default_factory=list)
    on_model_returned: list[Callable[[Any], None]] = field(default_factory=list)
    on_model_gave: list[Callable[[Any, Any], None]] = field(default_factory=list)
    on_backward: list[Callable[[], None]] = field(default_factory=list)
    on_backward_over: list[Callable[[], None]] = field(default_factory=list)
    on_optimizer_wanted: list[Callable[[WantedOptimizer], None]] = field(default_factory=list)
    on_optimizer_made: list[Callable[[Any], None]] = field(default_factory=list)
    on_round_over: list[Callable[[], None]] = field(default_factory=list)

    def acts(self) -> None:
        """Say that the measure has found what it is for: without that it is said to have found nothing to do."""
        self.has_acted = True

    def when_model_is_called(self, do: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> None:
        """Before a module that is not called by another one is called: do(module, args, kwargs)."""
        self.on_model_called.append(do)

    def when_model_returned(self, do: Callable[[Any], None]) -> None:
        """After such a module has returned, or failed: do(module)."""
        self.on_model_returned.append(do)

    def when_model_gave(self, do: Callable[[Any, Any], None]) -> None:
        """When such a module has not failed, before it returns: do(module, output)."""
        self.on_model_gave.append(do)

    def when_backward_begins(self, do: Callable[[], None]) -> None:
        """Before autograd's engine runs, but not within a backward pass."""
        self.on_backward.append(do)

    def when_backward_is_over(self, do: Callable[[], None]) -> None:
        """After it has run."""
        self.on_backward_over.append(do)

    def when_optimizer_is_wanted(self, do: Callable[[WantedOptimizer], None]) -> None:
        """Before an optimizer is made: do(wanted) may change its class, its parameters and its settings."""
        self.on_optimizer_wanted.append(do)

    def when_optimizer_was_made(self, do: Callable[[Any], None]) -> None:
        """After one has been made: do(optimizer)."""
        self.on_optimizer_made.append(do)

    def when_all_have_stepped(self, do: Callable[[], None]) -> None:
        """After the last of the program's optimizers has stepped."""
        self.on_round_over.append(do)

"""What kind of thing a holder is: a metric, a hook of a module, or something else."""

from __future__ import annotations

import functools
import re
import types
from typing import Any

from dryfit.findings import Place
from dryfit.watching.held import Held
from dryfit.watching.situation import Situation
from dryfit.watching.torch_private import hooks_of, hooks_of_all_modules

# As a word: "AverageMeter" and "metric_of", not "HyperparametersMixin" or "Geometric".
_METRIC_NAME = re.compile(r"Metric|Meter|(?<![A-Za-z])(?:metric|meter)")
_METRIC_ANSWERS = ("compute", "result", "avg", "average")


def is_metric(held: Held) -> bool:
    """Whether the holder belongs to a metric: a class called so, or one that is updated and then computes."""
    return any(_is_metric_class(kind) for kind in held.classes if kind.__module__ != "builtins")


def _is_metric_class(kind: type) -> bool:
    if any(_METRIC_NAME.search(each.__name__) for each in kind.__mro__):
        return True
    return hasattr(kind, "update") and any(hasattr(kind, name) for name in _METRIC_ANSWERS)


def is_in_hook(place: Place | None, situation: Situation) -> bool:
    """Whether a line lies within a function that a module calls as a hook."""
    if place is None:
        return False
    hooks = hooks_of_all_modules()
    for model in situation.models():
        for module in model.modules():
            hooks += hooks_of(module)
    return any(_contains(_code_of(hook), place) for hook in hooks)


def _contains(code: types.CodeType | None, place: Place) -> bool:
    if code is None or code.co_filename != place.file:
        return False
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return min(lines, default=0) <= place.line <= max(lines, default=0)


def _code_of(hook: Any) -> types.CodeType | None:
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = getattr(hook, "__func__", hook)
    if not isinstance(function, types.FunctionType):
        function = getattr(type(hook), "__call__", None)  # noqa: B004
    return function.__code__ if isinstance(function, types.FunctionType) else None

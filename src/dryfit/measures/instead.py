"""Puts a function of a measure's in the place of one of torch's or a framework's, which it can call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def instead(owner: Any, name: str, do: Callable[..., Any]) -> None:
    """Have `owner.name(...)` be `do(real, ...)`.

    >>> import types
    >>> owner = types.SimpleNamespace(double=lambda number: 2 * number)
    >>> instead(owner, "double", lambda real, number: real(number) + 1)
    >>> owner.double(5)
    11
    """
    real = getattr(owner, name)

    @functools.wraps(real)
    def called(*args: Any, **kwargs: Any) -> Any:
        return do(real, *args, **kwargs)

    setattr(owner, name, called)

"""One kind of state an optimizer keeps."""

from __future__ import annotations

from dataclasses import dataclass

from dryfit.estimate.model import Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The bytes of one state over all parameters, by its name in the optimizer's `state`.

    `size_bytes` is None where it depends on shapes that are not known. What is `managed` can be moved to the host by
    the driver, and is not in PyTorch's allocator.
    """

    name: str
    size_bytes: int | None
    what: str = ""
    managed: bool = False


def like_parameters(name: str, seen: Seen, what: str = "in the dtype of what is trained") -> State:
    """A state that has each parameter's shape and dtype."""
    return State(name=name, size_bytes=sum(seen.sizes()), what=what)

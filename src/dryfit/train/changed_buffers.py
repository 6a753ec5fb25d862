"""Buffers that a forward changes (running statistics, power iterations, counters), when the forward is run again."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import nn

from dryfit.train.torch_private import version_of

_Place = tuple[nn.Module, str]


class ChangedBuffers:
    """Notes what one forward of a module changes in its buffers; entered, lets a second run have no such effect.

        changes = ChangedBuffers(module, known)
        module(inputs)
        changes.note()
        with changes:
            module(inputs)  # sees the buffers that the first run saw, and leaves them as they are now

    `known` is the caller's, and holds the names of buffers found to change: those are copied before a forward. It is
    None before the first forward, which copies all. Of running statistics no copy is kept, since a forward in train
    mode does not read them; nor do all of PyTorch's kernels bump their version, so they are known by name.
    """

    def __init__(self, module: nn.Module, known: set[str] | None) -> None:
        self._before: dict[str, tuple[_Place, torch.Tensor, int]] = {}
        self._values: dict[str, torch.Tensor] = {}
        self._changed: list[str] = []
        self._replaced: list[tuple[_Place, torch.Tensor]] = []
        for prefix, holder in module.named_modules():
            has_statistics = _has_running_statistics(holder)
            for own_name, buffer in holder.named_buffers(recurse=False):
                name = f"{prefix}.{own_name}"
                self._before[name] = ((holder, own_name), buffer, version_of(buffer))
                if has_statistics:
                    self._changed.append(name)
                elif known is None or name in known:
                    self._values[name] = buffer.detach().clone()

    def note(self) -> set[str]:
        """After the first run: which buffers it has changed, by name; copies of others are let go."""
        found = set()
        for name, ((holder, own_name), buffer, version) in self._before.items():
            now = getattr(holder, own_name)
            if now is not None and (now is not buffer or version_of(now) != version):
                found.add(name)
        self._values = {name: value for name, value in self._values.items() if name in found}
        self._changed = list(dict.fromkeys([*self._changed, *sorted(found)]))
        self._before = {name: self._before[name] for name in self._changed}
        return found

    def __enter__(self) -> None:
        for name in self._changed:
            holder, own_name = place = self._before[name][0]
            now = getattr(holder, own_name)
            if now is None:
                continue
            self._replaced.append((place, now))
            setattr(holder, own_name, self._values.get(name, now).detach().clone())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._replaced:
            (holder, own_name), tensor = self._replaced.pop()
            setattr(holder, own_name, tensor)


def _has_running_statistics(module: nn.Module) -> bool:
    """Whether it is a normalisation that moves them: BatchNorm, SyncBatchNorm, InstanceNorm, and what is like them.

    A layer that is frozen, in eval mode, moves nothing.
    """
    return module.training and isinstance(getattr(module, "running_mean", None), torch.Tensor)

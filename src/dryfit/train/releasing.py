"""Giving memory back that nothing needs, and saying what still needs the rest."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from dryfit.units import MIB, format_bytes
from dryfit.watching.device_memory import Memory, devices_in_use, give_back_unused, memory_of

_WORTH_A_WORD_BYTES = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Storages on a device that Python objects refer to. `what` is "parameters", "gradients" or "other tensors"."""

    what: str
    size_bytes: int
    count: int
    largest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What `release` found on one device before and after, and who holds what is left."""

    device: str
    before: Memory
    after: Memory
    held: tuple[Held, ...] = ()
    kept_error: str = ""

    @property
    def hidden_bytes(self) -> int:
        """What is allocated and belongs to no tensor that Python can see."""
        return max(0, self.after.allocated_bytes - sum(each.size_bytes for each in self.held))

    def __str__(self) -> str:
        freed = self.before.allocated_bytes - self.after.allocated_bytes
        returned = self.before.reserved_bytes - self.after.reserved_bytes
        sentences = [
            f"{self.device}: freed {format_bytes(freed)} of tensors, gave {format_bytes(returned)} back to the driver."
        ]
        if self.after.allocated_bytes:
            holders = [
                f"{format_bytes(each.size_bytes)} in {_count(each)}, the largest {each.largest}" for each in self.held
            ]
            if self.hidden_bytes >= _WORTH_A_WORD_BYTES:
                holders.append(
                    f"{format_bytes(self.hidden_bytes)} that no Python object shows, as activations in a graph whose "
                    f"loss or output is alive, and workspaces of libraries"
                )
            sentences.append(f"{format_bytes(self.after.allocated_bytes)} is still held: {'; '.join(holders)}.")
        unused = self.after.reserved_bytes - self.after.allocated_bytes
        if unused >= _WORTH_A_WORD_BYTES:
            sentences.append(f"{format_bytes(unused)} lies unused in segments that hold a block in use.")
        if self.kept_error:
            sentences.append(
                f"{self.kept_error} keeps the last error and so all variables of the functions that it left, tensors "
                f"among them."
            )
        return " ".join(sentences)


def release() -> tuple[Released, ...]:
    """Collect what is unreachable, empty PyTorch's caches, and say what that freed and what still holds memory.

        del model, optimizer, loss
        for released in release():
            print(released)     # cuda:0: freed 1.25 GiB of tensors, gave 1.50 GiB back to the driver. ...

    Names have to be deleted by you, before: a function cannot take its caller's variables away. There is one entry for
    each CUDA or XPU device in use, with figures in bytes, and none without one. Not for a training loop: memory that
    PyTorch keeps for itself is there for the next step, and taking it from the driver again costs time.
    """
    devices = devices_in_use()
    before = {device: memory_of(device) for device in devices}
    gc.collect()
    give_back_unused()
    tensors = _tensors_of_python() if devices else []
    return tuple(
        Released(
            device=str(device),
            before=before[device],
            after=memory_of(device),
            held=_held_on(device, tensors),
            kept_error=_kept_error(),
        )
        for device in devices
        if before[device].reserved_bytes
    )


def _held_on(device: torch.device, tensors: Sequence[torch.Tensor]) -> tuple[Held, ...]:
    """The storages that Python's tensors refer to, each once: a parameter's, a gradient's, or another's."""
    groups: dict[str, Iterable[torch.Tensor]] = {
        "parameters": [each for each in tensors if isinstance(each, torch.nn.Parameter)],
        "gradients": [each.grad for each in tensors if each.is_leaf and each.grad is not None],
        "other tensors": tensors,
    }
    counted: set[int] = set()
    found = []
    for what, group in groups.items():
        here = sorted((each for each in _stored(group) if each.device == device), key=lambda each: each.nbytes)
        by_address = {each.untyped_storage().data_ptr(): each for each in here}  # rather than of a view, of the whole
        own = [tensor for address, tensor in by_address.items() if address and address not in counted]
        counted |= by_address.keys()
        if own:
            found.append(_held(what, own))
    return tuple(found)


def _stored(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Those that lie in a storage as they are, and what a DTensor or the like consists of."""
    for each in tensors:
        if hasattr(each, "__tensor_flatten__"):  # a wrapper
            names, _ = each.__tensor_flatten__()
            parts = [getattr(each, name) for name in names]
            yield from _stored(part for part in parts if isinstance(part, torch.Tensor))
        elif each.layout == torch.strided and not each.is_nested and not _is_traced_with(each):
            yield each


def _is_traced_with(tensor: torch.Tensor) -> bool:
    """Whether it is one of those of torch.compile's that have no storage, and answer for themselves."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _held(what: str, tensors: Sequence[torch.Tensor]) -> Held:
    largest = max(tensors, key=_storage_bytes)
    return Held(
        what=what,
        size_bytes=sum(map(_storage_bytes, tensors)),
        count=len(tensors),
        largest=f"{str(largest.dtype).removeprefix('torch.')} {tuple(largest.shape)}",
    )


def _count(held: Held) -> str:
    return f"{held.count} {held.what if held.count > 1 else held.what.removesuffix('s')}"


def _storage_bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _tensors_of_python() -> list[torch.Tensor]:
    # type(), as `__class__` of what is loaded lazily can import or warn.
    return [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]


def _kept_error() -> str:
    """Where an interactive interpreter keeps the last error that nothing caught."""
    return next((f"sys.{name}" for name in ("last_exc", "last_value") if getattr(sys, name, None) is not None), "")

"""Giving memory back that nothing needs, and saying what still needs the rest."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dryfit.train.device_memory import Memory, devices_in_use, give_back_unused, memory_of
from dryfit.units import MIB, format_bytes

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
                f"{format_bytes(each.size_bytes)} in {each.count} {each.what}, the largest {each.largest}"
                for each in self.held
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
    gradients = {id(each.grad) for each in tensors if each.is_leaf and each.grad is not None}
    groups: dict[str, dict[int, torch.Tensor]] = {"parameters": {}, "gradients": {}, "other tensors": {}}
    counted: set[int] = set()
    for tensor in sorted(tensors, key=lambda each: not isinstance(each, torch.nn.Parameter)):  # which views may share
        address = tensor.untyped_storage().data_ptr() if tensor.device == device else 0
        if not address or address in counted:
            continue
        counted.add(address)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        what = "parameters" if is_parameter else "gradients" if id(tensor) in gradients else "other tensors"
        groups[what][address] = tensor
    return tuple(_held(what, list(group.values())) for what, group in groups.items() if group)


def _held(what: str, tensors: Sequence[torch.Tensor]) -> Held:
    largest = max(tensors, key=_storage_bytes)
    return Held(
        what=what,
        size_bytes=sum(map(_storage_bytes, tensors)),
        count=len(tensors),
        largest=f"{str(largest.dtype).removeprefix('torch.')} {tuple(largest.shape)}",
    )


def _storage_bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _tensors_of_python() -> list[torch.Tensor]:
    # type(), as `__class__` of what is loaded lazily can import or warn.
    found = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    return [each for each in found if each.layout == torch.strided and each.device.type != "meta"]


def _kept_error() -> str:
    """Where an interactive interpreter keeps the last error that nothing caught."""
    return next((f"sys.{name}" for name in ("last_exc", "last_value") if getattr(sys, name, None) is not None), "")

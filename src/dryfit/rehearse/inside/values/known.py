"""Which storages on the card hold the bytes a real card would hold.

Known-ness belongs to a storage, not to an address: PyTorch's cache hands the same bytes to another tensor, and the
default for a storage nobody vouched for is unknown. A weak reference keeps the few bytes of the storage's own record,
so that its identity is not used again, while its memory on the card goes back to the allocator as it always would.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private

SMALL_BYTES = 1 << 20
"""The virtual card keeps the bytes of copies up to this size; of what is larger, only what a router chose is known."""

CHOSEN_BYTES = 64 << 20
"""What follows from the choices of a router is known up to this size, for it decides how many rows each expert gets: a
one-hot mask for 4,096 tokens, 8 of 256 experts each, has as many bytes."""

storage_identity = torch_private.storage_identity()
_refer_to = torch_private.storage_reference()


@dataclass(frozen=True, slots=True)
class Choice:
    """An invented choice, as of experts by a router: `key` is where it is listed; `routes` if sizes may hang on it."""

    key: Any
    routes: bool


class KnownStorages:
    """The known storages of this process.

    Example:
        known = KnownStorages()
        known.remember(torch.zeros(4, device="cuda"), assumed=False)

    `assumed` holds those whose bytes are a stand-in, or were computed from one: consistent, but not true. `chosen` has
    those that follow from a choice of ours, which counts as true.

    Several threads may call operators at once, autograd's among them. Changes take a lock; looking takes none, so a
    change is made in an order in which a stand-in never looks true.
    """

    __slots__ = ("_changing", "_purge_at", "assumed", "chosen", "references")

    def __init__(self) -> None:
        self.references: dict[int, Any] = {}
        self.assumed: set[int] = set()
        self.chosen: dict[int, Choice] = {}
        self._purge_at = 4096
        # Reentrant: a finalizer that Python runs in the middle of a change may itself call operators.
        self._changing = threading.RLock()

    def remember(self, tensor: torch.Tensor, *, assumed: bool, choice: Choice | None = None) -> None:
        """Take the whole storage of `tensor` as known from here on."""
        identity = storage_identity(tensor)
        with self._changing:
            if assumed:
                self.assumed.add(identity)
            if identity not in self.references:
                if len(self.references) >= self._purge_at:
                    self._purge()
                self.references[identity] = _refer_to(tensor.untyped_storage())
            if not assumed:
                self.assumed.discard(identity)
            if choice is not None:
                self.chosen[identity] = choice
            else:
                self.chosen.pop(identity, None)

    def forget(self, tensor: torch.Tensor) -> None:
        """Take the storage of `tensor` as unknown: something unknown was written into it."""
        identity = storage_identity(tensor)
        if identity in self.references:
            with self._changing:
                self.references.pop(identity, None)
                self.assumed.discard(identity)
                self.chosen.pop(identity, None)

    def is_true(self, tensor: torch.Tensor) -> bool:
        """Whether the bytes of `tensor` are those a card would have."""
        identity = storage_identity(tensor)
        return (identity in self.references and identity not in self.assumed) or tensor.numel() == 0

    def is_assumed(self, tensor: torch.Tensor) -> bool:
        """Whether the bytes of `tensor` are a stand-in."""
        return storage_identity(tensor) in self.assumed

    def choice_in(self, tensors: Iterable[torch.Tensor]) -> Choice | None:
        """The choice that one of these follows from: one by a router, if there are several."""
        if not self.chosen:
            return None
        found = [choice for tensor in tensors if (choice := self.chosen.get(storage_identity(tensor))) is not None]
        return next((choice for choice in found if choice.routes), found[0] if found else None)

    def _purge(self) -> None:
        # A copy: what finalizers do while this goes round may change the dictionary. The reference that is dropped is
        # what keeps the identity from being used again, so it goes last.
        for identity, reference in self.references.copy().items():
            if reference.expired():
                self.assumed.discard(identity)
                self.chosen.pop(identity, None)
                self.references.pop(identity, None)
        # Doubling keeps the cost of looking for expired references constant per reference added.
        self._purge_at = max(4096, 2 * len(self.references))


def most_bytes(choice: Choice | None) -> int:
    """How large a tensor may be that is known."""
    return CHOSEN_BYTES if choice is not None and choice.routes else SMALL_BYTES


def fills_its_storage(tensor: torch.Tensor, at_most_bytes: int = SMALL_BYTES) -> bool:
    """Whether writing every element of `tensor` writes every byte of a small storage."""
    return bool(
        tensor.nbytes <= at_most_bytes
        and tensor.storage_offset() == 0
        and tensor.nbytes >= tensor.untyped_storage().nbytes()
        and torch.ops.aten.is_non_overlapping_and_dense.default(tensor)
    )

"""Which storages on the card hold the bytes a real card would hold.

Known-ness belongs to a storage, not to an address: PyTorch's cache hands the same bytes to another tensor, and the
default for a storage nobody vouched for is unknown. A weak reference keeps the few bytes of the storage's own record,
so that its identity is not used again, while its memory on the card goes back to the allocator as it always would.
"""

from __future__ import annotations

from typing import Any

import torch

from dryfit.rehearse.inside import torch_private

SMALL_BYTES = 1 << 20
"""The virtual card keeps the bytes of copies up to this size; nothing larger is ever known."""

storage_identity = torch_private.storage_identity()
_refer_to = torch_private.storage_reference()


class KnownStorages:
    """The known storages of this process.

    Example:
        known = KnownStorages()
        known.remember(torch.zeros(4, device="cuda"), assumed=False)

    `assumed` holds those whose bytes are a stand-in, or were computed from one: consistent, but not true.
    """

    __slots__ = ("_purge_at", "assumed", "references")

    def __init__(self) -> None:
        self.references: dict[int, Any] = {}
        self.assumed: set[int] = set()
        self._purge_at = 4096

    def remember(self, tensor: torch.Tensor, *, assumed: bool) -> None:
        """Take the whole storage of `tensor` as known from here on."""
        identity = storage_identity(tensor)
        if identity not in self.references:
            if len(self.references) >= self._purge_at:
                self._purge()
            self.references[identity] = _refer_to(tensor.untyped_storage())
        if assumed:
            self.assumed.add(identity)
        else:
            self.assumed.discard(identity)

    def forget(self, tensor: torch.Tensor) -> None:
        """Take the storage of `tensor` as unknown: something unknown was written into it."""
        identity = storage_identity(tensor)
        if self.references.pop(identity, None) is not None:
            self.assumed.discard(identity)

    def is_true(self, tensor: torch.Tensor) -> bool:
        """Whether the bytes of `tensor` are those a card would have."""
        identity = storage_identity(tensor)
        return (identity in self.references and identity not in self.assumed) or tensor.numel() == 0

    def is_assumed(self, tensor: torch.Tensor) -> bool:
        """Whether the bytes of `tensor` are a stand-in."""
        return storage_identity(tensor) in self.assumed

    def _purge(self) -> None:
        for identity in [i for i, reference in self.references.items() if reference.expired()]:
            del self.references[identity]
            self.assumed.discard(identity)
        # Doubling keeps the cost of looking for expired references constant per reference added.
        self._purge_at = max(4096, 2 * len(self.references))


def fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether writing every element of `tensor` writes every byte of a small storage."""
    return bool(
        tensor.nbytes <= SMALL_BYTES
        and tensor.storage_offset() == 0
        and tensor.nbytes >= tensor.untyped_storage().nbytes()
        and torch.ops.aten.is_non_overlapping_and_dense.default(tensor)
    )

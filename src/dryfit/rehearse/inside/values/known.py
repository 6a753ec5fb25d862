"""Which storages on the card hold the bytes a real card would hold.

Known-ness belongs to a storage, not to an address: PyTorch's cache hands the same bytes to another tensor, and the
default for a storage nobody vouched for is unknown. A weak reference keeps the few bytes of the storage's own record,
so that its identity is not used again, while its memory on the card goes back to the allocator as it always would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dryfit.rehearse.inside import torch_private

if TYPE_CHECKING:
    import torch

SMALL_BYTES = 1 << 20
"""The virtual card backs allocations up to this size with memory, and copies up to this size are real."""


class KnownStorages:
    """The known storages of this process, by identity.

    Example:
        known = KnownStorages()
        known.remember(torch.zeros(4, device="cuda"), assumed=False)

    `assumed` holds those whose bytes are a stand-in (or were computed from one): consistent, but not true.
    """

    __slots__ = ("_purge_at", "assumed", "references")

    def __init__(self) -> None:
        self.references: dict[int, torch_private.StorageReference] = {}
        self.assumed: set[int] = set()
        self._purge_at = 4096

    def remember(self, tensor: torch.Tensor, *, assumed: bool) -> None:
        """The whole storage of `tensor` is known from here on."""
        identity = torch_private.storage_identity(tensor)
        if identity not in self.references:
            if len(self.references) >= self._purge_at:
                self._purge()
            self.references[identity] = torch_private.refer_to_storage(tensor)
        if assumed:
            self.assumed.add(identity)
        else:
            self.assumed.discard(identity)

    def forget(self, tensor: torch.Tensor) -> None:
        """Something unknown was written into the storage of `tensor`."""
        identity = torch_private.storage_identity(tensor)
        if self.references.pop(identity, None) is not None:
            self.assumed.discard(identity)

    def _purge(self) -> None:
        for identity in [i for i, reference in self.references.items() if reference.expired()]:
            del self.references[identity]
            self.assumed.discard(identity)
        # Doubling keeps the cost of looking for expired references constant per reference added.
        self._purge_at = max(4096, 2 * len(self.references))


def covers_its_storage(tensor: torch.Tensor) -> bool:
    """Whether writing every element of `tensor` writes every byte of its storage."""
    return (
        tensor.storage_offset() == 0
        and tensor.nbytes >= tensor.untyped_storage().nbytes()
        and torch_private.is_dense(tensor)
    )

"""The store of a rank whose peers are not there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

_BYTES_OF_AN_NCCL_ID = 128


def alone_store() -> Any:
    """A `torch.distributed.Store` that knows what this process wrote, and never waits.

    What another rank would have written reads as zeros, as many as an NCCL id has: the virtual card looks at no id.
    Its `asked_for` counts the keys that the main thread has looked for in vain, `read` those that it has read so.
    """
    import torch.distributed as dist

    class AloneStore(dist.Store):  # type: ignore[misc, name-defined]
        host, port = "127.0.0.1", 29500  # nobody listens there

        def __init__(self) -> None:
            super().__init__()
            self._written: dict[str, bytes] = {}
            self.asked_for: Counter[str] = Counter()
            self.read: Counter[str] = Counter()

        def set(self, key: str, value: str | bytes) -> None:
            self._written[key] = value.encode() if isinstance(value, str) else bytes(value)

        def get(self, key: str) -> bytes:
            if key not in self._written:
                _count(self.read, [key])
            return self._written.get(key, bytes(_BYTES_OF_AN_NCCL_ID))

        def add(self, key: str, amount: int) -> int:
            self.set(key, str(int(self._written.get(key, b"0")) + amount))
            return int(self._written[key])

        def append(self, key: str, value: str | bytes) -> None:
            self.set(key, self._written.get(key, b"") + (value.encode() if isinstance(value, str) else bytes(value)))

        def compare_set(self, key: str, expected: str | bytes, value: str | bytes) -> bytes:
            wanted = expected.encode() if isinstance(expected, str) else bytes(expected)
            if self._written.get(key, b"") == wanted:
                self.set(key, value)
            return self._written.get(key, wanted)

        def check(self, keys: Sequence[str]) -> bool:
            missing = [key for key in keys if key not in self._written]
            _count(self.asked_for, missing)
            return not missing

        def wait(self, *_: Any) -> None:
            return

        def delete_key(self, key: str) -> bool:
            return self._written.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self._written)

        deleteKey, getNumKeys = delete_key, num_keys  # as torch's own stores of stores call them

        def multi_get(self, keys: Sequence[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
            for key, value in zip(keys, values, strict=True):
                self.set(key, value)

        def clone(self) -> AloneStore:
            return self

        def has_extended_api(self) -> bool:
            return True

        def set_timeout(self, _: Any) -> None:
            return

    return AloneStore()


def _count(counter: Counter[str], keys: Sequence[str]) -> None:
    """Count keys, without torch's prefixes, where it is not a thread of NCCL's that is interested."""
    if threading.current_thread() is threading.main_thread():
        counter.update(key.rpartition("//")[2] for key in keys)

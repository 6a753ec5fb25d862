"""PyTorch's allocator in a process of its own, one for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dryfit.rehearse.retrace import AllocatorProcess, allocator_process


@pytest.fixture(scope="session")
def process() -> Iterator[AllocatorProcess]:
    with allocator_process() as started:
        yield started

"""Memory snapshots as torch.cuda.memory._snapshot() gives them, written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TRUTH = Path(__file__).parents[3] / "shared" / "truth" / "snapshots"
"""Recordings of real cards, where they lie beside the checkout; their licences keep them out of it."""

MIB = 1 << 20
BASE = 0x7F00_0000_0000
MAIN = {"filename": "/home/me/train.py", "name": "main", "line": 7}
FORWARD = {"filename": "/home/me/model.py", "name": "forward", "line": 3}
STACK = [FORWARD, MAIN]


def event(action: str, addr: int = BASE, size: int = 512, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": [], **more}


def block(size: int, state: str = "active_allocated", **more: Any) -> dict[str, Any]:
    return {"size": size, "requested_size": size, "state": state, "frames": [], **more}


def segment(*blocks: dict[str, Any], address: int = BASE, total_size: int = 2 * MIB, **more: Any) -> dict[str, Any]:
    return {
        "device": 0, "address": address, "total_size": total_size, "stream": 0, "segment_type": "small",
        "segment_pool_id": (0, 0), "is_expandable": False, "blocks": list(blocks), **more,
    }  # fmt: skip


def snapshot() -> dict[str, Any]:
    """A run from an empty card: 512 bytes that stay, 1024 that go."""
    return {
        "segments": [segment(block(512, address=BASE, frames=STACK), block(2 * MIB - 512, "inactive"))],
        "device_traces": [
            [
                event("segment_alloc", size=2 * MIB, time_us=1_000_000),
                event("alloc", size=500, frames=STACK, time_us=1_000_002),
                event("alloc", BASE + 512, 1024, frames=[MAIN], time_us=1_000_003),
                event("free_requested", BASE + 512, 1024, time_us=1_000_009),
                event("free_completed", BASE + 512, 1024, time_us=1_000_009),
            ]
        ],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False},
        "external_annotations": [],
    }

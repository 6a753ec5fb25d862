"""Where a new range of addresses goes, asked of the library itself: no torch is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from dryfit.virtual_card import CardSettings, TorchBuild, environment

MIB = 1 << 20
PROGRAM = """
import ctypes, json, sys
cuda, live, places = ctypes.CDLL(None), {}, []
for action, name, mebibytes in json.loads(sys.argv[1]):
    address = ctypes.c_uint64()
    size = ctypes.c_size_t(mebibytes << 20)
    if action == "free":
        assert cuda.cudaFree(ctypes.c_void_p(live.pop(name))) == 0
        continue
    call = {"malloc": cuda.cudaMalloc, "reserve": lambda p, n: cuda.cuMemAddressReserve(p, n, ctypes.c_size_t(0),
            ctypes.c_uint64(0), ctypes.c_ulonglong(0))}[action]
    assert call(ctypes.byref(address), size) == 0
    live[name] = address.value
    places.append((name, address.value))
print(json.dumps(places))
"""


def placed(*actions: tuple[str, str, int], order: str = "linux") -> dict[str, int]:
    """Addresses, in MiB below (linux) or above (up) the end of the first range handed out."""
    settings: Any = {"name": "card", "sm": 80, "sms": 108, "memory_bytes": 1 << 40, "order": order}
    build = TorchBuild(version="2.14.1", cuda="13.0", cudnn=None, folder=Path())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(actions)],
        env=os.environ | environment(CardSettings(**settings), build),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    places = json.loads(done.stdout)
    first = places[0][1]
    return {name: (address - first) // MIB for name, address in places}


def test_the_linux_driver_goes_down_in_reservations_of_32_mib() -> None:
    at = placed(("malloc", "a", 32), ("malloc", "b", 32), ("malloc", "c", 64), ("malloc", "d", 2))
    assert at == {"a": 0, "b": -32, "c": -96, "d": -128}


def test_a_reservation_is_filled_upwards_before_another_is_opened() -> None:
    at = placed(("malloc", "a", 2), ("malloc", "b", 2), ("malloc", "c", 20), ("malloc", "d", 20))
    assert at == {"a": 0, "b": 2, "c": 4, "d": -32}


def test_a_hole_left_by_a_large_range_is_filled() -> None:
    at = placed(("malloc", "a", 44), ("malloc", "b", 20))  # 44 of 64 MiB leave 20
    assert at == {"a": 0, "b": 44}


def test_the_lowest_hole_that_holds_it_is_taken() -> None:
    at = placed(
        ("malloc", "a", 32), ("malloc", "b", 32), ("malloc", "c", 32), ("free", "a", 0), ("free", "c", 0),
        ("malloc", "d", 10), ("malloc", "e", 30), ("malloc", "f", 40),
    )  # fmt: skip
    assert at["d"] == -64
    assert at["e"] == 0  # 22 MiB were left in the lower hole
    assert at["f"] == -128


def test_neighbouring_holes_become_one() -> None:
    at = placed(
        ("malloc", "a", 32), ("malloc", "b", 32), ("malloc", "c", 32), ("free", "b", 0), ("free", "a", 0),
        ("malloc", "d", 64),
    )  # fmt: skip
    assert at["d"] == -32


def test_upwards_hands_addresses_out_in_a_row_and_reuses_equal_holes_only() -> None:
    at = placed(
        ("malloc", "a", 20), ("malloc", "b", 2), ("malloc", "c", 44), ("free", "a", 0), ("malloc", "d", 10),
        ("malloc", "e", 20), order="up",
    )  # fmt: skip
    assert at == {"a": 0, "b": 20, "c": 22, "d": 66, "e": 0}


def test_downwards_puts_each_range_below_the_last_and_reuses_equal_holes_only() -> None:
    at = placed(
        ("malloc", "a", 20), ("malloc", "b", 2), ("malloc", "c", 44), ("free", "a", 0), ("malloc", "d", 10),
        ("malloc", "e", 20), order="down",
    )  # fmt: skip
    assert at == {"a": 0, "b": -2, "c": -46, "d": -56, "e": 0}


def test_reserved_address_ranges_follow_the_same_rule() -> None:
    assert placed(("reserve", "a", 96), ("reserve", "b", 40), ("malloc", "c", 20)) == {"a": 0, "b": -64, "c": -24}

"""The calls that torch itself seldom makes, and extensions and launchers do; without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dryfit.virtual_card import CardSettings, environment

from .conftest import GIB, MIB, Card

INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_ARGUMENT = 1, 2, 101, 4


@pytest.fixture(scope="module")
def calls(said: Any) -> dict[str, Any]:
    return said("interfaces.py")


def test_a_request_for_nothing(calls: dict[str, Any]) -> None:
    assert calls["nothing"] == [0, 0]
    assert calls["nothing_of_the_driver"] == INVALID_VALUE
    assert calls["no_error"] == 0


def test_the_last_error_is_shown_until_it_is_read(calls: dict[str, Any]) -> None:
    assert calls["too_much"] == OUT_OF_MEMORY
    assert calls["errors"] == [OUT_OF_MEMORY, OUT_OF_MEMORY, 0]


def test_a_device_that_is_not_there(calls: dict[str, Any]) -> None:
    assert calls["no_such_device"] == [INVALID_DEVICE] * 4
    assert calls["by_bus"] == [0, 0]
    assert calls["by_wrong_bus"] == INVALID_DEVICE


def test_names_of_per_thread_streams_and_older_versions_are_the_same_functions(calls: dict[str, Any]) -> None:
    assert calls["alias"] == [True, True]


def test_rows_take_their_pitch(calls: dict[str, Any]) -> None:
    assert calls["pitch"] == [1024, 4 * MIB]
    assert calls["box"] == [512, 100, 64, 4 * MIB]
    assert calls["large_rows_are_cleared"]


def test_the_drivers_pool_grows_to_the_last_page(calls: dict[str, Any]) -> None:
    assert calls["pool"] == 32 * MIB
    assert calls["pool_to_the_last_page"] == 6 * MIB
    assert calls["pool_trimmed"] == 0


def test_pinned_memory_is_registered_once(calls: dict[str, Any]) -> None:
    assert calls["unpinned"] == [0, INVALID_VALUE]
    assert calls["registered"] == [0, 712, 0, 713]


def test_mappings_lie_in_reserved_addresses_and_do_not_overlap(calls: dict[str, Any]) -> None:
    assert calls["reserved"] == [0, INVALID_VALUE]
    assert [kind for kind, status in calls["mapped"].items() if status == 0] == ["right"]
    assert calls["freed_while_mapped"] == INVALID_VALUE
    assert calls["unmapped"] == [0, -4 * MIB]
    assert calls["freed"] == [INVALID_VALUE, 0, INVALID_VALUE]


def test_imported_memory_is_counted_where_it_was_made(calls: dict[str, Any]) -> None:
    assert calls["imported"] == [0, 0, 0]
    assert calls["no_fabric"] == 801


def test_a_capture_holds_any_number_of_streams_and_runs_no_callback(calls: dict[str, Any]) -> None:
    assert calls["capturing"] == [1, 0]
    assert calls["the_last_of_many"] == 1
    assert calls["called_afterwards"] == 1


def test_what_is_passed_in_stays_as_it_is(calls: dict[str, Any]) -> None:
    assert calls["passed_in"] == [11, 22, 9]


def test_nccl_refuses_no_communicator_and_averages_over_many(calls: dict[str, Any]) -> None:
    assert calls["no_communicator"] == [INVALID_ARGUMENT] * 4
    assert calls["average_of_256"] == [0] * 4  # 256 times 8 is 0 in eight bits, as it is on a card
    assert calls["gathered"]


def test_the_calls_that_were_not_faithful_are_those(calls: dict[str, Any]) -> None:
    assert calls["unfaithful"] == ["cudaMallocAsync", "cudaMemcpyBatchAsync"]


# ---- which cards the program sees -----------------------------------------------------------------------------------
UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


@pytest.fixture(scope="module")
def seen(said: Any) -> dict[str, Any]:
    return said("visible.py", count=4)


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        (None, 4), ("", 0), ("-1", 0), ("0", 1), ("7,3", 2), ("0, 1", 2), ("0,1,-1,2", 2), ("1,x,2", 1), ("x", 0),
        ("0,0", 0), ("1,2,1", 0), ("0,1,2,3,4", 4), (UUID, 1), (f"{UUID},GPU-11", 2), (f"{UUID},{UUID}", 0),
        (f"0,{UUID}", 1), ("MIG-c1", 1), ("0x", 0),
    ],
)  # fmt: skip
def test_visible_devices_are_counted_as_cuda_counts_them(
    seen: dict[str, Any], visible: str | None, devices: int
) -> None:
    assert seen["counts"][str(visible)] == devices


def test_nvml_knows_the_cards_of_the_list(seen: dict[str, Any]) -> None:
    assert seen["uuid"] == [UUID, UUID]  # by NVML, and by CUDA's properties
    assert seen["by_uuid"] == 0
    assert seen["nvml_counts"] == {"None": 4, "7,3": 8, UUID: 4}
    assert seen["past_the_last"] == 2


def test_memory_is_shown_at_the_cards_own_number(seen: dict[str, Any]) -> None:
    assert seen["used_of_7_3"] == {"3": 0, "7": 64 * MIB, "0": 0}
    assert seen["bus_of_7_3"] == "0000:08:00.0"


def test_torch_counts_a_uuid_before_it_starts(card: Card) -> None:
    done = card.run("visible.py", "torch", variables={"CUDA_VISIBLE_DEVICES": UUID}, count=2)
    assert done.said == {"before": 1, "name": "NVIDIA A100"}


# ---- settings -------------------------------------------------------------------------------------------------------
def started(settings: str) -> subprocess.CompletedProcess[str]:
    card = CardSettings(name="NVIDIA A100", sm=80, sms=108, memory_bytes=8 * GIB)
    program = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(n)); print(n.value)"
    variables = os.environ | environment(card) | {"DRYFIT_VIRTUAL_CARD": settings}
    return subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("memory_bytes=lots", "has memory_bytes=lots, and a whole number is expected."),
        ("memory_bytes=-5", "has memory_bytes=-5, and a whole number is expected."),
        ("memory_bytes=80GiB", "has memory_bytes=80GiB, and a whole number is expected."),
        ("sm=8", "has sm=8, and that is too little."),
    ],
)
def test_a_senseless_setting_stops_the_program(settings: str, sentence: str) -> None:
    done = started(settings)
    assert done.returncode == -signal.SIGABRT
    assert f"dryfit: DRYFIT_VIRTUAL_CARD {sentence} No such card can be made; the program is stopped." in done.stderr


def test_too_many_cards_are_as_many_as_there_can_be() -> None:
    assert started("count=99999999999999999999999").stdout == "64\n"


# ---- limits of the host ---------------------------------------------------------------------------------------------
def test_address_space_that_runs_out_is_no_lack_of_memory(card: Card) -> None:
    done = card.run("limits.py", "addresses", memory_bytes=80 * GIB, order="up")
    assert done.said["sizes"][-1] == done.said["merged"]
    assert done.said["unfaithful"] == {"address space used up": done.said["refused"]}
    assert "16 GiB of address space, and 1 of these cards want 160 GiB" in done.stderr
    assert done.stderr.count("ran out of address space, not of memory: 4096 MiB were asked for.") == 1
    assert "ulimit -v unlimited" in done.stderr


def test_copies_fill_no_more_than_their_share_of_the_host(card: Card) -> None:
    done = card.run("limits.py", "copies")
    said = done.said
    assert said["first"] == [5, 5]  # stored, and stored again in the same place
    assert said["past_the_limit"] == 0
    assert said["after_freeing"] == 5
    assert list(said["unfaithful"]) == ["copies not stored"]
    assert said["host_mib"] < 2200


# ---- threads and forks ----------------------------------------------------------------------------------------------
def test_forks_while_another_thread_captures(card: Card) -> None:
    assert card.run("limits.py", "forks", timeout=60).said == {"children": [0] * 40}


def test_a_thread_of_another_library_ends_at_shutdown(card: Card, tmp_path: Path) -> None:
    """Only Python's own threads are stopped there: whoever joins another would wait for ever."""
    (tmp_path / "joins.c").write_text(
        "#include <pthread.h>\n"
        "static void *ends(void *p) { pthread_exit(p); }\n"
        "int join_one(void) { pthread_t t; return pthread_create(&t, 0, ends, 0) || pthread_join(t, 0); }\n"
    )
    compiler = os.environ.get("CC", "cc")
    library = tmp_path / "joins.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-pthread", "-o", str(library), str(tmp_path / "joins.c")], check=True
    )
    done = card.run("limits.py", "shutdown", str(library), timeout=30)
    assert json.loads(done.stdout) == {"joined": 0, "finalizing": 1}

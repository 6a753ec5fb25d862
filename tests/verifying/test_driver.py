"""What is asked of a driver, through one that does what the virtual card never does."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from dryfit.errors import UsageError
from dryfit.verifying.real_card import RealCard, cards_here

PART = RealCard(
    name="NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    sm=80,
    sm_count=14,
    max_threads_per_sm=2048,
    l2_bytes=5 << 20,
    total_bytes=4864 << 20,
    used_before_bytes=13 << 20,
    driver="570.12",
    cuda="12.8",
    is_mig=True,
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two libraries."""
    folder = tmp_path_factory.mktemp("driver")
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    source = Path(__file__).with_name("driver.c")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", folder / name, source], check=True)
    return folder


def ask(driver: Path, **settings: int | str) -> RealCard:
    return cards_here({**os.environ, "LD_LIBRARY_PATH": str(driver), **{k: str(v) for k, v in settings.items()}})


def test_a_part_of_a_card(driver: Path) -> None:
    assert ask(driver, FAKE_COUNT=1) == PART


def test_a_driver_without_a_monitor(driver: Path) -> None:
    found = ask(driver, FAKE_COUNT=1, FAKE_MONITOR_STATUS=9)
    assert (found.name, found.used_before_bytes, found.driver) == (PART.name, None, None)


def test_a_driver_that_does_not_start(driver: Path) -> None:
    with pytest.raises(UsageError) as raised:
        ask(driver, FAKE_STATUS=803)
    assert str(raised.value) == (
        "The NVIDIA driver could not be started (CUDA error 803, system has unsupported display driver / cuda driver "
        "combination); see what nvidia-smi says of it. `dryfit verify` compares with a real card; `dryfit run` needs "
        "none."
    )


@pytest.mark.parametrize("settings", [{"FAKE_STATUS": 100}, {"FAKE_COUNT": 0}])
def test_a_driver_without_a_card(driver: Path, settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"^The NVIDIA driver finds no card on this machine; "):
        ask(driver, **settings)
    with pytest.raises(UsageError, match=r"^CUDA_VISIBLE_DEVICES is '9' and leaves no card to run on; "):
        ask(driver, **settings, CUDA_VISIBLE_DEVICES=9)

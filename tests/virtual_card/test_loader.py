"""Settings, the installed torch, and the environment of a child process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.virtual_card import CardSettings, TorchBuild, build, environment, installed_torch, settings_of
from dryfit.virtual_card import loader as loader_module

A100 = CardSettings(name="NVIDIA A100", sm=80, sms=108, memory_bytes=40 << 30)


def fake_torch(folder: Path, text: str, cudnn: str | None = None) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text(text)
    if cudnn:
        (folder / f"nvidia_cudnn_cu{cudnn}.dist-info").mkdir()
    return folder


def test_importing_the_room_loads_no_torch() -> None:
    program = (
        "import sys, dryfit.virtual_card, dryfit.virtual_card.build, dryfit.virtual_card.calls\n"
        "import dryfit.virtual_card.refresh_names\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_settings_are_written_as_the_library_reads_them() -> None:
    text = CardSettings(name="NVIDIA L4", sm=89, sms=58, memory_bytes=24 << 30, cudnn=92400, alone=True).text()
    assert text == (
        "name=NVIDIA L4;sm=89;sms=58;memory_bytes=25769803776;outside_bytes=0;count=1;order=linux;cudnn=92400;alone=1;"
        "wait_seconds=600"
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "a;b"}, "A card cannot be named 'a;b': at most 127 bytes, and no semicolon."),
        ({"order": "odd"}, "Addresses cannot be handed out in the order 'odd'; there are linux, up and down."),
        ({"count": 65}, "A machine with 65 virtual cards cannot be made: 1 to 64 can."),
        ({"outside_bytes": 1 << 40}, "has nothing left for a program"),
        ({"sm": 9}, "No card has compute capability sm=9 and 108 multiprocessors; sm is written without its point"),
    ],
)
def test_impossible_cards_are_refused_in_words(change: dict[str, object], sentence: str) -> None:
    values: dict[str, object] = {"name": "NVIDIA A100", "sm": 80, "sms": 108, "memory_bytes": 40 << 30}
    with pytest.raises(UsageError) as refused:
        CardSettings(**(values | change))  # type: ignore[arg-type]
    assert sentence in str(refused.value)


def test_settings_of_a_catalogue_card() -> None:
    card = find_card("4090")
    settings = settings_of(card, address_order="up")
    assert (settings.name, settings.sm, settings.order) == (card.name, 89, "up")
    assert settings.memory_bytes - settings.outside_bytes == card.usable_bytes


def test_torch_is_read_from_its_files(tmp_path: Path) -> None:
    text = "from typing import Optional\n__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n"
    found = installed_torch([fake_torch(tmp_path, text, "12-9.1.0.70")])
    assert (found.version, found.cuda, found.cudnn) == ("2.6.0+cu124", "12.4", 90100)
    assert found.require_cuda() == 12


def test_an_older_cudnn_is_numbered_as_it_numbers_itself(tmp_path: Path) -> None:
    assert installed_torch([fake_torch(tmp_path, "cuda = '12.1'\n", "12-8.9.2.26")]).cudnn == 8902


def test_a_cpu_only_torch_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    found = installed_torch([fake_torch(tmp_path, "__version__ = '2.6.0+cpu'\ncuda = None\n")])
    with pytest.raises(UsageError) as refused:
        environment(A100, found)
    assert "torch 2.6.0+cpu" in str(refused.value)
    assert "is a CPU-only build" in str(refused.value)
    assert "pip install torch --index-url https://download.pytorch.org/whl/cu" in str(refused.value)


def test_a_cuda_that_is_not_known_is_refused(tmp_path: Path) -> None:
    found = installed_torch([fake_torch(tmp_path, "__version__ = '2.0.0'\ncuda = '11.8'\n")])
    with pytest.raises(UsageError, match=r"is built for CUDA 11\.8, and the virtual card knows CUDA 12 and 13"):
        found.require_cuda()


def test_no_torch_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"torch is not installed for .*: pip install torch"):
        installed_torch([tmp_path])


def test_the_environment_keeps_what_was_there() -> None:
    base = {"LD_PRELOAD": "/other.so", "LD_LIBRARY_PATH": "/a:/b"}
    torch = TorchBuild(version="2.6.0", cuda="12.4", cudnn=90100, folder=Path())
    variables = environment(A100, torch, base)
    folder = str(build.LIBRARY_FOLDER)
    assert variables["LD_PRELOAD"] == f"{folder}/libcuda.so.1:{folder}/libnvidia-ml.so.1:/other.so"
    assert variables["LD_LIBRARY_PATH"] == f"{folder}:/a:/b"
    assert environment(A100, torch, base | variables)["LD_PRELOAD"] == variables["LD_PRELOAD"]
    assert "cuda=12;cudnn=90100" in variables["DRYFIT_VIRTUAL_CARD"]


def test_after_torch_is_imported_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setattr(loader_module, "in_front", lambda: False)
    with pytest.raises(UsageError, match="torch is already imported in this process") as refused:
        loader_module.put_in_front(A100)
    assert "before the first `import torch`" in str(refused.value)


@pytest.mark.parametrize(("stamp", "state"), [(None, "is not compiled"), ("0" * 64, "was compiled from other sources")])
def test_a_missing_or_older_library_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: str | None, state: str
) -> None:
    if stamp:
        (tmp_path / build.STAMP).write_text(stamp)
    monkeypatch.setattr(build, "LIBRARY_FOLDER", tmp_path)
    with pytest.raises(UsageError) as refused:
        loader_module.library_folder()
    assert state in str(refused.value)
    assert str(refused.value).endswith("-m dryfit.virtual_card.build")


def test_asking_without_a_card_in_front_is_refused() -> None:
    program = "from dryfit.virtual_card import calls\ncalls.used_bytes()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "UsageError: No virtual card is in front of this process" in done.stderr

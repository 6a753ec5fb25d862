"""`dryfit.virtual`: a card in the running interpreter; fresh interpreters, because it is there for good."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CARD = "import dryfit\ncard = dryfit.virtual('rtx-4090')\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)


def test_torch_finds_the_card() -> None:
    done = run(
        CARD + "import torch\n"
        "free, total = torch.cuda.mem_get_info()\n"
        "print(torch.cuda.get_device_name(), total == card.total_bytes, free == card.usable_bytes)\n"
        "x = torch.ones(4, device='cuda')\n"
        "model = torch.nn.Linear(4, 4).cuda()\n"
        "model(x).sum().backward()\n"
        "print(torch.cuda.max_memory_allocated() > 0)\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["NVIDIA GeForce RTX 4090 True True", "True"]
    assert done.stderr == ""


def test_out_of_memory_at_the_cards_limit() -> None:
    done = run(
        "import dryfit\ndryfit.virtual('t4', memory_bytes=2 << 30)\nimport torch\n"
        "try:\n    torch.empty(3 << 30, dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError as error:\n    print(error)\n"
    )
    assert "Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 2.00 GiB" in done.stdout


def test_it_is_too_late_once_torch_is_imported() -> None:
    done = run("import torch\nimport dryfit\ndryfit.virtual('t4')\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "dryfit.errors.UsageError: torch is already imported in this process"
    )
    assert "in a notebook: restart the kernel, and run this cell first" in done.stderr


def test_an_unknown_card_is_refused_with_the_nearest() -> None:
    done = run("import dryfit\ndryfit.virtual('rtx-4009')\n")
    assert "rtx-4090" in done.stderr.splitlines()[-1]


def test_child_processes_have_the_card_too() -> None:
    code = "import torch; print(torch.cuda.get_device_name())"
    done = run(CARD + f"import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', {code!r}]))\n")
    assert "NVIDIA GeForce RTX 4090" in done.stdout


def test_a_second_card_is_refused_and_the_same_one_is_not() -> None:
    done = run(CARD + "dryfit.virtual('4090')\nimport torch\ndryfit.virtual('h100')\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "dryfit.errors.UsageError: This process has a virtual card already, NVIDIA GeForce RTX 4090, and keeps it to "
        "its end; NVIDIA H100 80GB HBM3 needs a process of its own (in a notebook: restart the kernel)."
    )


def test_an_installation_in_a_folder_with_blanks(tmp_path: Path) -> None:
    import dryfit

    folder = tmp_path / "a folder: with blanks"
    shutil.copytree(Path(dryfit.__file__).parent, folder / "dryfit")
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(1, device='cuda')\n")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n"
         "from dryfit.cli import main; sys.exit(main(['run', '--gpu', 't4', 'train.py']))"],
        cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("FITS on Tesla T4")

"""A rehearsal has garbage weights: whatever the program writes, deletes, logs or uploads must not reach the user."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VANDAL = """
import atexit, csv, os, pathlib, shutil, socket, torch
from torch.utils.tensorboard import SummaryWriter

atexit.register(lambda: pathlib.Path("exit-handler-ran").write_text("x"))
writer = SummaryWriter("runs")
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader(torch.randn(400, 64), batch_size=16, num_workers=2, pin_memory=True)

shutil.rmtree("old-run")
os.rename("notes.txt", "notes-renamed.txt")
os.chmod("best.pt", 0o777)
pathlib.Path("log.csv").open("a").write("1,2,3\\n")
pathlib.Path("deep/new/folder").mkdir(parents=True)

try:
    for step, batch in enumerate(data):
        loss = model(batch.cuda(non_blocking=True)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        writer.add_scalar("loss", loss.item(), step)
        torch.save(model.state_dict(), "best.pt")
        torch.save({"step": step}, f"checkpoint-{step}.pt")
        with open("metrics.csv", "w") as f:
            csv.writer(f).writerow([step])
        assert "step" in torch.load(f"checkpoint-{step}.pt")      # the program sees what it wrote
finally:
    pathlib.Path("finally-ran").write_text("x")
"""


@pytest.fixture(params=["in a temporary folder", "outside temporary folders"])
def precious(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A project with files worth keeping, once below the temporary folder and once in the home folder."""
    if request.param == "in a temporary folder":
        yield _fill(tmp_path / "precious")
        return
    folder = Path.home() / f".dryfit-test-{tmp_path.name}"
    try:
        yield _fill(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path) -> Path:
    (folder / "old-run" / "inner").mkdir(parents=True)
    for name in ("best.pt", "notes.txt", "log.csv", "metrics.csv", "old-run/model.pt", "old-run/inner/optimizer.pt"):
        (folder / name).write_bytes(name.encode() * 100)
    (folder / "link").symlink_to("best.pt")
    (folder / "train.py").write_text(VANDAL)
    return folder


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every path below a folder with its mode, its time of change and its contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path.is_dir())
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dryfit", "run", "--gpu", "t4", *options, "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


def test_every_byte_stays_as_it_was(precious: Path) -> None:
    before = tree(precious)
    # Stopped in one place; to its end, with exit handlers and `finally` blocks, in the other.
    done = run(precious, "--steps", "all" if precious.is_relative_to(Path.home()) else "3")
    assert done.returncode == 0, done.stderr
    assert tree(precious) == before


def test_with_allow_writes_the_program_does_what_it_does(tmp_path: Path) -> None:
    precious = _fill(tmp_path / "precious")
    done = run(precious, "--allow-writes", "--steps", "3")
    assert done.returncode == 0, done.stderr
    assert not (precious / "old-run").exists()
    assert (precious / "checkpoint-1.pt").exists()
    # ... but a program that is stopped runs no exit handler and no `finally` even then.
    assert not (precious / "exit-handler-ran").exists()
    assert not (precious / "finally-ran").exists()


def test_a_program_that_ends_by_itself_runs_its_exit_handlers(rehearse: Any) -> None:
    program = "import atexit, torch\natexit.register(print, 'handler ran')\ntorch.ones(1, device='cuda')\n"
    assert "handler ran" in rehearse(program).stderr


def test_there_is_no_network_but_loopback(rehearse: Any) -> None:
    program = """
        import socket, torch
        torch.ones(1, device="cuda")
        try:
            socket.create_connection(("192.0.2.1", 80), timeout=5)
        except OSError as error:
            print("outside:", error)
        server = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(server.getsockname(), timeout=5)
        print("inside: fine")
    """
    done = rehearse(program)
    assert done.code == 0, done.stderr
    assert "outside: [Errno 101] Network is unreachable" in done.stderr
    assert "inside: fine" in done.stderr


def test_the_scratch_layer_is_gone_afterwards(rehearse: Any, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = rehearse(
        "import torch\ntorch.save(torch.ones(9, device='cuda'), 'x.pt')\n", environment={"TMPDIR": str(scratch)}
    )
    assert done.code == 0, done.stderr
    assert [path for path in scratch.iterdir() if not path.name.startswith("dryfit-kernels-")] == []


def test_a_program_that_ends_by_itself_has_its_own_objects_destroyed_and_keeps_its_exit_code(rehearse: Any) -> None:
    """Installed modules are left as they are: taking them apart takes a second."""
    program = """
        import sys, torch
        class Marker:
            def __init__(self, name): self.name = name
            def __del__(self): print(self.name, "is destroyed")
        own, torch.marker = Marker("own"), Marker("of torch")
        torch.ones(1, device="cuda")
        raise SystemExit(3)
    """
    done = rehearse(program)
    assert done.result["ending"]["sentence"].startswith("train.py ended with status 3.")
    assert "own is destroyed" in done.stderr
    assert "of torch is destroyed" not in done.stderr

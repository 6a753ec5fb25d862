"""Whatever is wrong with the program or the request ends in one clear sentence and the documented exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "code", "sentence"),
    [
        (
            "import torch\nfor x in range(3) print(x)\n",
            2,
            "train.py failed before its first optimiser step: SyntaxError: ",
        ),
        (
            "import torch\ntorch.ones(1, device='cuda')\nraise ValueError('no data')\n",
            2,
            "train.py failed before its first optimiser step: ValueError: no data (",
        ),
        (
            TRAIN + "step()\nstep()\nraise RuntimeError('bad batch')\n",
            2,
            "train.py failed after 2 optimiser steps: RuntimeError: bad batch (",
        ),
        ("print('hello')\n", 2, "train.py ended without importing torch, so there is nothing to measure."),
        (
            "import torch\ntorch.ones(3)\n",
            2,
            "train.py ended without putting anything on the card; check that it trains on device 'cuda'",
        ),
        ("import torch, sys\ntorch.ones(1, device='cuda')\nsys.exit(7)\n", 2, "train.py ended with status 7"),
        (
            TRAIN + "step()\nimport ctypes\nctypes.string_at(0)\n",
            2,
            "train.py crashed after 1 optimiser step with SIGSEGV (",
        ),
        (TRAIN + "step()\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", 2, "train.py was killed after 1"),
        ("import no_such_package\n", 2, "ModuleNotFoundError: No module named 'no_such_package'"),
    ],
    ids=["syntax", "raises-early", "raises-late", "no-torch", "cpu", "status", "segfault", "killed", "missing-package"],
)
def test_a_program_that_fails(rehearse: Any, program: str, code: int, sentence: str) -> None:
    done = rehearse(program)
    assert done.code == code, done.stderr
    assert sentence in done.result["ending"]["sentence"]
    assert done.result["verdict"] == "unknown"
    assert done.result["exit_code"] == code


def test_where_it_failed_is_a_line_of_the_program(rehearse: Any, project: Path) -> None:
    done = rehearse(
        "import torch\n\ndef train():\n    torch.ones(2, device='cuda') @ torch.ones(3, device='cuda')\ntrain()\n"
    )
    assert (Path(done.result["ending"]["file"]).name, done.result["ending"]["line"]) == ("train.py", 4)
    crashed = rehearse("import torch, ctypes\ntorch.ones(1, device='cuda')\nctypes.string_at(0)\n")
    assert (Path(crashed.result["ending"]["file"]).name, crashed.result["ending"]["line"]) == ("train.py", 3)


def test_steps_before_a_crash_still_count(rehearse: Any) -> None:
    done = rehearse(TRAIN + "step()\nstep()\nimport os\nos._exit(1)\n", options=("--steps", "all"))
    assert done.result["steps"] == 2
    assert done.result["peak_reserved_bytes"] > 0
    assert "The process left no last word" in " ".join(done.result["notes"])


def test_the_time_limit(rehearse: Any) -> None:
    done = rehearse("import torch\nx = torch.ones(1, device='cuda')\nwhile True: pass\n", options=("--seconds", "4"))
    assert done.code == 3
    assert done.result["ending"]["sentence"] == (
        "train.py was stopped before its first optimiser step, at the limit of 4 seconds; --seconds sets another."
    )
    assert done.result["peak_reserved_bytes"] == 2 << 20


def test_the_time_limit_reaches_a_program_without_torch_and_one_that_ignores_signals(rehearse: Any) -> None:
    program = "import signal\nfor s in (15, 2, 41): signal.signal(s, signal.SIG_IGN)\nwhile True: pass\n"
    done = rehearse(program, options=("--seconds", "1"))
    assert done.code == 3
    assert "at the limit of 1 seconds" in done.result["ending"]["sentence"]


def test_the_limit_on_host_memory(rehearse: Any) -> None:
    program = "import torch, time\nx = torch.ones(1, device='cuda')\nhog = torch.ones(3 << 28)\ntime.sleep(30)\n"
    done = rehearse(program, options=("--host-memory", "2GiB"))
    assert done.code == 3
    assert (
        "it held more than 2.00 GiB of this machine's memory; --host-memory sets" in done.result["ending"]["sentence"]
    )


def test_ctrl_c(project: Path) -> None:
    (project / "train.py").write_text(
        "import torch\nx = torch.ones(1, device='cuda')\nprint('up', flush=True)\nwhile True: pass\n"
    )
    # As from a terminal: a job in the background, which this test may be part of, has SIGINT ignored.
    foreground = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[0] = 'dryfit'\n"
    )
    foreground += "from dryfit.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", foreground, "run", "--json", "--gpu", "t4", "train.py"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            assert running.stderr is not None
            while "up" not in running.stderr.readline():
                pass
            os.killpg(running.pid, signal.SIGINT)
            out, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130
    assert "by Ctrl-C." in out


def test_nothing_is_left_running(project: Path) -> None:
    marker = f"dryfit-orphan-{os.getpid()}"
    (project / "train.py").write_text(
        "import pathlib, subprocess, sys, torch\n"
        f"sleeper = [sys.executable, '-c', 'import time; time.sleep(600)', '{marker}']\n"
        "started = subprocess.Popen(sleeper, start_new_session=True)\n"
        "print('sleeping:', pathlib.Path(f'/proc/{started.pid}/cmdline').exists())\n"
    )
    command = [sys.executable, "-m", "dryfit", "run", "--gpu", "t4", "train.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert "sleeping: True" in done.stderr
    deadline = time.monotonic() + 10
    while any(marker.encode() in _read(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.py"], "There is no file missing.py"),
        (["--gpu", "rtx-9999", "x.py"], "rtx-9999"),
        (["--gpu", "t4", "--memory", "lots", "x.py"], "'lots' is not an amount of memory"),
        (["--gpu", "t4", "--memory", "1MiB", "x.py"], "1.00 MiB"),
        (["--gpu", "t4", "--memory", "9999999TiB", "x.py"], "TiB"),
        (["--steps", "0", "x.py"], "--steps 0 is neither a number of optimiser steps, 1 or more, nor `all`."),
        (["--steps", "few", "x.py"], "--steps few is neither"),
        (["--seconds", "-1", "x.py"], "--seconds -1 leaves no time to run the program"),
        ([], "There is no program to run"),
    ],
)
def test_a_wrong_request(project: Path, words: list[str], sentence: str) -> None:
    (project / "x.py").write_text("")
    done = subprocess.run([sys.executable, "-m", "dryfit", "run", *words], cwd=project, capture_output=True, text=True)
    assert done.returncode == 2
    assert sentence in last_line(done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("__version__ = '2.9.1+cpu'\ncuda: str | None = None\n", "The installed torch 2.9.1+cpu ("),
        ("__version__ = '1.13.1+cu117'\ncuda = '11.7'\n", "is built for CUDA 11.7, and the virtual card knows CUDA 12"),
    ],
    ids=["cpu-only", "old-cuda"],
)
def test_a_torch_that_cannot_have_a_card(project: Path, version: str, sentence: str) -> None:
    (project / "site" / "torch").mkdir(parents=True)
    (project / "site" / "torch" / "version.py").write_text(version)
    (project / "x.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "dryfit", "run", "--gpu", "t4", "x.py"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert sentence in last_line(done.stderr)
    assert "pip install torch --index-url" in last_line(done.stderr)


def test_last_words_are_waited_for_whatever_has_ended_before(rehearse: Any) -> None:
    program = """
        import subprocess, sys, time, torch
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        x = torch.ones(9 << 20, device="cuda")
        while True:
            time.sleep(0.1)
    """
    done = rehearse(program, options=("--seconds", "6"))
    assert done.code == 3
    assert done.result["peak_reserved_bytes"] == 36 << 20


def test_a_folder_that_is_not_there_is_said_before_anything_runs(project: Path) -> None:
    (project / "x.py").write_text("raise SystemExit('ran')")
    command = [sys.executable, "-m", "dryfit", "run", "-o", "no/where.json", "x.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip() == "dryfit: There is no folder to save no/where.json in; make it first, or name another."


def test_closed_standard_streams(project: Path) -> None:
    (project / "x.py").write_text(TRAIN + "for _ in range(9): step()\n")
    command = f"{sys.executable} -m dryfit run --gpu t4 -o result.json x.py <&- >&- 2>&-"
    assert subprocess.run(command, shell=True, cwd=project).returncode == 0
    assert '"verdict": "fits"' in (project / "result.json").read_text()


def test_a_temporary_folder_in_shared_memory(rehearse: Any) -> None:
    done = rehearse(TRAIN + "for _ in range(9): step()\n", environment={"TMPDIR": "/dev/shm"})
    assert done.result["verdict"] == "fits"


def test_a_current_folder_that_is_gone(project: Path) -> None:
    (project / "x.py").write_text("")
    gone = project / "gone"
    script = f"mkdir {gone} && cd {gone} && rmdir {gone} && {sys.executable} -P -m dryfit run {project / 'x.py'}"
    done = subprocess.run(script, shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert last_line(done.stderr) == ("dryfit: The current folder has been deleted; change to another and start again.")


def test_a_disk_that_is_full_for_the_output(project: Path) -> None:
    done = subprocess.run(f"{sys.executable} -m dryfit cards >/dev/full", shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "dryfit: the output could not be written: no space left on the device.\n"


@pytest.mark.parametrize(
    ("output", "sentence"),
    [(".", "which is a folder; name a file."), ("", "which is a folder; name a file.")],
)
def test_a_place_that_cannot_hold_the_result(project: Path, output: str, sentence: str) -> None:
    (project / "x.py").write_text("raise SystemExit('ran')")
    command = [sys.executable, "-m", "dryfit", "run", "-o", output, "x.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_the_program_is_a_list_of_words() -> None:
    import dryfit

    with pytest.raises(dryfit.UsageError, match=r"a list of words: \['train.py'\], and not as one word"):
        dryfit.run("train.py")
    with pytest.raises(dryfit.UsageError, match="The program is a list of words or a function, and 3 is neither"):
        dryfit.run(3)  # type: ignore[arg-type]
    with pytest.raises(dryfit.UsageError, match="cannot hold a NUL character"):
        dryfit.run(["train.py", "\0"])
    with pytest.raises(dryfit.UsageError, match=r"There is no file missing\.py"):
        dryfit.run([Path("missing.py")])


def test_a_fault_of_ours_is_told_from_the_programs(rehearse: Any) -> None:
    breaks_our_hooks = "from dryfit.rehearse.inside import phases\nphases.step_event = None\n"
    done = rehearse(TRAIN + breaks_our_hooks + "for _ in range(9): step()\n")
    assert done.code == 70
    assert "dryfit: The hooks on torch failed. This is our fault; please report it" in done.stderr
    assert "TypeError: 'NoneType' object is not callable" in done.stderr

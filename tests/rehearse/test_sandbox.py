"""Real programs in the real sandbox: what they change is theirs alone, and nothing of them stays."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dryfit.errors import DryfitError
from dryfit.rehearse import sandbox
from dryfit.rehearse.sandbox import client, processes, scratch
from dryfit.rehearse.sandbox.mounts import plan
from dryfit.rehearse.sandbox.network import host_name_in

SOURCE = Path(sandbox.__file__).parents[3]
ORDINARY_USER = 65534
IS_ROOT = os.geteuid() == 0


def _has_namespaces() -> bool:
    own_user = [] if IS_ROOT else ["-U"]
    tried = subprocess.run(["unshare", *own_user, "-m", "-n", "-p", "true"], capture_output=True)
    return tried.returncode == 0


# Containers without SYS_ADMIN, and kernels that forbid user namespaces: what remains there is tested all the same.
needs_namespaces = pytest.mark.skipif(not _has_namespaces(), reason="this machine allows no mount namespaces")

# dryfit's side, in a process of its own so that it can be any user's: the program's output on stdout, the answer on
# stderr.
DRIVER = """
import dataclasses, json, os, sys
from dryfit.rehearse import sandbox
arguments = json.loads(sys.argv[1])
with sandbox.start(arguments.pop("argv"), env=dict(os.environ), **arguments) as keeper:
    protection = keeper.protection()
    ended = keeper.wait()
answer = dataclasses.asdict(ended) | {"protection": dataclasses.asdict(protection), "scratch": keeper.scratch}
print(json.dumps(answer | {"sentences": protection.sentences()}), file=sys.stderr)
"""

VANDAL = """
import os, shutil, sys
from pathlib import Path
from dryfit.rehearse.sandbox.refuse import install_as_told
install_as_told()

def overwrite(): Path("model.pt").write_text("garbage")
def append():
    with open("log.csv", "a") as file: file.write("garbage")
def truncate(): os.truncate("data.bin", 3)
def delete(): Path("old.ckpt").unlink()
def delete_folder(): shutil.rmtree("checkpoints")
def rename(): Path("config.yaml").rename("config.old")
def rename_folder(): os.rename("runs", "runs.old")
def change_mode(): os.chmod("script.sh", 0o600)
def change_times(): os.utime("times", (1, 1))
def make(): Path("new.pt").write_text("garbage")
def make_folder(): Path("made/deep").mkdir(parents=True)
def link(): os.symlink("model.pt", "link")
def write_through_link(): Path("linked").write_text("garbage")
def replace(): Path("new2").write_text("garbage"); os.replace("new2", "replaced")

def seen():
    return {
        overwrite: lambda: Path("model.pt").read_text() == "garbage",
        append: lambda: Path("log.csv").read_text() == "step,loss\\ngarbage",
        truncate: lambda: Path("data.bin").stat().st_size == 3,
        delete: lambda: not Path("old.ckpt").exists(),
        delete_folder: lambda: not Path("checkpoints").exists(),
        rename: lambda: Path("config.old").read_text() == "lr: 1" and not Path("config.yaml").exists(),
        rename_folder: lambda: Path("runs.old/a/events").read_text() == "events" and not Path("runs").exists(),
        change_mode: lambda: Path("script.sh").stat().st_mode & 0o777 == 0o600,
        change_times: lambda: Path("times").stat().st_mtime == 1,
        make: lambda: Path("new.pt").read_text() == "garbage",
        make_folder: lambda: Path("made/deep").is_dir(),
        link: lambda: os.readlink("link") == "model.pt",
        write_through_link: lambda: Path("elsewhere/target").read_text() == "garbage",
        replace: lambda: Path("replaced").read_text() == "garbage",
    }

for deed, visible in seen().items():
    try:
        deed()
    except OSError as error:
        print(deed.__name__, "refused:", error)
    else:
        print(deed.__name__, "done" if visible() else "LOST")
"""


def interpreter_for(user: int | None) -> str:
    """An interpreter that the user may run and that finds dryfit; the test is skipped where there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        tried = driver_process(user, [python, "-c", "from dryfit.rehearse import sandbox"])
        if tried is not None and tried.returncode == 0:
            return python
    pytest.skip("no Python here that an ordinary user may run and that is 3.10 or newer")


def driver_process(user: int | None, command: list[str], **options: Any) -> subprocess.CompletedProcess[str] | None:
    as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | options.pop("environment", {})
    if user is not None:
        environment["HOME"] = "/nonexistent"
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, cwd="/", **as_user, **options
        )
    except PermissionError:
        return None


def run(
    argv: list[str], cwd: Path, user: int | None = None, prefix: tuple[str, ...] = (), **options: Any
) -> dict[str, Any]:
    """The answer of the driver, with the program's output under "output"."""
    process_options = {name: options.pop(name) for name in ("environment", "input") if name in options}
    arguments = json.dumps({"argv": argv, "cwd": str(cwd), **options})
    command = [*prefix, interpreter_for(user), "-c", DRIVER, arguments]
    finished = driver_process(user, command, **process_options)
    assert finished is not None and finished.returncode == 0, finished
    answer: dict[str, Any] = json.loads(finished.stderr.splitlines()[-1])
    return answer | {"output": finished.stdout, "errors": finished.stderr.splitlines()[:-1]}


def in_process(code: str, cwd: Path, **options: Any) -> sandbox.Keeper:
    return sandbox.start(
        [sys.executable, "-c", code], cwd=str(cwd), env=dict(os.environ) | {"PYTHONPATH": str(SOURCE)}, **options
    )


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path)] = (
            status.st_mode,
            status.st_uid,
            status.st_nlink,
            status.st_mtime_ns,
            status.st_ctime_ns,
            content,
        )
    return found


def furnish(project: Path) -> None:
    for name, text in {
        "model.pt": "weights", "log.csv": "step,loss\n", "data.bin": "0123456789", "old.ckpt": "old", "times": "",
        "config.yaml": "lr: 1", "script.sh": "#!/bin/sh", "replaced": "before", "checkpoints/1/model.pt": "one",
        "runs/a/events": "events", "elsewhere/target": "kept", "vandal.py": VANDAL,
    }.items():  # fmt: skip
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "script.sh").chmod(0o755)
    (project / "linked").symlink_to("elsewhere/target")


@pytest.fixture(params=[None, pytest.param(ORDINARY_USER, marks=pytest.mark.skipif(not IS_ROOT, reason="not root"))],
                ids=["this user", "ordinary user"])  # fmt: skip
def user(request: pytest.FixtureRequest) -> int | None:
    return request.param


@pytest.fixture(params=["outside temporary folders", "in a temporary folder"])
def project(request: pytest.FixtureRequest, user: int | None) -> Iterator[Path]:
    """A furnished project with a name that mount options would trip over."""
    if request.param == "in a temporary folder":
        base = Path(tempfile.mkdtemp(prefix="dryfit_test,a:b \\", dir="/tmp"))
    else:
        base = Path(tempfile.mkdtemp(prefix="dryfit_test,a:b \\", dir="/var/lib" if IS_ROOT else Path.home()))
    folder = base / "project"
    folder.mkdir()
    furnish(folder)
    if user is not None:
        for path in [base, *base.rglob("*")]:
            os.chown(path, user, user, follow_symlinks=False)
    yield folder
    shutil.rmtree(base)


@needs_namespaces
def test_what_a_program_writes_is_its_own_and_gone_afterwards(project: Path, user: int | None) -> None:
    before = snapshot(project.parent)
    answer = run([interpreter_for(user), "vandal.py"], project, user)
    assert answer["exit_status"] == 0, answer["errors"]
    assert answer["protection"]["writes"] == "layers", answer
    assert answer["sentences"][0] == "What the program writes goes to a layer on disk that is thrown away."
    assert [line.split(" ", 1)[1] for line in answer["output"].splitlines()] == ["done"] * 14
    assert snapshot(project.parent) == before
    assert wait_until(lambda: not Path(answer["scratch"]).exists())
    assert "dryfit" not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("strongest", [
    pytest.param("memory-layers", marks=needs_namespaces), pytest.param("read-only", marks=needs_namespaces),
    "landlock", "audit-hook",
])  # fmt: skip
def test_a_weaker_protection_keeps_the_tree_too(project: Path, user: int | None, strongest: str) -> None:
    before = snapshot(project.parent)
    answer = run([interpreter_for(user), "vandal.py"], project, user, strongest=strongest)
    assert answer["exit_status"] == 0, answer["errors"]
    if strongest == "landlock" and answer["protection"]["writes"] == "audit-hook":
        pytest.skip(answer["protection"]["failures"][-1])
    assert answer["protection"]["writes"] == strongest, answer
    deeds = dict(line.split(" ", 1) for line in answer["output"].splitlines())
    if strongest == "memory-layers":
        assert set(deeds.values()) == {"done"}
    else:
        assert all(answer.startswith("refused: ") for answer in deeds.values()), deeds
        assert deeds["overwrite"] == (
            "refused: [Errno 13] dryfit refused to write a file outside temporary folders, for this is a rehearsal, "
            "in which all weights are garbage; `dryfit run --allow-writes` lets the program do it: "
            f"{str(project / 'model.pt')!r}"
        )
    assert snapshot(project.parent) == before
    assert wait_until(lambda: not Path(answer["scratch"]).exists())


def test_read_only_and_landlock_hold_programs_that_are_not_python(project: Path, user: int | None) -> None:
    before = snapshot(project.parent)
    for strongest, sentence in (("read-only", "Read-only file system"), ("landlock", "Permission denied")):
        answer = run(["/bin/sh", "-c", "echo garbage > model.pt"], project, user, strongest=strongest)
        if answer["protection"]["writes"] == strongest:
            assert answer["exit_status"] != 0
            assert sentence in answer["errors"][0]
            assert snapshot(project.parent) == before


def test_allowed_writes_are_real(project: Path, user: int | None) -> None:
    answer = run(["/bin/sh", "-c", "echo real > model.pt; rm old.ckpt"], project, user, allow_writes=True)
    assert answer["protection"]["writes"] == "allowed"
    assert (project / "model.pt").read_text() == "real\n"
    assert not (project / "old.ckpt").exists()


@needs_namespaces
def test_a_writable_folder_is_real_within_a_layer(project: Path, user: int | None) -> None:
    code = "echo garbage > model.pt; echo kept > runs/result; mv runs/result runs/renamed"
    answer = run(["/bin/sh", "-c", code], project, user, writable=[str(project / "runs")])
    assert answer["exit_status"] == 0, answer["errors"]
    assert (project / "runs/renamed").read_text() == "kept\n"
    assert (project / "model.pt").read_text() == "weights"


@needs_namespaces
def test_network_is_loopback_alone(user: int | None) -> None:
    code = """
import socket, time
def attempt(address):
    began = time.monotonic()
    try:
        socket.create_connection(address, timeout=5)
    except OSError as error:
        return type(error).__name__, error.strerror, time.monotonic() - began < 1
print(attempt(("198.51.100.1", 80)))
print(attempt(("pypi.org", 443))[2])
for host in ("localhost", "127.0.0.1", socket.gethostname(), socket.gethostbyname(socket.gethostname())):
    with socket.create_server((host, 0)) as server:
        socket.create_connection((host, server.getsockname()[1]), timeout=5).close()
    print("reached", host != "")
"""
    answer = run([interpreter_for(user), "-c", code], Path("/"), user)
    assert answer["errors"] == []
    assert answer["output"].splitlines() == [
        "('OSError', 'Network is unreachable', True)",
        "True",
        *["reached True"] * 4,
    ]
    assert answer["sentences"][1] == "The network is loopback alone."


def test_connections_are_refused_in_words_where_there_is_no_namespace(tmp_path: Path) -> None:
    code = """
import socket
from dryfit.rehearse.sandbox.refuse import install_as_told
install_as_told({"DRYFIT_SANDBOX": "network"})
with socket.create_server(("localhost", 0)) as server:
    socket.create_connection(server.getsockname()).close()
try:
    socket.create_connection(("198.51.100.1", 80))
except PermissionError as error:
    print(error.strerror)
"""
    finished = driver_process(None, [sys.executable, "-c", code])
    assert finished is not None
    assert finished.stdout.strip() == (
        "dryfit refused a connection to 198.51.100.1, for this is a rehearsal, in which all weights are garbage and no "
        "network but this machine's own; `dryfit run --allow-network` lets the program connect"
    )


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "{marker}"])
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


def running(marker: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\0" + marker.encode() + b"\0":
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_until(condition: Any, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


@pytest.fixture
def marker() -> str:
    return f"3600.{os.getpid()}{time.monotonic_ns()}"


@pytest.mark.parametrize("strongest", [pytest.param("layers", marks=needs_namespaces), "audit-hook"])
def test_a_daemon_ends_with_its_program(tmp_path: Path, marker: str, strongest: str) -> None:
    with in_process(DAEMON.format(marker=marker) + "time.sleep(0.3)", tmp_path, strongest=strongest) as keeper:
        assert wait_until(lambda: running(marker))
        assert keeper.protection().processes == ("namespace" if strongest == "layers" else "reaper")
        ended = keeper.wait(30)
    assert ended is not None and ended.exit_status == 0
    assert running(marker) == []


@pytest.mark.parametrize("strongest", [pytest.param("layers", marks=needs_namespaces), "audit-hook"])
def test_nothing_survives_a_killed_parent(tmp_path: Path, marker: str, strongest: str) -> None:
    for name in ("project", "temporary"):
        (tmp_path / name).mkdir()
    program = DAEMON.format(marker=marker) + "time.sleep(3600)"
    arguments = json.dumps(
        {"argv": [sys.executable, "-c", program], "cwd": f"{tmp_path}/project", "strongest": strongest}
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "TMPDIR": f"{tmp_path}/temporary"}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, arguments], env=environment)
    assert wait_until(lambda: running(marker))
    driver.kill()
    driver.wait()
    assert wait_until(lambda: not running(marker))
    assert wait_until(lambda: not any((tmp_path / "temporary").iterdir()))


@needs_namespaces
def test_nothing_survives_a_killed_keeper(tmp_path: Path, marker: str) -> None:
    with in_process(DAEMON.format(marker=marker) + "time.sleep(3600)", tmp_path) as keeper:
        assert wait_until(lambda: running(marker))
        os.kill(keeper.pid, signal.SIGKILL)
        ended = keeper.wait(10)
    assert ended is not None
    words = "ended by signal 9 before the program did; it was killed with it."
    assert ended.problem == f"The keeper process {keeper.pid} {words}"
    assert wait_until(lambda: not running(marker))
    assert wait_until(lambda: not Path(keeper.scratch).exists())


def test_stopping_runs_no_exit_handlers_and_leaves_nothing(tmp_path: Path, marker: str) -> None:
    code = "import atexit, signal; signal.signal(15, signal.SIG_IGN); atexit.register(print, 'handler', flush=True)\n"
    reading, writing = os.pipe()
    with in_process(code + DAEMON.format(marker=marker) + "time.sleep(3600)", tmp_path, stdout=writing) as keeper:
        os.close(writing)
        assert wait_until(lambda: running(marker))
        assert keeper.poll() is None
        assert len(keeper.processes()) == 2
        ended = keeper.stop()
    assert ended.stopped and ended.exit_status is None and ended.signal is None and ended.problem == ""
    assert running(marker) == []
    assert os.read(reading, 100) == b""
    os.close(reading)
    assert wait_until(lambda: not Path(keeper.scratch).exists())


@pytest.mark.parametrize("strongest", [pytest.param("layers", marks=needs_namespaces), "audit-hook"])
def test_exit_status_and_signal_are_the_programs(tmp_path: Path, strongest: str) -> None:
    with in_process("raise SystemExit(7)", tmp_path, strongest=strongest) as keeper:
        ended = keeper.wait()
    assert ended is not None and (ended.exit_status, ended.signal, ended.stopped) == (7, None, False)
    with in_process("import os; os.kill(os.getpid(), 11)", tmp_path, strongest=strongest) as keeper:
        ended = keeper.wait()
    assert ended is not None and (ended.exit_status, ended.signal) == (None, signal.SIGSEGV)


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with sandbox.start(["no such, program"], cwd=str(tmp_path), env={}) as keeper:
        ended = keeper.wait()
    assert ended is not None and ended.exit_status is None
    assert ended.problem == f"no such, program could not be started in {tmp_path}: No such file or directory."
    with sandbox.start(["true", "a\0b"], cwd=str(tmp_path), env={}) as keeper:
        ended = keeper.wait()
    assert ended is not None
    assert ended.problem == f"true could not be started in {tmp_path}: embedded null byte."


def test_standard_streams_arguments_and_environment_arrive(tmp_path: Path) -> None:
    code = 'cat; echo "$1|$ODD|$PWD"; echo "$TMPDIR" > "$TMPDIR/file"'
    argv = ["/bin/sh", "-c", code, "sh", "a b\n\"'é"]
    answer = run(argv, tmp_path, input="typed\n", environment={"ODD": "x" * 100_000})
    assert answer["output"] == f"typed\na b\n\"'é|{'x' * 100_000}|{tmp_path}\n"
    assert answer["exit_status"] == 0


def test_memory_of_forked_workers_counts_once(tmp_path: Path) -> None:
    size_bytes = 64 << 20
    workers = "[os.fork() or time.sleep(3600) for _ in range(3)]; time.sleep(3600)"
    code = f"import os, time; held = b'x' * {size_bytes}; {workers}"
    with in_process(code, tmp_path) as keeper:
        assert wait_until(lambda: len(keeper.processes()) == 4)
        assert size_bytes < keeper.resident_bytes() < 2 * size_bytes
        ended = keeper.stop()
    assert size_bytes < ended.peak_host_bytes < 2 * size_bytes


@needs_namespaces
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount what the test needs")
@pytest.mark.parametrize("program_user", [None, ORDINARY_USER], ids=["root", "ordinary user"])
def test_a_file_system_mounted_in_the_project_has_its_own_layer(tmp_path: Path, program_user: int | None) -> None:
    base = Path(tempfile.mkdtemp(prefix="dryfit_test", dir="/var/lib"))
    try:
        furnish(base)
        (base / "data").mkdir()
        if program_user is not None:
            for path in [base, *base.rglob("*")]:
                os.chown(path, program_user, program_user, follow_symlinks=False)
        python = interpreter_for(program_user)
        code = "cat data/a; echo new > data/a; echo new > model.pt; cat data/a model.pt"
        arguments = json.dumps({"argv": ["/bin/sh", "-c", code], "cwd": str(base)})
        owner = program_user or 0
        script = (
            f'mount -t tmpfs x "$1/data" -o mode=777 && echo old > "$1/data/a" && chown {owner}:{owner} "$1/data/a" && '
            f'setpriv --reuid {owner} --regid {owner} --clear-groups "$2" -c "$3" "$4" && cat "$1/data/a" "$1/model.pt"'
        )
        finished = driver_process(
            None, ["unshare", "-m", "sh", "-c", script, "sh", str(base), python, DRIVER, arguments]
        )
        assert finished is not None
        assert finished.stdout == "old\nnew\nnew\nold\nweights", finished
    finally:
        shutil.rmtree(base)


@needs_namespaces
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount what the test needs")
def test_where_temporary_folders_are_on_an_overlay_the_layer_is_in_memory(tmp_path: Path) -> None:
    """As in a container."""
    for name in ("lower/project", "upper", "work", "merged", "lower/temporary"):
        (tmp_path / name).mkdir(parents=True)
    furnish(tmp_path / "lower/project")
    before = snapshot(tmp_path / "lower")
    arguments = json.dumps({"argv": [sys.executable, "vandal.py"], "cwd": f"{tmp_path}/merged/project"})
    script = (
        'cd "$1" && mount -t overlay x merged -o lowerdir=lower,upperdir=upper,workdir=work && '
        'TMPDIR=$1/merged/temporary "$2" -c "$3" "$4"'
    )
    words = [str(tmp_path), sys.executable, DRIVER, arguments]
    finished = driver_process(None, ["unshare", "-m", "sh", "-c", script, "sh", *words])
    assert finished is not None
    answer = json.loads(finished.stderr.splitlines()[-1])
    assert answer["protection"]["writes"] == "memory-layers"
    assert any("cannot have a layer on disk" in sentence for sentence in answer["protection"]["failures"])
    assert {line.split(" ", 1)[1] for line in finished.stdout.splitlines()} == {"done"}
    assert snapshot(tmp_path / "lower") == before
    assert sorted(path.name for path in (tmp_path / "upper").rglob("*")) in ([], ["temporary"])


@needs_namespaces
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount what the test needs")
def test_where_no_proc_of_its_own_may_be_mounted_the_keeper_ends_the_processes(tmp_path: Path, marker: str) -> None:
    """As in a container whose /proc has masked files."""
    python = interpreter_for(ORDINARY_USER)
    arguments = json.dumps({"argv": [python, "-c", DAEMON.format(marker=marker)], "cwd": "/"})
    script = (
        "mount --bind /dev/null /proc/version && HOME=/nonexistent "
        f'setpriv --reuid {ORDINARY_USER} --regid {ORDINARY_USER} --clear-groups "$1" -c "$2" "$3"'
    )
    finished = driver_process(None, ["unshare", "-m", "sh", "-c", script, "sh", python, DRIVER, arguments])
    assert finished is not None
    answer = json.loads(finished.stderr.splitlines()[-1])
    assert answer["exit_status"] == 0
    assert answer["protection"]["writes"] in ("layers", "memory-layers")
    assert answer["protection"]["processes"] == "reaper"
    assert answer["protection"]["failures"] == ["No /proc of its own could be mounted (Operation not permitted)."]
    assert running(marker) == []


@needs_namespaces
@pytest.mark.skipif(not IS_ROOT, reason="only root can take away what the test needs taken away")
def test_where_namespaces_are_forbidden_the_next_best_is_in_force_and_says_why(tmp_path: Path) -> None:
    furnish(tmp_path)
    before = snapshot(tmp_path)
    arguments = json.dumps({"argv": [sys.executable, "vandal.py"], "cwd": str(tmp_path)})
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && setpriv --bounding-set=-all "$1" -c "$2" "$3"'
    words = ["unshare", "-Ur", "sh", "-c", script, "sh", sys.executable, DRIVER, arguments]
    finished = driver_process(None, words)
    assert finished is not None
    answer = json.loads(finished.stderr.splitlines()[-1])
    assert answer["protection"]["writes"] in ("landlock", "audit-hook")
    assert answer["protection"]["network"] == "audit-hook"
    failures = answer["protection"]["failures"]
    assert failures[0].startswith("No mount namespace could be made (Operation not permitted); a container needs")
    assert failures[1].startswith("No user namespace could be made (No space left on device); of the sysctls")
    assert failures[-1].startswith("No network namespace could be made (Operation not permitted); connections are")
    assert snapshot(tmp_path) == before


def test_probe_says_what_works_here() -> None:
    (writes, strong, sentence), network, processes, *failures = sandbox.probe()
    assert (writes, network[0], processes[0]) == ("writes", "network", "processes")
    assert sentence.startswith(("What the program writes", "Writes outside temporary folders"))
    assert strong is not sentence.startswith("Writes outside temporary folders are refused in Python only")
    assert all(subject == "sandbox" and not works for subject, works, _ in failures)


def test_scratch_folders_of_killed_rehearsals_are_swept(tmp_path: Path) -> None:
    used, lock = scratch.make(str(tmp_path))
    abandoned, other_lock = scratch.make(str(tmp_path))
    os.close(other_lock)
    Path(abandoned, "layers/locked").mkdir(mode=0o000)
    (tmp_path / "dryfit-notes").mkdir()
    scratch.sweep(str(tmp_path))
    os.close(lock)
    assert sorted(tmp_path.iterdir()) == sorted([Path(used), tmp_path / "dryfit-notes"])


def test_a_folder_of_the_users_that_is_named_like_ours_is_not_swept(tmp_path: Path) -> None:
    for name in ("dryfit-main", "dryfit-0123456789abcdef", "dryfit-0123456789ab-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    scratch.sweep(str(tmp_path))
    assert len(list(tmp_path.glob("*/lock"))) == 3


def test_a_scratch_folder_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_file, swept = fcntl.flock, []

    def flock(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not swept:
            swept.extend(tmp_path.iterdir())
            scratch.sweep(str(tmp_path))
        lock_file(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    folder, lock = scratch.make(str(tmp_path))
    scratch.sweep(str(tmp_path))
    os.close(lock)
    assert len(swept) == 1 and [Path(folder)] == list(tmp_path.iterdir()) != swept
    assert sorted(path.name for path in Path(folder).iterdir()) == ["layers", "lock", "root", "temporary"]


def test_scratch_folders_made_and_swept_at_once_stay_whole(tmp_path: Path) -> None:
    code = """
import os, sys
from dryfit.rehearse.sandbox import scratch
for _ in range(200):
    scratch.sweep(sys.argv[1])
    folder, lock = scratch.make(sys.argv[1])
    assert sorted(os.listdir(folder)) == ["layers", "lock", "root", "temporary"], os.listdir(folder)
    scratch.remove(folder)
    os.close(lock)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    started = [
        subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(SOURCE)}, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert list(tmp_path.iterdir()) == []


def test_many_rehearsals_at_once_do_not_disturb_one_another(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("weights")

    has_layers = _has_namespaces()
    deed = "path.write_text('{0}'); assert path.read_text() == '{0}'" if has_layers else "path.read_text()"

    def rehearse(number: int) -> tuple[int | None, str]:
        code = "from pathlib import Path; path = Path('model.pt'); " + deed.format(number)
        with in_process(code, tmp_path) as keeper:
            ended = keeper.wait()
        assert ended is not None
        return ended.exit_status, keeper.scratch

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(rehearse, range(24)))
    assert [status for status, _ in answers] == [0] * 24
    assert len({folder for _, folder in answers}) == 24
    assert wait_until(lambda: not any(Path(folder).exists() for _, folder in answers))
    assert (tmp_path / "model.pt").read_text() == "weights"


@needs_namespaces
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount what the test needs")
@pytest.mark.parametrize("limit", ["nr_inodes=3", "size=2m"])
def test_a_full_temporary_disk_is_said_in_a_sentence(tmp_path: Path, limit: str) -> None:
    for name in ("project", "temporary"):
        (tmp_path / name).mkdir()
    code = "open('model.pt', 'wb').write(bytes(4 << 20))"
    arguments = json.dumps({"argv": [sys.executable, "-c", code], "cwd": f"{tmp_path}/project"})
    script = 'mount -t tmpfs -o "$1" dryfit "$2" && TMPDIR=$2 "$3" -c "$4" "$5"'
    words = [limit, f"{tmp_path}/temporary", sys.executable, DRIVER, arguments]
    finished = driver_process(None, ["unshare", "-m", "sh", "-c", script, "sh", *words])
    assert finished is not None
    last = finished.stderr.splitlines()[-1]
    if limit.startswith("nr_inodes"):
        assert last == (
            "dryfit.errors.UsageError: No scratch folder for what the program writes could be made in "
            f"{tmp_path}/temporary (No space left on device). "
            "Make room there, or set TMPDIR to another folder, on a disk that has some."
        )
    else:
        answer = json.loads(last)
        assert answer["exit_status"] == 1
        assert answer["no_room"] == (
            f"The disk of {tmp_path}/temporary, which what the program writes goes to, was full when the program "
            "ended. Make room there, or set TMPDIR to a folder on a disk that has some."
        )


@needs_namespaces
def test_a_full_layer_in_memory_is_said_in_a_sentence(tmp_path: Path) -> None:
    code = "open('model.pt', 'wb').write(bytes({}))"
    found = []
    for size_bytes in (1 << 20, 16 << 20):
        options = {"strongest": "memory-layers", "memory_bytes": 8 << 20}
        with in_process(code.format(size_bytes), tmp_path, stderr=subprocess.DEVNULL, **options) as keeper:
            ended = keeper.wait()
        assert ended is not None
        found.append((ended.exit_status, ended.no_room))
    assert found == [
        (0, ""),
        (
            1,
            "What the program wrote filled the layer in memory that it went to, which holds 8.00 MiB. "
            "Set TMPDIR to a folder on a local disk: the layer then lies there.",
        ),
    ]


BROKEN_KEEPER = """
import os, signal, sys
sys.path.insert(0, {source!r})
from dryfit.rehearse.sandbox import begin, keeper

def refuse(*arguments):
    {deed}

begin._hooks = refuse
keeper.main(*map(int, sys.argv[1:4]))
"""


@pytest.mark.parametrize(("deed", "sentence"), [
    ("raise begin.Refused('fault', 'This kernel is a teapot.')", "This kernel is a teapot."),
    ("os.kill(os.getpid(), signal.SIGSYS)",
     f"audit-hook could not be set up: the process that did it ended by signal {int(signal.SIGSYS)}."),
])  # fmt: skip
def test_where_every_way_is_refused_the_reasons_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, sentence: str
) -> None:
    (tmp_path / "keeper.py").write_text(BROKEN_KEEPER.format(source=str(SOURCE), deed=deed))
    monkeypatch.setattr(client, "_KEEPER", str(tmp_path / "keeper.py"))
    with sandbox.start(["true"], cwd=str(tmp_path), env={}, strongest="audit-hook") as keeper:
        with pytest.raises(DryfitError) as raised:
            keeper.protection()
        ended = keeper.wait()
    assert str(raised.value) == f"The program could not be started in any sandbox. {sentence}"
    assert ended is not None and (ended.problem, ended.signal, ended.exit_status) == (str(raised.value), None, None)


def test_a_person_is_warned_of_less_than_layers_and_loopback_alone() -> None:
    full = {"writes": "layers", "network": "loopback", "processes": "namespace"}
    assert sandbox.Protection(**full).warnings() == ()
    assert sandbox.Protection(**full | {"writes": "allowed", "network": "allowed"}).warnings() == ()
    assert sandbox.Protection(**full, read_only=("/mnt", "/srv"), failures=("No luck.",)).warnings() == (
        "Writes are refused in /mnt, /srv.",
        "No luck.",
    )
    weak = sandbox.Protection(writes="audit-hook", network="audit-hook", processes="reaper", failures=("No luck.",))
    assert weak.warnings() == (*weak.sentences(), "No luck.")
    in_memory = sandbox.Protection(**full | {"writes": "memory-layers"}, read_only=("/mnt",))
    assert in_memory.warnings() == (
        "What the program writes goes to a layer in memory that is thrown away. Writes are refused in /mnt.",
    )


def test_plan_keeps_temporary_folders_real_but_not_the_project_in_one() -> None:
    steps = plan(
        ["/", "/proc", "/dev/shm", "/home", "/tmp"], ["/tmp", "/var/tmp"],
        ["/tmp/a/project", "/home/me"], ["/home/me/results"], "/tmp/dryfit-1",
    )  # fmt: skip
    assert steps == {
        "/home": "cover", "/tmp": "real", "/var/tmp": "real", "/tmp/a": "cover", "/home/me/results": "real",
    }  # fmt: skip


def test_plan_protects_beside_a_scratch_folder_and_a_temporary_folder_that_is_the_project() -> None:
    beside = plan(["/"], ["/tmp"], ["/tmp/a/project"], [], "/tmp/a/temporary/dryfit-1")
    assert beside == {"/tmp": "real", "/tmp/a/project": "cover"}
    assert plan(["/"], ["/tmp", "/var/tmp"], ["/tmp"], [], "/var/tmp/dryfit-1") == {"/var/tmp": "real"}


def test_plan_makes_a_crowded_folder_read_only_but_for_the_project() -> None:
    steps = plan(["/", *(f"/home/{number}" for number in range(100))], [], ["/home/7/project"], [], "/tmp/dryfit-1")
    assert steps == {"/home": "read-only", "/home/7/project": "cover"}


def test_the_machines_name_leads_to_an_address_that_lo_can_have() -> None:
    name = socket.gethostname()
    assert host_name_in(f"127.0.1.1 {name}\n") == ([], f"127.0.1.1 {name}\n")
    text = f"# {name}\n10.1.2.3 x {name} # y\n"
    assert host_name_in(text) == ([bytes([10, 1, 2, 3])], text)
    assert host_name_in("127.0.0.1 localhost\n") == ([], f"127.0.0.1 localhost\n127.0.0.1 {name}\n")


def test_descendants_are_found_with_and_without_the_kernels_list_of_children() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 3600 & echo; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        found = processes.descendants(os.getpid())
        assert shell.pid in found and len(processes.descendants(shell.pid)) == 1
        assert processes._descendants_by_parent(shell.pid) == processes.descendants(shell.pid)
        for pid in [*processes.descendants(shell.pid), shell.pid]:
            os.kill(pid, signal.SIGKILL)

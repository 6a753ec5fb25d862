"""Warm rehearsals: the same answers as cold ones, each from a fresh start, whatever the one before has done."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dryfit.rehearse.launch import rehearse
from dryfit.rehearse.result import Result
from dryfit.rehearse.warm import WarmRehearsals, warm_rehearsals

CARD = "sm=80,sms=108,memory=40GiB"

# Looks at all that a fresh start has and a used process may not; leaves behind whatever it can; trains.
PROGRAM = """
    import os, sys, json, warnings
    import torch
    from torch import nn

    OF_ONE_REHEARSAL = ("TMPDIR", "TEMP", "TMP", "DRYFIT_REHEARSAL", "DRYFIT_CUDNN_SOCKET")

    def is_new(path):
        found = os.path.exists(path)
        open(path, "w").close()
        return not found

    facts = dict(
        looks=__import__("dryfit.virtual_card.calls", fromlist=["calls"]).looks_at_card(),
        argv=sys.argv, orig_argv=sys.orig_argv, path=sys.path, file=__file__, names=sorted(globals()),
        is_main=sys.modules["__main__"].__dict__ is globals(), cwd=os.getcwd(),
        environment={k: v for k, v in os.environ.items() if k not in OF_ONE_REHEARSAL},
        descriptors=len(os.listdir("/proc/self/fd")), filters=[str(f) for f in warnings.filters],
        seed=torch.initial_seed(), threads=torch.get_num_threads(), flags=str(sys.flags), processes=os.getpid(),
        is_leader=os.getsid(0) == os.getpid(), card=torch.cuda.get_device_name(),
        new=[is_new(path) for path in ("checkpoint.pt", "/dev/shm/left", os.environ["TMPDIR"] + "/left",
                                       os.path.expanduser("~/left"))],
    )
    temporary = __import__("tempfile").gettempdir() == os.environ["TMPDIR"]
    del facts["environment"]["DRYFIT_WRITABLE"]
    print("facts", json.dumps(facts | {"temporary": temporary}))
    if os.fork() == 0:
        os.setsid()
        __import__("time").sleep(60)
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100):
        model(torch.randn(int(sys.argv[1]), 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if sys.argv[2:] == ["kill"] and step == 1:
            os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    (made / "train.py").write_text(textwrap.dedent(PROGRAM))
    return made


@pytest.fixture(scope="module")
def warm(folder: Path) -> Iterator[WarmRehearsals]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with warm_rehearsals(["train.py"], gpu=CARD) as rehearse_one:
            rehearse_one(["train.py", "8"], quiet=True)  # teaches it what to import
            yield rehearse_one
            assert rehearse_one.why_cold == ""


def facts(text: str) -> dict[str, Any]:
    line = next(line for line in text.splitlines() if line.startswith("facts "))
    found: dict[str, Any] = json.loads(line.removeprefix("facts "))
    return found


def alike(result: Result) -> dict[str, Any]:
    """A result without what no two runs share."""
    peaks = [dataclasses.replace(peak, seconds=None) for peak in result.step_peaks]
    return json.loads(dataclasses.replace(result, wall_seconds=0, step_peaks=peaks).to_json())  # type: ignore[no-any-return]


def test_a_warm_rehearsal_is_a_fresh_start_and_finds_what_a_cold_one_finds(
    warm: WarmRehearsals, capfd: pytest.CaptureFixture[str]
) -> None:
    found = warm(["train.py", "64"], gpu="l4")
    after_warm = facts(capfd.readouterr().err)
    assert alike(found) == alike(rehearse(["train.py", "64"], gpu="l4"))
    cold = facts(capfd.readouterr().err)
    assert after_warm.pop("seed") != cold.pop("seed")
    assert set(cold.pop("filters")) <= set(after_warm.pop("filters"))  # modules that come later have some, too
    assert after_warm == cold
    assert after_warm["looks"] == 0  # torch and its hooks have not, so that one server imports it for all cards
    assert after_warm["new"] == [True] * 4
    assert after_warm["card"] == "NVIDIA L4"


def test_several_at_once_with_their_own_ends_and_limits(warm: WarmRehearsals, folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        asked: list[tuple[list[str], dict[str, Any]]] = [
            (["train.py", "64"], {}),
            (["train.py", "64", "kill"], {}),
            (["train.py", "4000000"], {}),
            (["train.py", "64"], {"steps": "all", "seconds": 0.3, "figures_only": True}),
        ]
        results = list(pool.map(lambda each: warm(each[0], **each[1], quiet=True), asked))
    assert [result.ending.how for result in results] == ["steady", "crashed", "out of memory", "time limit"]
    assert results[1].ending.signal == 9
    assert results[2].verdict == "does not fit"
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]


def test_what_the_program_sets_before_its_imports_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
        import os, sys
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = sys.argv[1]
        import torch
        x = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(program))
    monkeypatch.chdir(tmp_path)
    rounded, async_pool = ["train.py", "roundup_power2_divisions:2"], ["train.py", "backend:cudaMallocAsync"]
    with warm_rehearsals(["train.py"], gpu=CARD, quiet=True) as rehearse_one:
        found = [rehearse_one(rounded), rehearse_one(rounded)]
        assert rehearse_one.why_cold == ""
        found.append(rehearse_one(async_pool))
        assert rehearse_one.why_cold == "the program sets PYTORCH_CUDA_ALLOC_CONF, which its imports read"
    assert [result.peak_allocated_bytes for result in found] == [6 << 20, 6 << 20, 5 << 20]
    assert [result.allocator_settings["backend"] for result in found] == ["native", "native", "cudaMallocAsync"]


def test_a_command_is_rehearsed_cold() -> None:
    with warm_rehearsals(["torchrun", "train.py"]) as rehearse_one:
        assert rehearse_one.why_cold == "a command starts its Python processes itself"


# bitsandbytes looks at the card when it is imported: from the process that has done so, CUDA is initialised.
LOOKS_EARLY = """
    import os, sys, json
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[2]
    import torch
    from torch import nn
    import bitsandbytes

    facts = dict(
        cards=torch.cuda.device_count(), is_initialized=torch.cuda.is_initialized(), environment=dict(os.environ),
        properties=str(torch.cuda.get_device_properties(0)), memory=torch.cuda.mem_get_info(),
        is_bad_fork=torch.cuda._is_in_bad_fork(), seed=torch.cuda.initial_seed(),
    )
    for name in ("TMPDIR", "TEMP", "TMP", "DRYFIT_REHEARSAL", "DRYFIT_WRITABLE", "DRYFIT_CUDNN_SOCKET"):
        del facts["environment"][name]
    if os.fork() == 0:
        try:
            torch.zeros(1, device="cuda")
        except RuntimeError:
            os._exit(1)
        os._exit(0)
    print("facts", json.dumps(facts | {"fork": os.waitstatus_to_exitcode(os.wait()[1])}))
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
    for step in range(100):
        model(torch.randn(int(sys.argv[1]), 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_imports_that_look_at_the_card_are_had_once_for_each_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    (tmp_path / "train.py").write_text(textwrap.dedent(LOOKS_EARLY))
    monkeypatch.chdir(tmp_path)
    with warm_rehearsals(["train.py"], gpu=CARD) as rehearse_one:
        rehearse_one(["train.py", "8", "0"], quiet=True)  # teaches it what to import
        capfd.readouterr()
        found = rehearse_one(["train.py", "64", "0"], gpu="l4")
        after_warm = facts(capfd.readouterr().err)
        rehearse_one(
            ["train.py", "8", ""], gpu="l4"
        )  # the card was looked at with other cards visible, so not from there
        assert rehearse_one.why_cold == ""
        assert "No CUDA GPUs are available" in capfd.readouterr().err
    assert alike(found) == alike(rehearse(["train.py", "64", "0"], gpu="l4"))
    cold = facts(capfd.readouterr().err)
    assert after_warm.pop("seed") != cold.pop("seed")
    assert after_warm == cold
    assert (cold["is_initialized"], cold["is_bad_fork"], cold["fork"]) == (True, False, 1)


def test_imports_that_look_at_the_card_are_had_once_for_each_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    (tmp_path / "train.py").write_text(textwrap.dedent(LOOKS_EARLY))
    monkeypatch.chdir(tmp_path)
    words = ["train.py", "8", "0,1,2,3"]
    seen = {}
    with warm_rehearsals(["train.py"], gpu=CARD) as rehearse_one:
        rehearse_one(words, quiet=True, world=2)  # teaches it what to import
        capfd.readouterr()
        for world, ranks in ((4, "last"), (2, "0"), (4, "0")):
            result = rehearse_one(words, world=world, ranks=ranks)
            seen[world, ranks] = (alike(result), facts(capfd.readouterr().err))
        assert rehearse_one.why_cold == ""
    told = {key: (found["environment"]["WORLD_SIZE"], found["environment"]["RANK"]) for key, (_, found) in seen.items()}
    assert told == {(4, "last"): ("4", "3"), (2, "0"): ("2", "0"), (4, "0"): ("4", "0")}
    found, after_warm = seen[4, "last"]
    assert found == alike(rehearse(words, gpu=CARD, world=4, ranks="last"))
    cold = facts(capfd.readouterr().err)
    assert after_warm.pop("seed") != cold.pop("seed")
    assert after_warm == cold

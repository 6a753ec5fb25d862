"""The main job: figures, steps, phases and the stop, on small programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MLP = """
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        loss = model(torch.randn(512, 1024, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("own peaks", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""


def mlp(steps: int = 100) -> str:
    return MLP.replace("STEPS", str(steps))


def own_peaks(stderr: str) -> list[int]:
    """What the program itself printed as its peaks."""
    found = re.search(r"own peaks (\d+) (\d+)", stderr)
    assert found, stderr
    return [int(found[1]), int(found[2])]


def test_a_training_loop_is_stopped_when_its_peak_is_steady(rehearse: Any) -> None:
    done = rehearse(mlp())
    assert done.code == 0, done.stderr
    result = done.result
    assert result["verdict"] == "fits"
    assert result["ending"]["how"] == "steady"
    assert result["ending"]["sentence"] == "Stopped after 3 optimiser steps, with the peak unchanged for the last two."
    assert result["steps"] == 3
    assert [peak["step"] for peak in result["step_peaks"]] == [0, 1, 2, 3]
    assert (result["peak_step"], result["peak_phase"]) == (1, "optimizer step")
    assert result["out_of_memory"] is None
    assert result["unknowns"] == []


def test_the_figures_are_the_allocators_own(rehearse: Any) -> None:
    done = rehearse(mlp(5), options=("--steps", "all"))
    assert done.result["ending"]["sentence"] == "train.py ran to its end in 5 optimiser steps."
    assert own_peaks(done.stderr) == [done.result["peak_allocated_bytes"], done.result["peak_reserved_bytes"]]


def test_a_program_sees_the_peaks_it_would_see_without_us(rehearse: Any, project: Path) -> None:
    program = """
        import torch
        %s
        x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda"); del x
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        seen = []
        for step in range(4):
            model(torch.randn(256 * (4 - step), 1024, device="cuda")).sum().backward()
            optimizer.step()
            seen.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
            if step == 1:
                torch.cuda.reset_peak_memory_stats()
            stats = torch.cuda.memory_stats()
            seen.append([stats[name] for name in sorted(stats) if name.endswith("peak")])
        print("seen", seen)
    """
    done = rehearse(program % "", options=("--steps", "all", "--no-values"))
    bare = project / "bare.py"
    bare.write_text("import dryfit; dryfit.virtual('sm=80,sms=108,memory=40GiB')\n" + _dedent(program % ""))
    alone = subprocess.run([sys.executable, str(bare)], capture_output=True, text=True, check=True)
    assert re.findall("seen .*", done.stderr) == re.findall("seen .*", alone.stdout)
    assert done.result["peak_allocated_bytes"] >= 64 << 20  # ours spans the program's own reset


def test_peaks_by_phase_are_where_they_belong(rehearse: Any) -> None:
    program = """
        import torch
        model = torch.nn.Linear(16, 16).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            loss = model(torch.ones(16, 16, device="cuda")).sum()
            if step == 2:
                torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
            loss.backward()
            if step == 3:
                torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
            optimizer.step()
    """
    peaks = rehearse(program, options=("--steps", "all")).result["step_peaks"]
    assert [(peak["step"], peak["peak_phase"]) for peak in peaks[3:5]] == [(3, "forward"), (4, "after backward")]


@pytest.mark.parametrize(("option", "steps"), [("1", 1), ("all", 9)])
def test_steps_are_followed(rehearse: Any, option: str, steps: int) -> None:
    assert rehearse(mlp(9), options=("--steps", option)).result["steps"] == steps


def test_what_the_program_sets_before_it_imports_torch_counts(rehearse: Any) -> None:
    settings = 'import os; os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"\n'
    program = settings + _dedent(mlp(4))
    done = rehearse(program)
    assert done.result["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    plain = rehearse(mlp(4))
    assert plain.result["allocator_settings"] == {"backend": "native"}
    assert done.result["peak_reserved_bytes"] != plain.result["peak_reserved_bytes"]


TWO_OPTIMISERS = """
    import torch
    a, b = torch.nn.Linear(2048, 2048).cuda(), torch.nn.Linear(2048, 2048).cuda()
    optimizers = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.AdamW(b.parameters())
    for _ in range(3):
        b(a(torch.ones(8, 2048, device="cuda"))).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
"""
IN_BACKWARD = """
    import torch
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
    optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}
    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        model(torch.ones(8, 1024, device="cuda")).sum().backward()
"""


@pytest.mark.parametrize("program", [TWO_OPTIMISERS, IN_BACKWARD], ids=["two", "in-backward"])
def test_a_step_is_over_when_all_optimisers_have_stepped(rehearse: Any, program: str) -> None:
    one = rehearse(program, options=("--steps", "1")).result
    all_of_them = rehearse(program, options=("--steps", "all")).result
    assert (one["steps"], all_of_them["steps"]) == (1, 3)
    assert one["peak_allocated_bytes"] == all_of_them["step_peaks"][1]["peak_allocated_bytes"]


def test_an_optimiser_that_takes_no_part_does_not_hold_a_step_up(rehearse: Any) -> None:
    program = """
        import torch
        a, b = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 8).cuda()
        often, seldom = torch.optim.Adam(a.parameters()), torch.optim.Adam(b.parameters())
        for step in range(6):
            b(a(torch.ones(8, 8, device="cuda"))).sum().backward()
            often.step()
            if step == 4:
                seldom.step()
    """
    assert rehearse(program, options=("--steps", "all")).result["steps"] == 6


def test_an_optimiser_that_steps_seldom_is_waited_for(rehearse: Any) -> None:
    program = """
        import torch
        critic, generator = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(2048, 64).cuda()
        of_critic, of_generator = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
        for i in range(60):
            with torch.no_grad():
                fake = generator(torch.ones(8, 2048, device="cuda"))
            critic(fake).sum().backward()
            of_critic.step()
            if i % 5 == 4:
                critic(generator(torch.ones(8, 2048, device="cuda"))).sum().backward()
                of_generator.step()
    """
    stopped, whole = rehearse(program).result, rehearse(program, options=("--steps", "all")).result
    assert 5 <= stopped["steps"] < 20
    assert stopped["peak_allocated_bytes"] == whole["peak_allocated_bytes"]


def test_a_scaler_a_scheduler_and_a_closure_still_count_once(rehearse: Any) -> None:
    program = """
        import torch
        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.randn(8, 64, device="cuda")).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
        print("scale", scaler.get_scale())

        lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=2)
        def closure():
            lbfgs.zero_grad()
            loss = model(torch.randn(8, 64, device="cuda")).square().sum()
            loss.backward()
            return loss
        for _ in range(5):
            lbfgs.step(closure)
    """
    done = rehearse(program, options=("--steps", "all"))
    assert done.result["steps"] == 8, done.stderr
    assert "scale 65536.0" in done.stderr
    assert "lr_scheduler.step()" not in done.stderr  # its warning that optimizer.step was replaced


def test_evaluation_without_steps_is_measured_to_its_end(rehearse: Any) -> None:
    program = """
        import torch
        model = torch.nn.Linear(1024, 1024).cuda().eval()
        with torch.no_grad():
            for _ in range(3):
                model(torch.randn(4096, 1024, device="cuda"))
    """
    result = rehearse(program).result
    assert result["steps"] == 0
    assert result["peak_phase"] == "evaluation"
    assert result["verdict"] == "fits"
    assert result["ending"]["sentence"] == "train.py ran to its end without an optimiser step."


def test_without_a_card_the_answer_is_the_need_and_the_cards_that_hold_it(rehearse: Any) -> None:
    program = """
        import torch
        model = torch.nn.Linear(32, 32).cuda()
        torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
    """
    done = rehearse(program, gpu=None)
    assert done.code == 0
    assert done.result["card"] is None
    assert "rtx-4090" in done.result["fits_on"]
    assert "t4" in done.result["does_not_fit_on"]
    assert "h200" in done.result["fits_on"]
    assert done.stdout.startswith("NEEDS 20.00 GiB reserved by PyTorch; fits on ")


def test_a_size_alone_is_an_a100s_chip_with_so_much(rehearse: Any) -> None:
    done = rehearse(mlp(), gpu=None, options=("--memory", "24GiB"))
    assert (done.code, done.result["verdict"]) == (0, "fits")
    assert done.result["card"]["sm"] == 80
    assert done.result["card"]["total_bytes"] == 24 << 30
    assert done.result["usable_bytes"] < 24 << 30


def test_the_environment_names_the_card(rehearse: Any) -> None:
    done = rehearse(mlp(), gpu=None, environment={"DRYFIT_GPU": "rtx-4090"})
    assert done.result["card"]["key"] == "rtx-4090"


def test_the_verdict_is_the_first_line(rehearse: Any) -> None:
    done = rehearse(mlp(), gpu="rtx-4090")
    first = done.stdout.splitlines()[0]
    assert re.fullmatch(r"FITS on NVIDIA GeForce RTX 4090: needs [\d.]+ MiB of [\d.]+ GiB, [\d.]+ GiB to spare", first)
    for line in ("allocated by tensors", "reserved by PyTorch", "nvidia-smi would show", "the card has"):
        assert line in done.stdout


def test_json_is_printed_and_saved_alike(rehearse: Any) -> None:
    done = rehearse(mlp(), options=("--json",))
    assert json.loads(done.stdout) == done.result
    assert done.result["schema_version"] == 1


def test_what_the_program_prints_goes_to_stderr_or_nowhere(rehearse: Any) -> None:
    program = "print('to stdout'); import torch; torch.ones(1, device='cuda')"
    assert "to stdout" in rehearse(program).stderr
    assert "to stdout" not in rehearse(program, options=("--quiet",)).stderr


def test_hooks_follow_into_child_processes(rehearse: Any, project: Path) -> None:
    (project / "train.py").write_text(_dedent(mlp()))
    for words in (["python", "train.py"], ["-m", "train"], ["sh", "-c", f"{sys.executable} train.py"]):
        done = rehearse(words)
        assert done.result["steps"] == 3, (words, done.stderr)
        assert done.code == 0


def test_torchrun_with_one_and_two_processes(rehearse: Any, project: Path) -> None:
    (project / "train.py").write_text(
        _dedent("""
        import os, torch
        import torch.distributed as dist
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(10):
            model(torch.randn(64, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """)
    )
    for processes in (1, 2):
        done = rehearse(["torchrun", "--nproc-per-node", str(processes), "train.py"])
        assert done.code == 0, done.stderr
        assert done.result["steps"] == 3
        assert len(done.result["processes"]) == processes
        assert [u["what"] for u in done.result["unknowns"] if u["kind"] == "memory"] == []
        (nccl,) = [part for part in done.result["total_parts"] if part["what"] == "NCCL's buffers"]
        assert (nccl["expected_bytes"] > 100 << 20) == (processes > 1)  # one rank alone loads NCCL's kernels only


FORKED = """
    import multiprocessing, torch

    def train():
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(STEPS):
            model(torch.ones(8, 1024, device="cuda")).sum().backward()
            optimizer.step()

    worker = multiprocessing.get_context("fork").Process(target=train)
    worker.start()
    worker.join()
"""


@pytest.mark.parametrize("steps", [2, 50])
def test_training_in_a_forked_process_is_measured(rehearse: Any, steps: int) -> None:
    done = rehearse(FORKED.replace("STEPS", str(steps)))
    assert done.code == 0, done.stderr
    assert done.result["steps"] == min(steps, 4)
    assert len(done.result["processes"]) == 1
    assert done.result["peak_reserved_bytes"] > 0


def test_two_programs_on_one_card_are_both_seen_to_their_end(rehearse: Any, project: Path) -> None:
    body = """
        import sys, time, torch
        time.sleep(float(sys.argv[1]))
        model = torch.nn.Linear(1024, int(sys.argv[2])).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(50):
            model(torch.ones(8, 1024, device="cuda")).sum().backward()
            optimizer.step()
    """
    (project / "train.py").write_text(_dedent(body))
    python = sys.executable
    done = rehearse(["sh", "-c", f"{python} train.py 0 1024 & {python} train.py 4 65536; wait"])
    assert done.code == 0, done.stderr
    assert [process["steps"] for process in done.result["processes"]] == [4, 4]
    assert done.result["peak_reserved_bytes"] > 256 << 20
    assert done.result["peak_total_bytes"] > sum(p["peak_used_bytes"] for p in done.result["processes"])


def test_the_hooks_do_not_change_one_event_of_the_allocator(rehearse: Any, project: Path) -> None:
    # No autocast: its copies are freed by the thread of autograd or the program, whichever is first, hooked or not.
    program = """
        import torch
        from torch.utils.checkpoint import checkpoint
        torch.cuda.memory._record_memory_history()
        model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        def train():
            for micro in range(4):
                x = torch.randn(64, 256, device="cuda", requires_grad=True)
                (model(x) + checkpoint(model, x, use_reentrant=micro < 2)).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                kept.append(model(x))
        kept = []
        for _ in range(8):  # what grows is found, and looked at in every step
            train()
        snapshot = torch.cuda.memory._snapshot()
        low = min(segment["address"] for segment in snapshot["segments"])
        events = snapshot["device_traces"][0]
        print("events", [(event["action"], event["size"], event["addr"] - low) for event in events])
    """
    done = rehearse(program, options=("--steps", "all"))
    bare = project / "bare.py"
    bare.write_text("import dryfit; dryfit.virtual('sm=80,sms=108,memory=40GiB')\n" + _dedent(program))
    alone = subprocess.run([sys.executable, str(bare)], capture_output=True, text=True, check=True)
    ours, theirs = re.findall("events .*", done.stderr), re.findall("events .*", alone.stdout)
    assert len(ours[0]) > 1000
    assert ours == theirs


def test_from_python(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dryfit

    (project / "train.py").write_text(_dedent(mlp()))
    monkeypatch.chdir(project)
    result = dryfit.run(["train.py"], gpu="rtx-4090", quiet=True)
    assert result.verdict == "fits"
    assert result.steps == 3
    assert isinstance(result, dryfit.Result)


_dedent: Callable[[str], str] = __import__("textwrap").dedent

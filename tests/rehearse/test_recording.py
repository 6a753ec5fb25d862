"""What a rehearsal records: the allocator's events as they were, marks and labels in their places, module paths."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dryfit.errors import UsageError
from dryfit.recording import model
from dryfit.recording.file import load
from dryfit.recording.model import DeviceTrace, Label, Recording
from dryfit.recording.replay import replay
from dryfit.rehearse.result import Result

PROGRAM = """
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    from torch.utils.data import DataLoader

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

        def forward(self, x):
            return x + self.down(torch.relu(self.up(x)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain, self.again = Block(), Block()
            self.register_buffer("scale", torch.ones(4096))
            self.head = nn.Linear(256, 4000)

        def forward(self, x):
            x = checkpoint(self.again, self.plain(x), use_reentrant=False)
            return self.head(x * self.scale[0])

    model, loss_of = Model().cuda(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters())
    data = DataLoader([(torch.randn(256), 1) for _ in range(2048)], batch_size=512)
    for x, y in data:
        x, y = x.cuda(), y.cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(x)
            loss = loss_of(logits, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print("peaks", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""


@dataclass(frozen=True)
class Recorded:
    """One rehearsal of PROGRAM: its result, its recording and its one card's trace."""

    result: Result
    recording: Recording
    trace: DeviceTrace

    def labels(self, owner: str) -> dict[str, Label]:
        return {label.name: label for label in self.trace.labels if label.owner == owner}

    def stack_of(self, label: Label) -> list[Any]:
        return self.recording.stacks.frames(self.trace.events.stack[label.event])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-m", "dryfit", "run", "--gpu", "sm=80,sms=108,memory=40GiB", "--steps", "all"]
    command += ["-o", "result.json", "--record", "run.dryfit", "--report", "page.html", "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "page.html").stat().st_size > 10_000
    recording = load(folder / "run.dryfit")
    return Recorded(Result.load(folder / "result.json"), recording, recording.devices[0])


def test_the_replay_of_the_recording_has_the_peaks_of_the_run(recorded: Recorded) -> None:
    replayed = replay(recorded.trace)
    assert max(replayed.allocated_bytes) == recorded.result.peak_allocated_bytes
    assert max(replayed.reserved_bytes) == recorded.result.peak_reserved_bytes
    assert replayed.end_error_bytes == 0
    assert recorded.trace.starts_empty


def test_the_result_has_the_footprint(recorded: Recorded) -> None:
    footprint = recorded.result.footprint
    assert footprint is not None
    assert sum(owner.size_bytes for owner in footprint.peak.owners) == recorded.result.peak_allocated_bytes
    assert recorded.recording.about["program"] == ["train.py"]
    assert recorded.recording.about["ending"] == "finished"


def test_parameters_gradients_and_states_are_labelled_by_name(recorded: Recorded) -> None:
    parameters = recorded.labels(model.PARAMETER)
    assert len(parameters) == 10
    assert (parameters["plain.up.weight"].dtype, parameters["plain.up.weight"].shape) == ("float32", (1024, 256))
    assert set(recorded.labels(model.GRADIENT)) == set(parameters)
    states = recorded.labels(model.OPTIMIZER_STATE)
    assert set(states) == {f"{key} of {name}" for name in parameters for key in ("exp_avg", "exp_avg_sq")}
    assert recorded.labels(model.BUFFER)["scale"].shape == (4096,)


def test_every_step_has_gradients_of_its_own_and_the_first_makes_the_states(recorded: Recorded) -> None:
    of_one = [label for label in recorded.trace.labels if label.owner == model.GRADIENT and label.name == "head.weight"]
    assert len({label.event for label in of_one}) == 4
    of_one = [label for label in recorded.trace.labels if label.name == "exp_avg of head.weight"]
    assert len({label.event for label in of_one}) == 1


def test_inputs_are_what_the_model_was_given(recorded: Recorded) -> None:
    shapes = {label.shape for label in recorded.trace.labels if label.owner == model.INPUT}
    assert {(512, 256), (512,), (512, 4000)} == shapes  # the loss is called like a model, with logits and targets


def test_phases_follow_each_other_in_every_step(recorded: Recorded) -> None:
    for step in (2, 3, 4):
        phases = [mark.phase for mark in recorded.trace.marks if mark.step == step]
        ordered = list(dict.fromkeys(phases))
        assert ordered[:7] == [
            "forward", "loss", "backward", "after backward", "clip", "optimizer step", "zero_grad",
        ]  # fmt: skip
        assert "data" in ordered or step == 4


def test_autocast_is_marked_where_it_was_on(recorded: Recorded) -> None:
    on = {mark.phase for mark in recorded.trace.marks if mark.autocast}
    assert "forward" in on
    assert "backward" not in {mark.phase for mark in recorded.trace.marks if mark.autocast and mark.step > 4}


def test_stacks_say_which_module_allocated(recorded: Recorded) -> None:
    events, stacks = recorded.trace.events, recorded.recording.stacks
    paths = set()
    for kind, stack in zip(events.kind, events.stack, strict=True):
        if kind == model.ALLOC:
            paths.add(tuple(frame.name for frame in stacks.frames(stack) if frame.is_module))
    assert ("plain.up", "plain", "") in paths
    assert ("head", "") in paths
    assert ("again.down", "again") in paths or ("again.down", "again", "") in paths  # recomputed in backward


def test_modules_have_their_class_and_output(recorded: Recorded) -> None:
    outputs = {output.path: output for output in recorded.recording.modules}
    assert (outputs["plain.up"].kind, outputs["plain.up"].dtype) == ("Linear", "bfloat16")
    assert outputs["plain.up"].shape == (512, 1024)
    assert outputs[""].kind == "Model"
    assert outputs["CrossEntropyLoss"].shape == ()


def test_no_frame_of_ours_is_in_the_recording(recorded: Recorded) -> None:
    assert not [frame for frame in recorded.recording.stacks.all_frames if "/dryfit/" in frame.file]


def test_the_workspaces_are_those_that_were_allocated(recorded: Recorded) -> None:
    sizes = {size for _, size in recorded.recording.workspaces}
    assert 8519680 in sizes


OUT_OF_MEMORY = """
    import torch
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(40))).cuda()
    model(torch.randn(1 << 16, 1024, device="cuda", requires_grad=True)).sum().backward()
"""


def test_a_run_out_of_memory_is_recorded_to_the_request_that_failed(rehearse: Any, project: Path) -> None:
    done = rehearse(OUT_OF_MEMORY, gpu="sm=80,sms=108,memory=4GiB", options=("--record", "oom.dryfit"))
    assert done.code == 1, done.stderr
    trace = load(project / "oom.dryfit").devices[0]
    failed = [trace.events.size[event] for event, kind in enumerate(trace.events.kind) if kind == model.OOM]
    assert failed == [256 << 20]
    footprint = done.result["footprint"]
    assert footprint["out_of_memory"]["requested_bytes"] == 256 << 20
    owners = {owner["owner"]: owner["size_bytes"] for owner in footprint["peak"]["owners"]}
    assert owners["parameter"] == 40 * (1024 * 1024 + 1024) * 4
    assert owners["saved activation"] > 0.9 * (footprint["peak"]["allocated_bytes"] - owners["parameter"] - (256 << 20))
    assert owners.get("unknown", 0) == 0


A_FULL_RECORD = """
    import torch
    from dryfit.rehearse.inside import history
    history._MOST_EVENTS = 8  # as many as follow
    kept = [torch.empty(16 << 20, device="cuda") for _ in range(4)]
"""


def test_a_record_that_was_full_says_so(rehearse: Any, project: Path) -> None:
    done = rehearse(A_FULL_RECORD, options=("--record", "full.dryfit"))
    recording = load(project / "full.dryfit")
    assert recording.about["lost_events"] and not recording.about["is_cut"]
    assert (recording.devices[0].marks, recording.devices[0].labels) == ((), ())
    assert [note for note in done.result["notes"] if note.startswith("More events came between two passes")]


SNAPSHOTS_OF_ITS_OWN = """
    import torch
    torch.zeros(1 << 20, device="cuda")
    torch.cuda.memory._record_memory_history(max_entries=10)
    x = torch.zeros(1 << 22, device="cuda")
    kinds = [event["action"] for event in torch.cuda.memory._snapshot()["device_traces"][0]]
    torch.cuda.memory._record_memory_history(enabled=None)
    y = torch.zeros(1 << 23, device="cuda")
    print("kinds", kinds)
"""


def test_a_program_that_takes_snapshots_gets_its_own_and_so_do_we(rehearse: Any, project: Path) -> None:
    done = rehearse(SNAPSHOTS_OF_ITS_OWN, options=("--record", "run.dryfit"))
    assert "kinds ['alloc']" in done.stderr  # into the segment that was there before
    trace = load(project / "run.dryfit").devices[0]
    sizes = [size for kind, size in zip(trace.events.kind, trace.events.size, strict=True) if kind == model.ALLOC]
    assert sizes == [4 << 20, 16 << 20, 32 << 20]


COMPILED = """
    import torch
    from torch import nn
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
    optimizer, compiled = torch.optim.AdamW(model.parameters()), torch.compile(model, backend="aot_eager")
    for _ in range(3):
        compiled(torch.randn(32, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_backward_pass_that_is_traced_begins_no_phase(rehearse: Any, project: Path) -> None:
    done = rehearse(COMPILED, options=("--record", "run.dryfit", "--steps", "all"))
    assert done.code == 0, done.stderr
    marks = load(project / "run.dryfit").devices[0].marks
    passes = ["forward", "loss", "backward", "after backward"]
    for step in (1, 2, 3):
        assert [mark.phase for mark in marks if mark.step == step and mark.phase in passes] == passes


SNAPSHOT_BEGUN_BEFORE_ANYTHING = """
    import torch
    torch.cuda.init()
    torch.cuda.memory._record_memory_history()
    x = torch.zeros(1 << 22, device="cuda")
"""


def test_a_program_that_records_from_the_start_does_not_set_the_clock(rehearse: Any, project: Path) -> None:
    done = rehearse(SNAPSHOT_BEGUN_BEFORE_ANYTHING, options=("--record", "run.dryfit"))
    assert done.code == 0, done.stderr
    trace = load(project / "run.dryfit").devices[0]
    assert trace.starts_empty
    assert [model.KINDS[kind] for kind in trace.events.kind[:2]] == ["segment_alloc", "alloc"]
    assert trace.events.time_us[0] == 0
    assert trace.events.time_us[-1] < 60_000_000


STRANGE = """
    import functools, inspect, torch
    from torch import nn
    from torch.overrides import TorchFunctionMode

    class Strange(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64, 64, device="cuda"))
            self.list = [self.weight]
            self.list += [self.list] * 4000
            self.kept = [torch.zeros(3000, device="cuda")]

        @property
        def broken(self):
            raise RuntimeError("a property was read")

        def __getattr__(self, name):
            if name.startswith("_is"):
                raise RuntimeError("asked for " + name)
            return super().__getattr__(name)

        def named_modules(self, *args, **kwargs):
            raise RuntimeError("named_modules was called")

        parameters = named_parameters = named_modules

        def forward(self, x):
            return nn.ReLU()(x) @ self.weight

    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("as the program meant it")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = self.again = nn.Linear(64, 64)
            self.strange, self.fails = Strange(), Fails()
            self.table = nn.Embedding(500, 64, sparse=True)

        def forward(self, x):
            try:
                self.fails(x)
            except ValueError:
                pass
            x = self.strange(self.again(self.shared(x)))
            return x + self.table(torch.zeros(len(x), dtype=torch.long, device="cuda"))

    class Custom(torch.optim.Optimizer):
        def __init__(self, parameters, state):
            super().__init__(parameters, {})
            self.state = state

        def step(self):
            pass

    class Partial(Custom):
        step = functools.partialmethod(Custom.step)

    model = Model().cuda()
    weights = [*model.shared.parameters(), model.strange.weight, model.table.weight]
    alone = nn.Parameter(torch.zeros(5000, device="cuda"))
    optimizers = [
        torch.optim.SGD([*weights[:3], alone], lr=0.1, momentum=0.9),
        Custom(weights, [torch.zeros(6000, device="cuda")]),
        Custom(weights, {"of all": torch.zeros(7000, device="cuda")}),
        Partial(weights, {}),
    ]
    for _ in range(3):
        loss = nn.MSELoss()(model(torch.ones(8, 64, device="cuda")), torch.zeros(8, 64, device="cuda")) + alone.sum()
        loss.backward()
        torch.cuda.reset_accumulated_memory_stats()
        for optimizer in optimizers:
            optimizer.step()
        optimizers[0].zero_grad()
        model.table.zero_grad()
    print("signature", inspect.signature(model.__call__), [name for name in vars(model) if "dryfit" in name])

    seen = []
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))
    with Mode():
        model.shared(torch.ones(2, 64, device="cuda"))
    print("seen", seen)

    lazy = torch._lazy_clone(torch.ones(8, 64, device="cuda"))
    model.shared(lazy)
    print("still lazy", torch._C._is_cow_tensor(lazy))
    torch.__future__.set_swap_module_params_on_conversion(True)
    model.shared.half()
    model.fails(lazy)
"""


def test_strange_programs_meet_nothing_of_the_recorder(rehearse: Any, project: Path) -> None:
    done = rehearse(STRANGE, options=("--record", "run.dryfit", "--steps", "all"))
    assert "signature (*args, **kwargs) []" in done.stderr
    assert "seen ['ones', 'linear']" in done.stderr
    assert "still lazy True" in done.stderr
    assert done.stderr.count("module_calls.py") == 1  # of the traceback, the outermost call
    where = STRANGE.splitlines().index('            raise ValueError("as the program meant it")') + 1
    assert f"as the program meant it (train.py:{where})" in done.stdout
    assert "recording" not in " ".join(done.result["notes"])
    labels = load(project / "run.dryfit").devices[0].labels
    names: dict[str, set[str]] = {}
    for label in labels:
        names.setdefault(label.owner, set()).add(label.name)
    of_the_model = {"shared.weight", "shared.bias", "strange.weight", "table.weight"}
    assert names[model.PARAMETER] == {*of_the_model, "parameter 3"}
    assert names[model.GRADIENT] == {*of_the_model, "parameter 3"}
    assert names[model.BUFFER] == {"strange.kept"}
    assert {"0 of state", "of all", "momentum_buffer of shared.weight"} <= names[model.OPTIMIZER_STATE]
    sizes = {label.shape for label in labels if label.owner == model.OPTIMIZER_STATE}
    assert {(6000,), (7000,), (5000,)} <= sizes


def test_nothing_on_the_card_leaves_no_recording(rehearse: Any) -> None:
    done = rehearse("import torch\n", options=("--record", "run.dryfit"))
    assert done.code == 2
    assert "There is no recording to save as run.dryfit: PyTorch's allocator was not used." in done.stderr
    assert done.result["footprint"] is None


def test_a_result_read_back_has_no_recording(recorded: Recorded, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no recording to save as"):
        recorded.result.save_recording(tmp_path / "again.dryfit")

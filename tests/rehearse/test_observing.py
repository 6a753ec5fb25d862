"""What a rehearsal's observer finds, on the way from the hooks to the result; what it finds is tests/watching's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.findings import Evidence, Finding, Place
from dryfit.rehearse.assemble import Observed, assemble
from dryfit.rehearse.child import Request, run_once
from dryfit.rehearse.inside.observing import Observing
from dryfit.rehearse.launch import rehearse as rehearse_program
from dryfit.rehearse.result import Result
from dryfit.virtual_card import CardSettings

GIB = 1 << 30
CARD = find_card("rtx-4090")
OUTPUTS = Finding(
    code="DF102",
    claim="outputs keeps the output of every step.",
    advice="Keep less.",
    place=Place(file="/home/me/train.py", line=31),
    evidence=Evidence(bytes_per_step=GIB, holder="outputs", first_step=2, last_step=5),
)
LOSS = dataclasses.replace(
    OUTPUTS, code="DF101", evidence=Evidence(memory="host", bytes_per_step=2 * GIB, holder="total_loss")
)


def process(pid: int, findings: Sequence[Finding] = (), **end: Any) -> list[dict[str, Any]]:
    """The events of a process whose steps take one GiB more each."""
    steps = [{"step": n, "phases": {"backward": [n * GIB, n * GIB, n * GIB]}} for n in range(1, 21)]
    last = {"event": "end", "how": "most steps", "error": None, "steps": steps}
    return [
        {"event": "python", "pid": pid},
        {"event": "torch", "versions": {}},
        *({"event": "step", "seconds": 0.5, **step} for step in steps),
        {**last, "findings": [finding.to_dict() for finding in findings], **end},
    ]


def result_of(*processes: list[dict[str, Any]]) -> Result:
    observed = Observed(
        program=["train.py"],
        processes=processes,
        status=0,
        signal=None,
        stopped_by=None,
        limit="",
        crash_place=None,
        wall_seconds=1.0,
        devices=2,
        total_bytes=CARD.total_bytes,
        notes=[],
        recordings={},
    )
    return assemble(observed, CARD, card_was_named=True)


def test_the_findings_of_all_processes_are_the_results_each_once(tmp_path: Path) -> None:
    result = result_of(process(1, [OUTPUTS]), process(2, [OUTPUTS, LOSS]))
    assert result.findings == [OUTPUTS, LOSS]
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json").findings == [OUTPUTS, LOSS]


def test_a_note_on_growth_names_who_keeps_it_where_that_is_known() -> None:
    grows = "Each of the last steps took about 1.00 GiB more than the one before: the card would be full after about "
    named, guessed = result_of(process(1, [LOSS, OUTPUTS])), result_of(process(1, [LOSS]))
    assert named.notes[0] == f"{grows}3 more steps; it is kept by outputs (/home/me/train.py:31, DF102)."
    assert guessed.notes[0].startswith(f"{grows}3 more steps; something is kept from step to step")


def test_a_failure_to_look_is_said_and_costs_no_figure() -> None:
    result = result_of(process(1, not_observed="Traceback\n  KeyError: 7\n"))
    assert result.peak_allocated_bytes == 20 * GIB
    assert result.notes[-1] == (
        "What the program keeps from step to step could not be looked for. This is our fault; please report it with "
        "these lines:\nTraceback\n  KeyError: 7"
    )


def test_an_observer_that_fails_is_asked_no_more_and_the_program_goes_on() -> None:
    class Failing:
        failure = ""

        def __init__(self) -> None:
            self.asked = 0

        def step_is_over(self, step: int) -> None:
            self.asked += 1
            raise KeyError(step)

    observing, failing = Observing(), Failing()
    observing._observer = failing  # type: ignore[assignment]
    observing.step_is_over(7)
    observing.step_is_over(8)
    assert failing.asked == 1
    assert "KeyError: 7" in observing.failure
    assert observing.findings() == [] and not observing.needs_more_steps()


@pytest.mark.parametrize(
    ("options", "observe", "watch"),
    [
        ({}, True, False),
        ({"watch": True}, True, True),
        ({"observe": False}, False, False),
        ({"figures_only": True}, False, False),
        ({"facts": True}, False, False),
        ({"figures_only": True, "observe": True}, True, False),
    ],
)
def test_who_looks(project: Path, options: dict[str, Any], observe: bool, watch: bool) -> None:
    (project / "train.py").write_text("")
    seen: list[Request] = []

    def run(request: Request, card: CardSettings) -> Observed:
        seen.append(request)
        return run_once(request, card)

    rehearse_program([str(project / "train.py")], run=run, quiet=True, **options)
    assert [(request.observe, request.watch) for request in seen] == [(observe, watch)]


def test_a_watched_run_takes_twelve_steps_and_prints_what_it_finds(rehearse: Any) -> None:
    program = """
        import torch

        def main():
            model = torch.nn.Linear(512, 512).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            outputs = []
            for _ in range(100):
                output = model(torch.ones(512, 512, device="cuda"))
                output.sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                outputs.append(output.detach())

        main()
    """
    done = rehearse(program, options=("--watch", "--steps", "14"))
    assert [(each["code"], each["evidence"]["holder"], each["place"]["line"]) for each in done.result["findings"]] == [
        ("DF102", "outputs", 13)
    ]
    assert "\nDF102 train.py:13: " in done.stdout
    assert "\n    outputs.append(output.detach())\n" in done.stdout
    assert "`dryfit lint --explain DF102` says more." in done.stdout
    growth = done.result["footprint"]["growth"]
    assert growth["sentence"].endswith("train.py:13, DF102)."), growth


def test_a_steady_watched_run_stops_after_twelve_steps(rehearse: Any) -> None:
    program = """
        import torch

        model = torch.nn.Linear(512, 512).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(100):
            model(torch.ones(512, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    done = rehearse(program, options=("--watch",))
    assert (done.code, done.result["steps"], done.result["findings"]) == (0, 12, [])


def test_a_run_out_of_memory_has_the_findings_from_before(rehearse: Any) -> None:
    program = """
        import torch

        def main():
            model = torch.nn.Linear(512, 512).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            outputs = []
            while True:
                output = model(torch.ones(1 << 21, 512, device="cuda"))
                output.sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                outputs.append(output.detach())

        main()
    """
    done = rehearse(program)
    assert done.result["ending"]["how"] == "out of memory"
    assert [(each["code"], each["evidence"]["holder"]) for each in done.result["findings"]] == [("DF102", "outputs")]

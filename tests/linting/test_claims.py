"""Sentences of findings that depend on the program."""

from __future__ import annotations

from dryfit.linting import lint_source

SUMMED = """
import torch

def train(model, loader, criterion, optimizer):
    running = 0.0
    for step, (inputs, targets) in enumerate(loader):
        loss = criterion(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss
        if step % 100 == 99:
            print(running / 100)
            RESET
"""


def claim(reset: str) -> str:
    (finding,) = lint_source(SUMMED.replace("RESET", reset))
    return finding.claim


def test_a_sum_that_begins_anew_in_the_loop_keeps_graphs_until_then() -> None:
    freed = "backward has freed what it held on the card, so host memory grows."
    kept = "`running` sums `loss` together with its graph, so the graph of every iteration stays"
    assert claim("running = 0.0") == f"{kept} until `running` begins anew: {freed}"
    assert claim("print()") == f"{kept}: {freed}"


def test_a_graph_that_backward_retains_is_on_the_card() -> None:
    source = SUMMED.replace("RESET", "print()").replace("backward()", "backward(retain_graph=True)")
    (finding,) = (each for each in lint_source(source) if each.code == "DF101")
    assert finding.claim.endswith("stays: backward is told to retain it, so the activations of each stay on the card.")
    assert finding.evidence.memory == "device"

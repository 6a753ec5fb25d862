"""Every optimizer's arithmetic equals, to the byte, the footprint of a rehearsed program: one rehearsal for all."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dryfit.estimate import OPTIMIZERS, Estimate, Model, Tensor, estimate

PROGRAM = Path(__file__).parent / "optimizers_program.py"
ITEMSIZES = {"float32": (4,), "bfloat16": (2,), "both": (2, 4)}

pytestmark = pytest.mark.stacks


def shapes(name: str) -> list[tuple[int, ...]]:
    """A list of shapes in the program, which imports torch and so is read, not imported."""
    for statement in ast.parse(PROGRAM.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            found: list[tuple[int, ...]] = ast.literal_eval(statement.value)
            return found
    raise AssertionError(f"{name} is not in the program")


def model_of(dtype: str) -> Model:
    tensors = [Tensor(name="", shape=shape, itemsize=size) for size in ITEMSIZES[dtype] for shape in shapes("SHAPES")]
    return Model(given=dtype, found="the program's", parameters=tuple(tensors))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, int]]]:
    """What each phase of each optimizer's step held at its peak, by owner."""
    saved = tmp_path_factory.mktemp("optimizers") / "result.json"
    options = ["--gpu", "sm=80,sms=108,memory=40GiB", "--steps", "all", "-o", str(saved)]
    done = subprocess.run(
        [sys.executable, "-m", "dryfit", "run", *options, str(PROGRAM)], capture_output=True, text=True, timeout=280
    )
    trained = re.findall(r"^TRAINED (.*)$", done.stderr, re.MULTILINE)
    footprint = json.loads(saved.read_text())["footprint"]
    by_number = {step["step"]: step["phases"] for step in footprint["steps"]}
    assert trained, done.stderr
    return {name: {phase["phase"]: owners(phase) for phase in by_number[n]} for n, name in enumerate(trained, start=1)}


def owners(phase: dict[str, Any]) -> dict[str, int]:
    return {owner["owner"]: owner["size_bytes"] for owner in phase["owners"]}


def held(found: Estimate, name: str) -> int:
    """The sum of the terms whose name begins so, in PyTorch's allocator."""
    return sum(
        term.size_bytes or 0 for term in found.terms if term.name.startswith(name) and term.held != "outside PyTorch"
    )


def test_every_optimizer_is_in_the_program(steps: dict[str, Any]) -> None:
    assert {name.split()[1] for name in steps if name.startswith("float32 ")} == set(OPTIMIZERS)


def test_gradients_states_and_temporaries_to_the_byte(steps: dict[str, dict[str, dict[str, int]]]) -> None:
    wrong = {}
    for name in steps:
        dtype, _, words = name.partition(" ")
        if words == "master weights" or dtype == "autocast":
            continue
        optimizer, _, implementation = words.partition(" ")
        found = estimate(model_of(dtype), optimizer=optimizer, implementation=implementation or None)
        expected = {
            "gradient": held(found, "gradients"),
            "optimizer state": held(found, "optimizer state"),
            "temporary": held(found, "step's temporaries"),
        }
        at_step = steps[name]["optimizer step"]
        rehearsed = {owner: at_step.get(owner, 0) for owner in expected}
        if optimizer == "adagrad":  # its states are made when it is, where the recording can take them for inputs
            rehearsed["optimizer state"] += at_step.get("input", 0)
        if rehearsed != expected:
            wrong[name] = rehearsed, expected
    assert not wrong


def test_master_weights_to_the_byte(steps: dict[str, dict[str, dict[str, int]]]) -> None:
    found = estimate(model_of("bfloat16"), dtype="bf16", optimizer="adamw", master_weights=True)
    at_step = steps["bfloat16 master weights"]["optimizer step"]
    others = steps["bfloat16 adamw"]["optimizer step"]["parameter"]  # those of the other models too
    assert at_step["parameter"] - others == held(found, "master weights")
    assert at_step["gradient"] == held(found, "gradients") + held(found, "float32 gradients")
    assert at_step["optimizer state"] == held(found, "optimizer state")
    assert at_step["temporary"] == held(found, "step's temporaries")


def test_autocast_copies_to_the_byte(steps: dict[str, dict[str, dict[str, int]]]) -> None:
    first, first_bias, scale, shift, second = shapes("AUTOCAST_SHAPES")
    cast = [Tensor(name="", shape=shape, autocasts=True) for shape in (first, first_bias, second)]
    kept = [Tensor(name="", shape=shape) for shape in (scale, shift)]
    found = estimate(Model(given="net", found="", parameters=(*cast, *kept)), amp=True, optimizer="sgd")
    assert steps["autocast"]["forward"]["autocast weight copy"] == held(found, "autocast weight copies")

"""What importing dryfit and its command line costs, counted in modules; benchmarks/run.py counts it in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dryfit

HEAVY = ("torch", "numpy", "rich", "transformers")


def modules_after(code: str) -> set[str]:
    """The modules a fresh interpreter holds after running some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import dryfit",
        "import dryfit; dir(dryfit); dryfit.__version__",
        "import dryfit.cards, dryfit.virtual_card",
        "import dryfit.rehearse.launch, dryfit.report.text, dryfit.report.page, dryfit.report.perfetto, dryfit.cli",
        "import dryfit; [getattr(dryfit, name) for name in dryfit.__all__ if name != 'watch']",  # which is for a loop
        "import dryfit.search.fit, dryfit.report.fit",
        "import dryfit.sweeping.sweep, dryfit.report.sweep",
        "import dryfit.search.plan, dryfit.report.plan, dryfit.measures.catalogue as c; c.all_measures()",
        "from dryfit.cli import parser; parser().format_help()",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    assert not modules_after(code).intersection(HEAVY)


def test_the_check_above_can_fail() -> None:
    assert "rich" in modules_after("import rich")


def test_importing_dryfit_imports_only_the_front_door() -> None:
    own = {name for name in modules_after("import dryfit") if name.split(".")[0] == "dryfit"}
    assert own == {"dryfit"}


def test_help_runs_without_torch() -> None:
    done = subprocess.run([sys.executable, "-m", "dryfit", "--help"], capture_output=True, text=True, check=True)
    assert "exit codes: 0 fits" in done.stdout
    assert {"run", "report", "cards", "doctor"} <= set(done.stdout.split())


def test_the_public_names() -> None:
    assert dryfit.__all__ == sorted(dryfit.__all__)
    assert dryfit.__all__ == [
        "Card", "DryfitError", "Explanation", "Finding", "Fit", "Footprint", "Plan", "Result", "Sweep", "UnknownCard",
        "UsageError", "all_cards", "analysis_of", "explain", "find_card", "fit", "lint", "open_recording", "plan",
        "run", "sweep", "virtual", "watch",
    ]  # fmt: skip
    for name in dryfit.__all__:
        assert getattr(dryfit, name) is not None
        assert name in dir(dryfit)


def test_no_name_is_that_of_a_room() -> None:
    """An import of a room puts it under its name, in place of what the door has there: so it is `analysis_of`."""
    rooms = {path.stem for path in Path(dryfit.__file__).parent.iterdir() if path.suffix in ("", ".py")}
    assert {"analyse", "recording", "units"} <= rooms
    assert not rooms.intersection(dryfit.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dryfit' has no attribute 'rum'"):
        dryfit.rum  # noqa: B018

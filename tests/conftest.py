"""Options and fixtures shared by all rooms' tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# The suite repeats the same examples each time; `HYPOTHESIS_PROFILE=deep pytest` looks for new ones, for minutes.
settings.register_profile("suite", max_examples=40, derandomize=True, deadline=None)
settings.register_profile("deep", max_examples=3000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# A shell ignores Ctrl-C for what it starts in the background, and every process started from there inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-goldens", action="store_true", help="write what was found into the golden files")


@pytest.fixture
def rewrite_goldens(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite-goldens"))


# Those that take longest come first: with several workers, what is begun last should be short.
_LONGEST = ("plans", "measures", "rehearse/test_values.py", "rehearse/test_run.py", "stacks", "rehearse", "truth")
# Fixtures of a whole session that are worth a worker of their own: warm rehearsals, with all that they have imported.
_OF_ONE_WORKER = ("_warm_stacks", "_warm")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, and have those of one file, or of one such fixture, run in one worker of `pytest -n`."""
    here = Path(__file__).parent
    for item in items:
        shared = next((name for name in _OF_ONE_WORKER if name in getattr(item, "fixturenames", ())), None)
        item.add_marker(pytest.mark.xdist_group(shared or str(item.path.relative_to(here))))
    items.sort(
        key=lambda item: next(
            (at for at, name in enumerate(_LONGEST) if item.path.is_relative_to(here / name)), len(_LONGEST)
        )
    )

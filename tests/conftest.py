"""Options and fixtures shared by all rooms' tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The suite repeats the same examples each time; `HYPOTHESIS_PROFILE=deep pytest` looks for new ones, for minutes.
settings.register_profile("suite", max_examples=40, derandomize=True, deadline=None)
settings.register_profile("deep", max_examples=3000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-goldens", action="store_true", help="write what was found into the golden files")


@pytest.fixture
def rewrite_goldens(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite-goldens"))

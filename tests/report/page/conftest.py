"""One browser for all tests of a session, and pages of a synthetic run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dryfit.analyse.analysis import Analysis
from dryfit.report.page import write_page

from .browser import NAMES, Browser, Tab, find_chromium
from .synthetic import training


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(f"the page is looked at in a browser, and there is none of {', '.join(NAMES)} here")
    with Browser(chromium) as one:
        yield one


@pytest.fixture(scope="session")
def run() -> Analysis:
    """Three steps of a small GPT."""
    return training(3000)


@pytest.fixture(scope="session")
def page_file(run: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "run.html"
    write_page(run, path)
    return path


@pytest.fixture
def tab(browser: Browser, page_file: Path) -> Iterator[Tab]:
    """The page, open; at the end, nothing may have been asked of a network and nothing complained of."""
    one = Tab(browser)
    one.open(page_file)
    yield one
    assert one.requests == [page_file.as_uri()]
    assert one.problems == []
    one.close()

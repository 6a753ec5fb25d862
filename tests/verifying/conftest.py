"""Comparisons on a machine without a card: a virtual one stands in for the real one; all else is as on a real one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.verifying.real_card import Twin
from dryfit.verifying.sides import HowToRun
from dryfit.verifying.verify import Verified, look, verify
from dryfit.virtual_card.settings import settings_of

Compare = Callable[..., Verified]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Compare a program, given as text, with a stand-in for the real card; `twin` is another to rehearse on."""

    def run(
        text: str, *words: str, gpu: str = "l4", count: int = 1, twin: str | None = None, steps: Any = None, **how: Any
    ) -> Verified:
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)
        monkeypatch.chdir(project)
        Path("train.py").write_text(textwrap.dedent(text))
        stand_in = settings_of(find_card(gpu), count=count)
        real, of_real = look(stand_in)
        if twin is not None:
            card = find_card(twin)
            of_real = Twin(gpu=twin, memory_bytes=card.total_bytes, key=card.key)
        settings = HowToRun(**{"seconds": 120, "quiet": True, **how})
        return verify(["train.py", *words], real, of_real, steps=steps, how=settings, stand_in=stand_in)

    return run

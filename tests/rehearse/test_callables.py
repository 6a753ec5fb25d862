"""Functions in place of programs: sent to the processes of their rehearsals, or refused in a sentence."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dryfit
from dryfit.errors import UsageError
from dryfit.rehearse.callables import as_called, as_words
from dryfit.rehearse.events import ORDERS_VARIABLE

CARD = "sm=80,sms=108,memory=8GiB"


def step(batch: int, seq: int = 4) -> None:
    raise NotImplementedError


def needs_more(batch: int, model: object) -> None:
    raise NotImplementedError


def anything(**options: object) -> None:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "vary", "arguments"),
    [
        (step, {}, ["batch={batch}"]),
        (step, {"seq": "1..8"}, None),
        (functools.partial(step, 8), {"seq": "1..8"}, ["seq={seq}"]),
        (functools.partial(needs_more, model=None), {}, ["batch={batch}"]),
        (anything, {"width": [1], "depth": [2]}, ["width={width}", "depth={depth}"]),
        (lambda: None, None, []),
    ],
)
def test_the_words_of_a_function_name_its_arguments(
    function: Callable[..., None], vary: dict[str, Any] | None, arguments: list[str] | None
) -> None:
    if arguments is None:
        with pytest.raises(
            UsageError, match=r"step\(\) needs batch, and gets no value for it\. Give it a list of values"
        ):
            as_words(function, vary).__enter__()
        return
    with as_words(function, vary) as words:
        assert words[3:] == arguments
        assert Path(words[2]).stat().st_mode & 0o077 == 0 or Path(words[2]).parents[1].stat().st_mode & 0o077 == 0
    assert not Path(words[2]).exists()


def test_words_stay_words() -> None:
    with as_words(["train.py", Path("a/b")]) as words:
        assert words == ["train.py", "a/b"]
    assert as_called(words) == words


@pytest.mark.parametrize(
    ("function", "vary", "sentence"),
    [
        (
            lambda: None,
            {},
            "There is nothing to search: lambda() has no parameter called batch. Name the one to search, with its "
            "values: dryfit.fit(lambda, vary={'batch': '1..512'})",
        ),
        (
            step,
            {"width": "1..2"},
            "step() has no parameter called width, for which vary gives values; those that it has are batch, seq.",
        ),
        (
            needs_more,
            {"batch": "1..2"},
            "needs_more() needs model, and gets no value for it. Give it a list of values in vary, or one value: "
            "functools.partial(needs_more, model=...)",
        ),
        (
            step,
            None,
            "step() needs batch, and gets no value for it. Give it one value: functools.partial(step, batch=...)",
        ),
    ],
)
def test_arguments_that_do_not_match(function: Any, vary: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        as_words(function, vary).__enter__()
    assert str(raised.value) == sentence


def test_what_no_other_process_can_have_is_named() -> None:
    lock = threading.Lock()

    def holds() -> None:
        lock.acquire()

    with pytest.raises(UsageError) as raised:
        dryfit.run(holds, gpu=CARD)
    assert "holds() cannot be sent to the process of a rehearsal, because of its lock: cannot pickle" in str(
        raised.value
    )
    assert "Have it made within holds(), as in a script that starts anew" in str(raised.value)


def test_a_tensor_on_a_card_is_no_one_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)

    def holds() -> torch.Tensor:
        return weight

    with pytest.raises(
        UsageError, match=r"because of its weight: a tensor lies on cpu, and a rehearsal has a card of its"
    ):
        dryfit.run(holds, gpu=CARD)


def test_a_module_that_asks_while_it_is_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ORDERS_VARIABLE, "{}")
    with pytest.raises(UsageError, match=r'step\(\) is being rehearsed, .* below `if __name__ == "__main__":`'):
        dryfit.fit(step, gpu=CARD)


# What a person has: a script or the cells of a notebook (`__main__`), whose function uses a class and a number beside
# it, and a module in the same folder. The argument says how much is taken, so that the answers are known.
MODULE = """
    import torch

    def take(mib, twice=False):
        held = [torch.empty(mib << 20, dtype=torch.uint8, device="cuda") for _ in range(2 if twice else 1)]
        return len(held)
"""
IN_MAIN = """
    import json, sys
    import dryfit, mine

    UNIT = 64

    class Taker:
        def take(self, count, how):
            assert isinstance(count, int) and isinstance(how, str), (count, how)
            return mine.take(count * UNIT, how == "twice")

    def step(batch, how="once"):
        Taker().take(batch, how)

    def closure(unit):
        return lambda n: mine.take(n * unit)

    card = "sm=80,sms=108,memory=8GiB"
"""
SCRIPT = """
    found = dryfit.fit(step, gpu=card, vary={"batch": "1..512", "how": ["once", "twice"]})
    failed = dryfit.run(lambda: step("no"), gpu=card, quiet=True)
    print(json.dumps([found.program, [[a.row, a.largest, a.beyond] for a in found.answers], failed.ending.sentence]))
"""
CELLS = """
    inner = dryfit.fit(closure(512), gpu=card, vary={"n": "1..64"})
    alone = dryfit.run(lambda: step(2), gpu=card, quiet=True)
    print(json.dumps([inner.program, inner.largest, inner.answers[0].beyond,
                      alone.program, alone.peak_allocated_bytes, alone.ending.sentence]))
"""


def said(folder: Path, code: str, *words: str) -> Any:
    """What Python prints as JSON in a folder that holds the module, and the code as train.py."""
    (folder / "mine.py").write_text(textwrap.dedent(MODULE))
    (folder / "train.py").write_text(code)
    variables = {name: value for name, value in os.environ.items() if name != "DRYFIT_GPU"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=variables, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_script_searches_its_own_functions(tmp_path: Path) -> None:
    program, answers, failed = said(tmp_path, textwrap.dedent(IN_MAIN) + textwrap.dedent(SCRIPT), "train.py")
    assert program == ["step(batch={batch}, how={how})"]
    (once, largest, beyond), (twice, largest_twice, beyond_twice) = answers
    assert (once, twice) == ({"how": "once"}, {"how": "twice"})
    assert (beyond, beyond_twice) == (largest + 1, largest_twice + 1)
    assert largest // 2 == largest_twice > 50
    assert failed.startswith(
        "lambda() failed before its first optimiser step: AssertionError: ('no', 'once') (train.py:9)."
    )


def test_cells_of_a_notebook_search_their_own_functions(tmp_path: Path) -> None:
    """As a kernel has them: their code is in no file."""
    code = textwrap.dedent(IN_MAIN) + textwrap.dedent(CELLS)
    run_cells = "import sys; sys.path.insert(0, ''); exec(compile(open('train.py').read(), '<cell>', 'exec'))"
    program, largest, beyond, *alone = said(tmp_path, code, "-c", run_cells)
    assert (program, beyond) == (["lambda(n={n})"], largest + 1)
    assert 10 < largest < 16
    assert alone == [["lambda()"], 128 << 20, "lambda() ran to its end without an optimiser step."]

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

from dryfit.findings import Evidence, Finding, Place
from dryfit.rehearse.result import Result
from dryfit.report.notebook import html
from dryfit.report.page.tables import sections
from dryfit.report.text import print_result

from ..results import PLAIN_RESULT
from . import footprints

MIB = 1 << 20
OUTPUTS = Finding(
    code="DF102",
    claim="outputs keeps the output of every step.",
    advice="Keep what is needed of them, on the host: outputs.append(logits.detach().cpu()).",
    place=Place(file="train.py", line=31, text="    outputs.append(logits.detach())"),
    more_places=(Place(file="model.py", line=7, text="logits = self.head(x)"),),
    evidence=Evidence(bytes_per_step=MIB, first_step=2, last_step=5, holder="outputs", chain=("[0]",)),
)
LOSS = Finding(
    code="DF101",
    claim="total_loss keeps the graph of every step.",
    advice="Add loss.item().",
    evidence=Evidence(memory="host", size_bytes=3 * MIB),
)


def printed(result: Result) -> str:
    file = io.StringIO()
    print_result(result, file)
    return file.getvalue()


def test_findings_are_printed_with_their_line_evidence_and_advice() -> None:
    text = printed(dataclasses.replace(PLAIN_RESULT, findings=[OUTPUTS, LOSS]))
    assert text.endswith(
        """
DF102 train.py:31: outputs keeps the output of every step.
    outputs.append(logits.detach())
    1.00 MiB more on the card at each step, seen in steps 2 to 5; held by outputs -> [0]
    also model.py:7: logits = self.head(x)
    Keep what is needed of them, on the host: outputs.append(logits.detach().cpu()).

DF101: total_loss keeps the graph of every step.
    3.00 MiB in the host's memory
    Add loss.item().

`dryfit lint --explain DF101` says more, and so for DF102.

The program finished by itself.
"""
    )


def test_the_notebook_and_the_page_show_them() -> None:
    result = dataclasses.replace(PLAIN_RESULT, findings=[OUTPUTS, LOSS])
    assert "DF102 train.py:31: outputs keeps the output of every step." in html(result)
    shown = sections(footprints.gpt2(), result, str)
    assert next(iter(shown)) == "findings"
    for words in ("DF102", "train.py:31", "outputs.append(logits.detach())", OUTPUTS.advice, LOSS.claim):
        assert words in shown["findings"]
    assert "findings" not in sections(footprints.gpt2(), PLAIN_RESULT, str)


def test_without_findings_nothing_is_said_of_them() -> None:
    assert "explain" not in printed(PLAIN_RESULT)


def test_a_source_line_cannot_write_to_the_terminal() -> None:
    place = Place(file="train.py", line=1, text="x = '\x1b[2J'")
    text = printed(dataclasses.replace(PLAIN_RESULT, findings=[dataclasses.replace(OUTPUTS, place=place)]))
    assert "\x1b" not in text and "x1b[2J" in text


def test_a_saved_result_has_its_findings(tmp_path: Path) -> None:
    result = dataclasses.replace(PLAIN_RESULT, findings=[OUTPUTS, LOSS])
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result

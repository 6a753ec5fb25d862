"""The footprint in the terminal, against goldens a person can read, and what must hold whatever the terminal."""

from __future__ import annotations

import dataclasses
import io
import os
import re
from pathlib import Path

import pytest

from dryfit.analyse.footprint import Footprint, LineBytes, ModuleBytes, OwnerBytes, TensorBytes
from dryfit.report.footprint import moment, name_of, peak_line, print_footprint, share_of
from dryfit.report.source_lines import place_of, source_of
from dryfit.units import format_bytes

from . import footprints

GOLDEN = Path(__file__).parent / "golden"
FOOTPRINTS = {
    "footprint": footprints.gpt2(),
    "footprint-out-of-memory": footprints.out_of_memory(),
    "footprint-growing": footprints.growing(),
    "footprint-bare-snapshot": footprints.bare_snapshot(),
}
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m|\x1b\[[0-9;]*9[0-9][0-9;]*m")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(footprint: Footprint, file: io.StringIO | None = None) -> str:
    out = file or io.StringIO()
    print_footprint(footprint, file=out)
    return out.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns with colours."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


@pytest.mark.parametrize("name", FOOTPRINTS)
def test_the_report_is_as_committed(name: str, rewrite_goldens: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if rewrite_goldens:
        path.write_text(printed(FOOTPRINTS[name]))
    assert printed(FOOTPRINTS[name]) == path.read_text()


def test_who_owns_the_memory_is_read_first() -> None:
    lines = printed(footprints.out_of_memory()).splitlines()
    assert lines[0].startswith("PEAK 6.27 GiB allocated by tensors in step 2, backward; PyTorch held 6.39 GiB")
    assert lines[1] == "OUT OF MEMORY in step 2, backward: 1.54 GiB asked for, 300.00 MiB free on the card"
    assert lines[4].startswith("saved activation        3.55 GiB    57%           63  ####")


def test_the_report_is_about_one_and_a_half_screens() -> None:
    assert len(printed(footprints.gpt2()).splitlines()) <= 66


@pytest.mark.parametrize("name", FOOTPRINTS)
def test_no_heading_is_empty_and_no_line_ends_in_blanks(name: str) -> None:
    blocks = printed(FOOTPRINTS[name]).split("\n\n")
    for block in blocks:
        assert block.strip()
        is_table = "  " in block.splitlines()[0]
        assert not is_table or len(block.splitlines()) > 1, block
    assert [line for line in printed(FOOTPRINTS[name]).splitlines() if line != line.rstrip()] == []


def test_every_owner_at_the_peak_is_shown_with_its_bytes() -> None:
    peak = footprints.gpt2().peak
    text = printed(footprints.gpt2())
    for owner in peak.owners:
        assert re.search(rf"^{owner.owner} +{format_bytes(owner.size_bytes)} .* {owner.blocks}\b", text, re.MULTILINE)


def test_without_a_terminal_the_report_is_plain_ascii_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    long = f"x = {'y' * 500}"
    numbers = (dataclasses.replace(footprints.gpt2().numbers[0], why=long),)
    text = printed(dataclasses.replace(footprints.gpt2(), numbers=numbers))
    assert text.isascii()
    assert "\x1b" not in text
    assert long in text


def test_what_a_parameter_takes_stands_below_the_owners() -> None:
    blocks = printed(footprints.gpt2()).split("\n\n")
    assert blocks[1].startswith("owner at the peak") and blocks[3].startswith("of the peak")
    assert blocks[2].startswith(
        "4.00 parameter + 4.00 gradient + 8.00 optimizer state = 16.00 bytes for each of 88.6 M"
    )


def test_on_a_terminal_tables_keep_to_the_width_and_reasons_go_on(terminal: Terminal) -> None:
    reason = "It is " + "more and " * 30 + "more."
    number = footprints.gpt2().numbers[0]
    numbers = (dataclasses.replace(number, name="bare", why=""), dataclasses.replace(number, why=reason))
    plain = ESCAPE.sub("", printed(dataclasses.replace(footprints.gpt2(), numbers=numbers, notes=()), terminal))
    tables = [block for block in plain.split("\n\n") if "  " in block.splitlines()[-1]]
    assert len(tables) == 8
    assert max(len(line) for block in tables for line in block.splitlines()) <= 80
    assert " ".join(tables[-1].split()).endswith(reason)
    assert re.search(r"^bare +6\.27 GiB$", plain, re.MULTILINE)
    assert any(line.endswith("...") for line in plain.splitlines())  # a long shape, say
    assert "\u2588" in plain


def test_a_pipe_with_forced_colours_still_loses_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = printed(footprints.gpt2())
    assert COLOUR.search(forced)
    assert ESCAPE.sub("", forced) == (GOLDEN / "footprint.txt").read_text()


def test_colours_are_there_on_a_terminal_only_and_not_with_no_color(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert COLOUR.search(printed(footprints.out_of_memory(), terminal))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(printed(footprints.out_of_memory(), Terminal()))


def test_names_of_a_recording_do_nothing_to_the_terminal(terminal: Terminal) -> None:
    evil = "\x1b[2J[bold red]x[/]\u202e:smile:\n"
    full = footprints.gpt2()
    tensor = TensorBytes(index=0, owner=evil, size_bytes=1 << 30, requested_bytes=1, name=evil, dtype=evil)
    changed = dataclasses.replace(
        full,
        modules=ModuleBytes(
            path="", kind="", size_bytes=1, own_bytes=0,
            children=(ModuleBytes(path=evil, kind=evil, size_bytes=1 << 33, own_bytes=1),),
        ),
        tensors=(tensor,),
        lines=(LineBytes(file=evil, line=1, function=evil, size_bytes=1 << 30, blocks=1),),
        notes=(evil,),
    )  # fmt: skip
    for text in (printed(changed), ESCAPE.sub("", printed(changed, terminal))):
        assert "\\x1b[2J[bold red]x[/]\\u202e:smile:\\n" in text
        assert "\x1b" not in text and "\u202e" not in text


def test_a_file_that_cannot_hold_a_character_gets_it_written_out() -> None:
    modules = ModuleBytes(
        path="", kind="", size_bytes=1, own_bytes=0,
        children=(ModuleBytes(path="köpfe", kind="", size_bytes=1 << 30, own_bytes=0),),
    )  # fmt: skip
    content = io.BytesIO()
    file = io.TextIOWrapper(content, encoding="ascii", write_through=True)
    print_footprint(dataclasses.replace(footprints.gpt2(), modules=modules), file=file)
    assert b"k\\xf6pfe" in content.getvalue()


def test_lines_are_shown_as_seen_from_here_with_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("# -*- coding: latin-1 -*-\nif True:\n    loss = model(x)  # [y]\n")
    monkeypatch.chdir(tmp_path)
    line = LineBytes(
        file=str(tmp_path / "train.py"), line=3, function="main", size_bytes=1 << 30, blocks=1,
        owners=(OwnerBytes(owner="temporary", size_bytes=1 << 30, blocks=1),),
    )  # fmt: skip
    gone = dataclasses.replace(line, file="/elsewhere/lib/python3.12/site-packages/trl/sft.py", line=9, function="step")
    text = printed(dataclasses.replace(footprints.gpt2(), lines=(line, gone)))
    assert "train.py:3    temporary  loss = model(x)  # [y]" in text
    assert "trl/sft.py:9  temporary  in step" in text
    assert str(tmp_path) not in text


def test_source_is_read_from_python_files_only(tmp_path: Path) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("secret\n")
    assert source_of(str(secret), 1) == ""
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    assert source_of(str(pipe), 1) == ""
    large = tmp_path / "large.py"
    large.write_text("x = 1\n" * 900_000)
    assert source_of(str(large), 1) == ""
    broken = tmp_path / "broken.py"
    broken.write_bytes(b"\xff\xfe\n")
    assert source_of(str(broken), 1) == ""
    good = tmp_path / "good.py"
    good.write_text("a = 1\n")
    assert [source_of(str(good), line) for line in (-1, 0, 1, 2)] == ["", "", "a = 1", ""]
    assert source_of("a\0.py", 1) == ""
    assert place_of("", 0) == "(no line known)"


def test_tensors_alike_are_counted_and_a_cut_list_says_so() -> None:
    def tensor(index: int, size: int, name: str) -> TensorBytes:
        return TensorBytes(index=index, owner="parameter", size_bytes=size, requested_bytes=size, name=name)

    tensors = [tensor(n, 9 << 20, f"layers.{n}.weight") for n in range(4)]
    tensors += [tensor(n, 5 << 20, f"heads.{n}.weight") for n in range(3)]
    text = printed(dataclasses.replace(footprints.gpt2(), tensors=tuple(tensors)))
    assert re.search(r"^ 4 x 9\.00 MiB  parameter .* layers\.\*\.weight$", text, re.MULTILINE)
    assert re.search(r"^3\+ x 5\.00 MiB  parameter .* heads\.\*\.weight$", text, re.MULTILINE)


def test_the_name_of_tensors_that_differ_by_more_than_a_number_is_what_they_share() -> None:
    tensors = [
        TensorBytes(index=0, owner="optimizer state", size_bytes=8, requested_bytes=8, name=f"{state} of fc.0.weight")
        for state in ("exp_avg", "exp_avg_sq")
    ]
    assert name_of(tensors) == "fc.*.weight"


def test_steps_that_are_alike_are_one_line_and_many_are_announced() -> None:
    full = footprints.gpt2()
    alike = [dataclasses.replace(full.steps[2], step=step) for step in range(2, 40)]
    assert re.search(r"^2 to 39 +6\.27 GiB", printed(dataclasses.replace(full, steps=(*full.steps[:2], *alike))), re.M)
    rising = [
        dataclasses.replace(full.steps[2], step=step, end_allocated_bytes=full.steps[2].end_allocated_bytes + step)
        for step in range(2, 40)
    ]
    text = printed(dataclasses.replace(full, steps=(*full.steps[:2], *rising)))
    assert "... up to step 39, 6.27 GiB at its peak; --json has them all." in text


def test_the_peak_line_names_the_card_only_if_it_has_a_size() -> None:
    full = footprints.gpt2()
    real = dataclasses.replace(full, about={"card": {"key": "rtx-4090", "total_bytes": 24 << 30}})
    assert peak_line(real).endswith("; PyTorch held 6.39 GiB of the card's 24.00 GiB")
    unlimited = dataclasses.replace(full, about={"card": {"key": "unlimited", "total_bytes": 1 << 60}})
    assert peak_line(unlimited).endswith("; PyTorch held 6.39 GiB of the card")
    assert peak_line(footprints.bare_snapshot()).startswith("PEAK 700.00 MiB allocated by tensors; PyTorch held")


def test_words_for_moments_and_shares() -> None:
    assert [moment(2, "backward"), moment(0, "setup"), moment(0, "backward"), moment(3, ""), moment(0, "")] == [
        "step 2, backward", "the setup", "backward", "step 3", "",
    ]  # fmt: skip
    assert [share_of(57, 100), share_of(1, 1000), share_of(0, 100), share_of(0, 0)] == ["57%", "<1%", "0%", "0%"]

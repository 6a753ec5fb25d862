"""Measured rows: what can be read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.accuracy import rows

from dryfit.cards import find_card

from .made import PROGRAM

HEAD = "id,family,program,arguments,card,torch,metric,measured_bytes,source,note"


def read(folder: Path, *lines: str, head: str = HEAD) -> list[rows.Row]:
    (folder / "table.csv").write_text("\n".join([head, *lines]) + "\n")
    return rows.rows(folder)


def test_a_row_is_read_with_its_peers(tmp_path: Path) -> None:
    line = f'a,f,{PROGRAM},"gpt2 ""two words""","sm=86,sms=28,memory=12GB",2.6.0,reserved,1000,s,n,,900'
    (row,) = read(tmp_path, line, head=f"{HEAD},peer:other,peer:xMem")
    assert row.words[1:] == ["gpt2", "two words"]
    assert row.card == "sm=86,sms=28,memory=12GB"
    assert row.peers == {"xMem": 900}
    assert (row.within_bytes, row.skip) == (0, "")


@pytest.mark.parametrize(
    ("line", "head", "message"),
    [
        (f"a,f,{PROGRAM},x,l4,,resrved,1,s,", HEAD, "line 2: 'resrved' is no metric; there are allocated, reserved"),
        (f"a,f,{PROGRAM},x,l4,,reserved,1.5,s,", HEAD, "measured_bytes is '1.5', and should be a whole number"),
        (f"a,f,{PROGRAM},x,l4,,reserved,0,s,", HEAD, "measured_bytes is 0; it is 0 for fits and does_not_fit"),
        (f"a,f,{PROGRAM},x,l4,,fits,7,s,", HEAD, "measured_bytes is 7; it is 0 for fits and does_not_fit"),
        (f"a,f,{PROGRAM},x,l4,,reserved_growth,7,s,", HEAD, "reserved_growth needs the arguments"),
        ("a,f,nowhere.py,x,l4,,reserved,7,s,", HEAD, "there is no program 'nowhere.py' in workloads/"),
        (f"a,f,{PROGRAM},x,l4,,reserved,7,s,,no", HEAD + ",or_sooner", "or_sooner is 'no'; it is yes, or empty."),
        (f"a,f,{PROGRAM},x,l4,,reserved,7,s,,two,0", HEAD + ",world,ranks", "world is 'two', and should be the number"),
        (
            f"a,f,{PROGRAM},x,l4,,reserved,7,s,,2,",
            HEAD + ",world,ranks",
            "world is '2' and ranks ''; a row has both, or",
        ),
        (f"a,f,{PROGRAM},x,l4,,reserved,7,s,", HEAD + ",colour", "has ['colour'] that nobody reads"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, line: str, head: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        read(tmp_path, line, head=head)
    assert message in str(raised.value)


def test_an_id_twice_is_refused(tmp_path: Path) -> None:
    line = f"a,f,{PROGRAM},x,l4,,reserved,7,s,"
    with pytest.raises(ValueError, match="line 3: a row with the id 'a' was there before"):
        read(tmp_path, line, line)


def test_what_growth_is_measured_from_is_part_of_what_is_said(tmp_path: Path) -> None:
    line = f"a,f,{PROGRAM},gpt2 SGD 1,l4,,reserved_growth,7,s,,gpt2 SGD 1 --steps 0"
    (row,) = read(tmp_path, line, head=f"{HEAD},before")
    assert row.said == f"{PROGRAM} gpt2 SGD 1 after gpt2 SGD 1 --steps 0 on l4"


def test_a_rank_of_a_world_is_part_of_what_is_said_and_what_dryfit_is_told(tmp_path: Path) -> None:
    line = f'a,f,{PROGRAM},gpt2 SGD 1,l4,,allocated_in_last_step,7,s,,8,"0,last"'
    (row,) = read(tmp_path, line, head=f"{HEAD},world,ranks")
    assert row.said == f"{PROGRAM} gpt2 SGD 1 as rank 0,last of 8 on l4"
    assert row.world_options == {"world": 8, "ranks": "0,last"}


def test_a_program_alone_has_no_world(tmp_path: Path) -> None:
    (row,) = read(tmp_path, f"a,f,{PROGRAM},gpt2 SGD 1,l4,,reserved,7,s,,,", head=f"{HEAD},world,ranks")
    assert (row.played, row.world_options) == ("", {})


def test_the_committed_rows_name_cards_and_sources() -> None:
    for row in rows.rows():
        assert row.source, row.id
        assert row.skip or find_card(row.card).total_bytes > 0

"""What `dryfit verify` prints, of runs given here."""

from __future__ import annotations

import dataclasses
import io

import pytest

from dryfit.rehearse.result import Ending
from dryfit.report.verify import print_verified, verdict_line
from dryfit.verifying.comparison import FAILED, OUT_OF_MEMORY, STOPPED, Side
from dryfit.verifying.verify import Verified

from ..verifying.sides import CARD, figures, row, side, trained

STOPPED_AS_ASKED = Ending(how="steps", sentence="Stopped after 3 optimiser steps, as asked.")
STEADY = Ending(how="steady", sentence="Stopped after 3 optimiser steps, with the peak unchanged for the last two.")
RAN_OUT = side(figures(0, "setup", 100, 120, 420), outcome=OUT_OF_MEMORY, error_type="OutOfMemoryError")


def verified(real: Side, virtual: Side) -> Verified:
    return Verified(row=row(real, virtual), real_ending=STOPPED_AS_ASKED, virtual_ending=STEADY)


def printed(found: Verified) -> list[str]:
    file = io.StringIO()
    print_verified(found, file)
    return file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("real", "virtual", "line", "code"),
    [
        (
            trained(3), trained(3),
            "ALIKE on NVIDIA L4: allocated and reserved memory are the same to the byte; the total is the same", 0,
        ),
        (
            trained(3, outside=310), trained(3, more=5),
            "ALIKE on NVIDIA L4: allocated memory is off by +1.9704%, reserved memory by +1.6667%; the total is off by "
            "-1.6393%", 0,
        ),
        (
            trained(3, outside=None), trained(3),
            "ALIKE on NVIDIA L4: allocated and reserved memory are the same to the byte; the total is not known", 0,
        ),
        (
            RAN_OUT, RAN_OUT,
            "ALIKE on NVIDIA L4: both runs ran out of memory; allocated and reserved memory are the same to the byte; "
            "the total is the same", 0,
        ),
        (
            RAN_OUT, trained(3),
            "DIFFERENT on NVIDIA L4: the program ran out of memory for real and ran virtually", 1,
        ),
        (
            trained(3), side(outcome=FAILED, error_type="ValueError"),
            "DIFFERENT on NVIDIA L4: the program ran for real and failed virtually", 1,
        ),
        (
            side(outcome=FAILED), side(outcome=FAILED),
            "NOT COMPARED on NVIDIA L4: the program failed both for real and virtually", 2,
        ),
        (
            side(outcome=STOPPED), trained(3),
            "DIFFERENT on NVIDIA L4: the program was stopped for real and ran virtually", 3,
        ),
    ],
)  # fmt: skip
def test_the_first_line_and_the_exit_code(real: Side, virtual: Side, line: str, code: int) -> None:
    found = verified(real, virtual)
    assert verdict_line(found) == line
    assert printed(found)[0] == line
    assert found.exit_code == code


def test_ctrl_c_in_the_real_run() -> None:
    found = verified(side(outcome=STOPPED), trained(3))
    ending = Ending(how="interrupted", sentence="train.py was stopped after 1 optimiser step, by Ctrl-C.")
    assert dataclasses.replace(found, real_ending=ending).exit_code == 130


def test_the_table_and_the_sentences() -> None:
    lines = printed(verified(trained(3, outside=310), trained(3, more=5)))
    assert lines[1] == "NVIDIA L4, 22.03 GiB, driver 550.54.15; rehearsed on l4; torch 2.6.0+cu124."
    assert [line.split("  ")[0] for line in lines[4:12]] == [
        "peak", "setup", "step 1", "step 2", "step 3", "forward", "backward", "optimizer step",
    ]  # fmt: skip
    peaks = "peak 203.00 MiB 207.00 MiB +1.9704% 300.00 MiB 305.00 MiB +1.6667% 610.00 MiB 600.00 MiB -1.6393%"
    assert " ".join(lines[4].split()) == peaks
    assert "Allocated or reserved memory first differs in step 2, backward." in lines
    assert "The card's total, 610.00 MiB, is within what the rehearsal expects, 500.00 MiB to 700.00 MiB." in lines
    assert "For real: Stopped after 3 optimiser steps, as asked." in lines
    assert lines[-1].startswith("| NVIDIA L4 | 550.54.15 | 2.6.0+cu124 | `train.py --batch 8` | 3 | ran | ran | ")


def test_a_card_by_hand_and_a_stand_in_are_told_apart() -> None:
    found = verified(trained(3), trained(3))
    card = dataclasses.replace(CARD, is_virtual=True)
    lines = printed(dataclasses.replace(found, row=dataclasses.replace(found.row, card=card, twin="by hand")))
    assert lines[1] == "NVIDIA L4, 22.03 GiB, driver 550.54.15; rehearsed on a card made by hand; torch 2.6.0+cu124."
    assert (
        "The catalogue has no NVIDIA L4 with 58 multiprocessors, so it was rehearsed as the driver describes it."
        in lines
    )
    assert "The card was a virtual one in place of a real one, so this row says nothing of real cards." in lines


def test_many_steps_are_cut() -> None:
    lines = printed(verified(trained(20), trained(20)))
    assert "... and 12 more steps; the row has them." in lines

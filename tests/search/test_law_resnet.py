"""The law of torchvision's ResNet-152 against rehearsals of their own, where reserved memory scatters about it."""

from __future__ import annotations

from pathlib import Path

import pytest

import dryfit
from dryfit.rehearse.warm import warm_rehearsals
from dryfit.report.fit import law_lines
from dryfit.search.law import Line
from dryfit.units import MIB

pytest.importorskip("torchvision")
PROGRAM = str(Path(__file__).parents[2] / "examples" / "resnet152.py")
CARD = "a100-80gb"


@pytest.fixture(scope="module")
def found() -> dryfit.Fit:
    return dryfit.fit([PROGRAM, "--batch", "{batch}"], gpu=CARD, vary={"batch": "1..64"}, cache=False)


def test_the_law_agrees_with_rehearsals_at_1_8_16_and_64(found: dryfit.Fit) -> None:
    """Tensors lie on a line, cuDNN's choices of plans apart; what is reserved does not, and no law is made of it."""
    law = found.answers[0].law
    assert found.largest == 64
    assert law is not None
    assert isinstance(law.allocated, Line)
    assert (law.allocated.first, law.allocated.last, law.allocated.outside) == (1, 64, ())
    with warm_rehearsals([PROGRAM], gpu=CARD, quiet=True, figures_only=True) as rehearse_one:
        for batch in (1, 8, 16, 64):
            result = rehearse_one([PROGRAM, "--batch", str(batch)])
            for line, peak_bytes in (
                (law.allocated, result.peak_allocated_bytes),
                (law.reserved, result.peak_reserved_bytes),
                (law.total, result.peak_total_bytes),
            ):
                if line is not None and line.first <= batch <= line.last:
                    assert abs(line.at(batch) - peak_bytes) <= line.largest_error_bytes + 64 * MIB
    assert law.allocated.largest_error_bytes < 80 * MIB


def test_it_is_printed_with_its_slope_and_intercept(found: dryfit.Fit) -> None:
    total, reserved, allocated = law_lines(found, found.answers[0])
    assert allocated.startswith("peak allocated = ")
    assert " x batch, linear from 1 to 64 (largest error " in allocated
    for line in (total, reserved):
        assert " x batch, linear from " in line or "no line: less than half of the rehearsals lie on one" in line

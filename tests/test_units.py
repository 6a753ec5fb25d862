from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dryfit.errors import UsageError
from dryfit.units import GIB, MIB, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("24GiB", 24 * GIB),
        ("24 gib", 24 * GIB),
        ("24G", 24 * GIB),
        ("141GB", 141 * 10**9),
        ("1.5MiB", 3 * MIB // 2),
        (".5GiB", GIB // 2),
        ("512", 512),
        ("7B", 7),
        ("2TB", 2 * 10**12),
        ("9" * 30, int("9" * 30)),
    ],
)
def test_sizes_as_people_write_them(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "24 GPUs", "-1GiB", "1e9", "24GiB!", "nan", "9" * 400, "١٢GiB GiB"])
def test_what_is_not_a_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is not an amount of memory; write a number and a unit, such as 24GiB"):
        parse_bytes(text)


def test_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="'0GiB' is not an amount of memory: it has to be above zero"):
        parse_bytes("0GiB")


@given(st.integers(min_value=1, max_value=1 << 50))
def test_a_printed_size_reads_back_within_the_printed_digits(size_bytes: int) -> None:
    assert abs(parse_bytes(format_bytes(size_bytes)) - size_bytes) <= size_bytes * 0.005 + 1


@given(st.integers(min_value=-(1 << 50), max_value=-1))
def test_the_sign_is_kept(size_bytes: int) -> None:
    assert format_bytes(size_bytes) == "-" + format_bytes(-size_bytes)

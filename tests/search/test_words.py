"""Placeholders, their values, and what is wrong with either, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dryfit.errors import UsageError
from dryfit.search.words import numbers_of, sweep_of

WORDS = ["train.py", "--batch", "{batch}", "--seq", "{seq}"]


def test_batch_without_values_is_searched_and_the_others_make_rows() -> None:
    sweep = sweep_of(WORDS, {"seq": "512,1024"})
    assert (sweep.searched, sweep.values) == ("batch", range(1, 4097))
    assert sweep.rows == ({"seq": "512"}, {"seq": "1024"})
    assert sweep.command(sweep.rows[1], 8) == ["train.py", "--batch", "8", "--seq", "1024"]


def test_with_values_for_all_the_first_named_is_searched() -> None:
    sweep = sweep_of(WORDS, {"seq": "128..2048..128", "batch": "8,16"})
    assert (sweep.searched, sweep.values) == ("seq", range(128, 2049, 128))
    assert sweep.rows == ({"batch": "8"}, {"batch": "16"})


def test_a_single_placeholder_may_have_any_name_and_stand_inside_a_word_more_than_once() -> None:
    sweep = sweep_of(["-m", "train", "data.size={n}", "out/{n}.pt", "{{n}}"], {})
    assert (sweep.searched, sweep.rows) == ("n", ({},))
    assert sweep.command({}, 3) == ["-m", "train", "data.size=3", "out/3.pt", "{n}"]


def test_rows_of_several_placeholders_are_all_their_combinations_and_may_be_words() -> None:
    sweep = sweep_of([*WORDS, "--dtype={dtype}"], {"seq": "512,1024", "dtype": ["fp16", "bf16"]})
    assert [tuple(row.values()) for row in sweep.rows] == [
        ("512", "fp16"), ("512", "bf16"), ("1024", "fp16"), ("1024", "bf16"),
    ]  # fmt: skip


def test_braces_that_hold_no_name_are_the_programs_own() -> None:
    words = ['{"lr": 1}', "{}", "{0}", "{batch}", "{{epoch}}-{batch}"]
    assert sweep_of(words, {}).command({}, 2) == ['{"lr": 1}', "{}", "{0}", "2", "{epoch}-2"]


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ("1..4", [1, 2, 3, 4]),
        ("8..40..16", [8, 24, 40]),
        ("32, 8,16,8", [8, 16, 32]),
        ("7", [7]),
        (range(2, 9, 3), [2, 5, 8]),
        (range(8, 2, -3), [5, 8]),
        ([3, 1, 2], [1, 2, 3]),
        (("4", "2"), [2, 4]),
    ],
)
def test_numbers(given: Any, numbers: list[int]) -> None:
    assert list(numbers_of("batch", given)) == numbers


@pytest.mark.parametrize(
    ("words", "vary", "sentence"),
    [
        (
            ["train.py", "--batch", "8"], {},
            "There is nothing to search: no word of the program holds a placeholder. Write {batch} where the number "
            "stands, as in: dryfit fit --gpu l4 train.py --batch-size {batch}",
        ),
        (
            ["train.py", "{batch}"], {"bach": "1..8"},
            "--vary bach has no place to go: no word of the program holds {bach}; there is {batch}.",
        ),
        (
            WORDS, {},
            "{seq} stands for nothing: give it values, as in --vary seq=1..512, or write {{seq}} if the program is to "
            "get {seq} as it is.",
        ),
        (
            ["train.py", "{batch}", "{epoch}"], {"batch": "1..8"},
            "{epoch} stands for nothing: give it values, as in --vary epoch=1..512, or write {{epoch}} if the program "
            "is to get {epoch} as it is.",
        ),
        (
            ["batch=2", "batch=3", "train.py", "{batch}"], {"batch": "1"},
            "The program begins with batch=2: the shell has made several words of a range in braces. Write it without: "
            "--vary batch=1..512",
        ),
        (
            ["train.py", "{batch}"], {"batch": "{1..512}"},
            "--vary batch={1..512}: a range is written without braces: 1..512",
        ),
        (
            ["train.py", "{batch}"], {"batch": "small,large"},
            "--vary batch=small,large: 'small' is not a whole number, and the largest that fits is searched among "
            "numbers. Name the numbers first (--vary batch=1..512), and words for the rows of the table after them.",
        ),
        (
            ["train.py", "{batch}"], {"batch": "1...512"},
            "--vary batch=1...512 is no range; write first..last, or first..last..step: 1..512, 8..512..8",
        ),
        (
            ["train.py", "{batch}"], {"batch": "512..1"},
            "--vary batch=512..1 goes down; write the smaller number first: 1..512",
        ),
        (["train.py", "{batch}"], {"batch": "1..8..0"}, "--vary batch=1..8..0 has a step of 0; the smallest is 1."),
        (
            ["train.py", "{batch}"], {"batch": "0..8"},
            "--vary batch=0..8 begins at 0; the smallest value that can be searched is 1.",
        ),
        (
            ["train.py", "{batch}"], {"batch": "8,,16"},
            "--vary batch=8,,16 has an empty value in it; write values with commas between: batch=512,1024",
        ),
        (["train.py", "{batch}"], {"batch": []}, "vary={'batch': []} has no value to try."),
        (
            ["train.py", "{batch}"], {"batch": 8},
            "vary={'batch': 8} is neither a range nor a list of values; write '1..512' or [8, 16].",
        ),
        (
            ["train.py", "{batch}"], {"batch": "1..9999999"},
            "--vary batch=1..9999999 has 9999999 values, and 1048576 are the most; give a step: 1..N..STEP.",
        ),
        (
            WORDS, {"seq": "1..2048"},
            "{seq} would make more than 64 rows, each a search of its own. List fewer values, as in: "
            "--vary seq=512,1024,2048",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_said(words: Sequence[str], vary: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        sweep_of(words, vary)
    assert str(raised.value) == sentence

"""What `--assume` takes, and the sentences about what it does not."""

from __future__ import annotations

import pytest

from dryfit.errors import UsageError
from dryfit.rehearse.assumptions import notes, parse


def test_settings_come_as_text_lists_and_mappings() -> None:
    text = [str(each) for each in parse(" nonzero=0.50, routing=worst,,a b/train.py:41=1e-2 ,item=-3")]
    assert text == ["nonzero=0.5", "routing=worst", "a b/train.py:41=0.01", "item=-3"]
    assert [str(each) for each in parse(["unique=1", "nms=0,turns=9"])] == ["unique=1", "nms=0", "turns=9"]
    assert [str(each) for each in parse({"repeats": 2.5, "x.py:1": "even"})] == ["repeats=2.5", "x.py:1=even"]
    assert parse(text) == parse(",".join(text))
    assert parse("") == parse([]) == parse({}) == ()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("nonzero", "--assume nonzero cannot be read; write a name and a value, as in --assume nonzero=0.5"),
        ("=3", "--assume =3 cannot be read; write a name and a value, as in --assume nonzero=0.5"),
        ("nms=", "--assume nms= cannot be read; write a name and a value, as in --assume nonzero=0.5"),
        (
            "nonzero=2",
            "--assume nonzero=2: nonzero is the share of a mask that is kept, and takes a share from 0 to 1; write "
            "--assume nonzero=0.5, for one.",
        ),
        (
            "unique=-0.1",
            "--assume unique=-0.1: unique is the share of values that is distinct, and takes a share from 0 to 1; "
            "write --assume unique=0.1, for one.",
        ),
        (
            "nms=nan",
            "--assume nms=nan: nms is the share of boxes that is kept, and takes a share from 0 to 1; write --assume "
            "nms=0.1, for one.",
        ),
        (
            "routing=fair",
            "--assume routing=fair: routing is how choices are spread, and takes even or worst; write --assume "
            "routing=worst, for one.",
        ),
        ("item=inf", "--assume item=inf: item is the number that is read, and takes a number; write --assume item=0.5, "
         "for one."),
        (
            "turns=1.5",
            "--assume turns=1.5: turns is how many turns an endless loop takes, and takes a whole number, 1 or more; "
            "write --assume turns=256, for one.",
        ),
        (
            "nonzeros=1",
            "--assume nonzeros=1: nothing is called nonzeros (is nonzero meant?). There are nonzero, unique, nms, "
            "routing, item, repeats, turns, and lines of the program, as in --assume train.py:41=0.25",
        ),
        (
            ":3=1",
            "--assume :3=1: nothing is called :3. There are nonzero, unique, nms, routing, item, repeats, turns, and "
            "lines of the program, as in --assume train.py:41=0.25",
        ),
        ("x.py:0=1", "--assume x.py:0=1: 0 is no line of x.py; lines are counted from 1."),
        ("x.py:³=1", "--assume x.py:³=1: ³ is no line of x.py; lines are counted from 1."),
        (
            "x.py:3=half",
            "--assume x.py:3=half: half is neither a number nor even nor worst; write --assume x.py:3=0.25, for one.",
        ),
        ("nms=1,nms=0", "--assume nms is given twice, as nms=1 and as nms=0; keep one."),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_said_with_what_can(given: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(given)
    assert str(raised.value) == sentence


def test_a_place_is_a_line_of_a_file_whose_path_ends_so() -> None:
    (place,) = parse("package/train.py:41=0.5")
    assert place.is_at("/home/me/package/train.py", 41)
    assert not place.is_at("/home/me/package/train.py", 4)
    assert not place.is_at("/home/me/otherpackage/train.py", 41)
    assert not place.is_at("train.py", 41)


def test_a_place_counts_as_asked_if_one_process_asked() -> None:
    assert notes([{"x.py:3=1": ""}, {"x.py:3=1": "used"}, {"x.py:3=1": "nonzero"}]) == []
    assert notes([{"x.py:3=9": "nonzero"}, {"x.py:3=9": ""}]) == [
        "--assume x.py:3=9 changed nothing: nonzero is asked there, which takes a share from 0 to 1."
    ]

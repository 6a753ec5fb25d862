"""The catalogue of measures: their words, as `dryfit run --with` takes them, and the page that lists them."""

from __future__ import annotations

import pytest

from dryfit.errors import UsageError
from dryfit.measures.catalogue import all_measures, measures_of
from dryfit.measures.measure import PYTORCH, TRANSFORMERS_MODEL, WAYS

from . import table


def test_words_become_measures_with_their_options() -> None:
    found = measures_of(["micro-batch:4:placed", "zero-grad", "chunked-cross-entropy", "zero-grad"])
    assert [(measure.name, option) for measure, option in found] == [
        ("zero-grad", ""),
        ("micro-batch", "4:placed"),
        ("chunked-cross-entropy", "8"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "There is no measure 'nonsense'; there are expandable-segments, "),
        (["lora", "qlora"], "lora and qlora do not go together; choose one of them."),
        (["zero-grad:4"], "zero-grad has no options, and zero-grad:4 names one; write zero-grad alone."),
        (
            ["micro-batch"],
            "micro-batch needs a number, 1 or more, which micro-batch alone does not give; write micro-batch:4",
        ),
        (["micro-batch:x"], "micro-batch needs a number, 1 or more, which micro-batch:x does not give"),
        (["micro-batch:-2"], "micro-batch needs a number, 1 or more, which micro-batch:-2 does not give"),
        (["micro-batch:2:place"], "micro-batch needs a number, 1 or more, which micro-batch:2:place does not give"),
        (["chunked-cross-entropy:0"], "which chunked-cross-entropy:0 does not give; write chunked-cross-entropy:8"),
        (
            ["micro-batch:2", "micro-batch:4"],
            "micro-batch is named twice, as micro-batch:2 and as micro-batch:4; choose one of them.",
        ),
    ],
)
def test_words_that_cannot_be_are_said(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        measures_of(words)
    assert said in str(caught.value)


def test_the_page_lists_every_measure() -> None:
    assert table.written() == table.table(), "python -m tests.measures.table writes it"


def test_each_is_a_word_a_sentence_and_a_snippet() -> None:
    names = [measure.name for measure in all_measures()]
    assert len(names) == len(set(names))
    for measure in all_measures():
        assert not set(measure.name) & set(" ,:+")
        assert measure.what.endswith(".")
        assert PYTORCH in measure.snippets
        assert set(measure.snippets) <= {*WAYS, TRANSFORMERS_MODEL}
        assert measure.without <= set(names)

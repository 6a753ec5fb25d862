"""What `--longest` reads, measures, chooses and says; the rehearsals are in test_longest.py."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import data

import dryfit
from dryfit import cli
from dryfit.errors import UsageError
from dryfit.rehearse import longest
from dryfit.rehearse.inside.longest import looking, order
from dryfit.rehearse.inside.longest.ahead import Ahead
from dryfit.rehearse.inside.longest.asked import Asked, asked_of, checked
from dryfit.rehearse.inside.longest.choosing import largest_of, longest_batch, padded_elements, percentile_of
from dryfit.rehearse.inside.longest.differing import differ
from dryfit.rehearse.inside.longest.looking import Choice, choice_of, random_state_kept, sizes_of
from dryfit.rehearse.inside.longest.sizes import Shapes, is_on_card, shapes_of, tensors_in
from dryfit.rehearse.inside.stopping import seen_enough
from dryfit.rehearse.processes import Process

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("max", Asked(percentile=100, batches=0)),
        ("max:200", Asked(percentile=100, batches=200)),
        ("p99", Asked(percentile=99, batches=100)),
        ("p99.5:1000", Asked(percentile=99.5, batches=1000)),
        ("p100", Asked(percentile=100, batches=100)),
    ],
)
def test_what_can_be_asked_for(text: str, asked: Asked) -> None:
    assert asked_of(text) == asked


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("p200", "--longest=p200 is no percentile: it is above 0 and at most 100; write nothing, or =max, =p99"),
        ("p0", "--longest=p0 is no percentile: it is above 0 and at most 100"),
        ("max:0", "--longest=max:0 looks at no batch; the number after the colon has to be 1 or more."),
        ("99", "--longest=99 cannot be read; write nothing, or =max, =p99 (of 100 batches), =p99:500 or =max:500."),
        ("p-1", "--longest=p-1 cannot be read"),
    ],
)
def test_what_cannot_be_asked_for(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        asked_of(text)
    assert str(caught.value).startswith(sentence)


def test_from_python_it_is_a_bool_or_the_same_text() -> None:
    assert [checked(each) for each in (False, True, "p99", "")] == ["", "max", "p99", ""]
    with pytest.raises(UsageError, match="--longest=p200 is no percentile"):
        dryfit.run(["-m", "json.tool"], longest="p200")


@pytest.mark.parametrize(
    ("words", "asked", "program"),
    [
        (["run", "train.py"], "", ["train.py"]),
        (["run", "--longest", "train.py", "--lr", "1"], "max", ["train.py", "--lr", "1"]),
        (["run", "--longest=p99", "train.py"], "p99", ["train.py"]),
        (["run", "--gpu", "l4", "--longest=p99:500", "--quiet", "train.py"], "p99:500", ["train.py"]),
        (["fit", "--gpu", "l4", "--longest", "train.py", "{batch}"], "max", ["train.py", "{batch}"]),
        (["plan", "--longest=max:200", "--gpu", "l4", "train.py"], "max:200", ["train.py"]),
        (["run", "train.py", "--longest=9"], "", ["train.py", "--longest=9"]),
        (["run", "--longest", "train.py", "--longest=9"], "max", ["train.py", "--longest=9"]),
    ],
)
def test_on_the_command_line(words: list[str], asked: str, program: list[str]) -> None:
    arguments = cli.parser(words).parse_args(words)
    assert (arguments.longest, arguments.program) == (asked, program)


def test_any_three_places_in_a_row_hold_two_of_the_longest() -> None:
    for at_once in (False, True):
        given_at = [order.is_for_longest(place, at_once=at_once) for place in range(30)]
        assert all(sum(given_at[start : start + 3]) == 2 for start in range(28))
        assert given_at[0] is at_once


def test_it_comes_at_once_where_there_is_no_time_for_another() -> None:
    assert [order.has_to_come_at_once(*each) for each in ((1, 9), (None, 2), (2, 9), (None, None), (0, 1))] == [
        True, True, False, False, True,
    ]  # fmt: skip


class Thing:
    def __init__(self) -> None:
        self._store = {"x": torch.zeros(7, 3)}
        self.name = None


@pytest.mark.parametrize(
    ("value", "shapes"),
    [
        ({"input_ids": [1, 2, 3], "label": 1}, {"input_ids": (3,)}),
        ((torch.zeros(3, 8, 9), 4), {"0": (3, 8, 9)}),
        (torch.zeros(5), {"": (5,)}),
        (numpy.zeros((2, 4)), {"": (2, 4)}),
        ("a text", {"": (6,)}),
        ({"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]]}, {"boxes[]": (2, 4)}),
        ([torch.zeros(3, 8), torch.zeros(3, 5)], {"[]": (2, 3, 8)}),
        ([{"ids": [1, 2]}, {"ids": [1, 2, 3]}], {"[].ids": (2, 3)}),
        (Thing(), {"store.x": (7, 3)}),
        ({"nothing": None, "flag": True, "empty": []}, {"empty": (0,)}),
    ],
)
def test_shapes(value: Any, shapes: Shapes) -> None:
    assert shapes_of(value) == shapes


def test_tensors_of_a_call_whatever_their_order_of_dimensions() -> None:
    assert tensors_in((torch.zeros(512, 8),)) == tensors_in({"ids": torch.zeros(8, 512)})
    assert not is_on_card({"ids": torch.zeros(8)})


def test_an_object_that_holds_itself_comes_to_an_end() -> None:
    thing = Thing()
    thing._store["self"] = thing  # type: ignore[assignment]
    assert shapes_of(thing)["store.x"] == (7, 3)
    assert tensors_in(thing) == {(3, 7)}


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.floats(0.1, 100))
def test_percentile(values: list[int], percentile: float) -> None:
    chosen = values[percentile_of(values, percentile)]
    no_larger = sum(value <= chosen for value in values)
    smaller = sum(value < chosen for value in values)
    assert no_larger >= len(values) * percentile / 100 - 1e-9
    assert smaller < len(values) * percentile / 100 + 1e-9


@pytest.mark.parametrize(("percentile", "length"), [(1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_percentiles_of_a_hundred(percentile: float, length: int) -> None:
    lengths = random.Random(3).sample(range(1, 101), 100)
    assert lengths[percentile_of(lengths, percentile)] == length


@given(
    st.dictionaries(st.integers(0, 99), st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=3, max_size=20),
    st.integers(3, 6),
)
def test_no_batch_is_padded_to_more_than_the_longest(sizes: dict[int, tuple[int, int]], count: int) -> None:
    """With two lengths that are padded apart, as of inputs and labels, three samples reach the largest of both."""
    shapes = {index: {"input_ids": (first,), "labels": (second,)} for index, (first, second) in sizes.items()}
    chosen = longest_batch(shapes, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(sizes))
    most = len(chosen) * (max(first for first, _ in sizes.values()) + max(second for _, second in sizes.values()))
    assert padded_elements([shapes[index] for index in chosen]) == most


def test_one_sample_is_the_one_with_most_elements() -> None:
    wide, high, large = {"image": (3, 10, 90)}, {"image": (3, 80, 10)}, {"image": (3, 60, 60)}
    assert longest_batch({"wide": wide, "high": high, "large": large}, 1) == ["large"]
    assert set(longest_batch({"wide": wide, "high": high, "large": large}, 3)) == {"wide", "high", "large"}


def test_of_a_token_budget_the_batch_with_most_padded_elements() -> None:
    shapes = {index: {"": (length,)} for index, length in enumerate((10, 10, 10, 25, 12, 12))}
    assert largest_of([[0, 1, 2], [3], [4, 5]], shapes) == [0, 1, 2]


class Lengths(data.Dataset[list[int]]):
    """Lists of these lengths; reading draws from every generator, and counts."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.reads = lengths, 0

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> list[int]:
        self.reads += 1
        random.random(), numpy.random.rand(), torch.rand(1)
        if self.lengths[index] < 0:
            raise ValueError("a broken file.")
        return [0] * self.lengths[index]


class Grouped(data.Sampler[list[int]]):
    """Batches by a budget; it keeps count of its epochs."""

    def __init__(self, dataset: Lengths) -> None:
        self.dataset, self.epochs = dataset, 0

    def __iter__(self) -> Any:
        self.epochs += 1
        return iter([[0, 1], [2], [3, 4, 5]])


def test_samplers_of_torch_that_shuffle_can_give_any_samples_together() -> None:
    dataset = Lengths([3, 4, 5, 6])
    shuffled = choice_of(data.DataLoader(dataset, batch_size=2, shuffle=True))
    assert shuffled == Choice(indices=range(4), batch_size=2)
    weighted = data.WeightedRandomSampler([0.0, 1.0, 1.0, 0.0], 4)
    assert choice_of(data.DataLoader(dataset, batch_size=2, sampler=weighted)) == Choice(indices=[1, 2], batch_size=2)
    of_rank = data.DistributedSampler(dataset, num_replicas=2, rank=1)
    assert choice_of(data.DataLoader(dataset, batch_size=2, sampler=of_rank)) == Choice(indices=range(4), batch_size=2)


def test_other_samplers_give_their_own_batches_and_are_left_as_they_were() -> None:
    dataset = Lengths([3, 4, 5, 6, 7, 8])
    in_order = choice_of(data.DataLoader(dataset, batch_size=4))
    assert in_order is not None and in_order.batches == [[0, 1, 2, 3], [4, 5]]
    sampler = Grouped(dataset)
    grouped = choice_of(data.DataLoader(dataset, batch_sampler=sampler))
    assert grouped is not None and grouped.batches == [[0, 1], [2], [3, 4, 5]]
    assert sampler.epochs == 0
    unbatched = choice_of(data.DataLoader(dataset, batch_size=None))
    assert unbatched is not None and unbatched.batches == [[index] for index in range(6)]


def test_a_sampler_that_cannot_be_copied_is_not_run() -> None:
    once = (each for each in [[0, 1], [2]])
    assert choice_of(data.DataLoader(Lengths([3, 4, 5]), batch_sampler=once)) is None  # type: ignore[arg-type]
    assert next(once) == [0, 1]


def test_reading_skips_what_cannot_be_read_and_keeps_the_random_state() -> None:
    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    expected = random.random(), float(numpy.random.rand()), torch.rand(1).item()
    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    with random_state_kept():
        sizes = sizes_of(Lengths([3, -1, 5, -1]), range(4))
    assert sizes.by_index == {0: {"": (3,)}, 2: {"": (5,)}}
    assert (sizes.unreadable, sizes.failure) == (2, "ValueError: a broken file.")
    assert (random.random(), float(numpy.random.rand()), torch.rand(1).item()) == expected


def test_reading_ends_after_a_time_or_a_thousand_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = Lengths([7] * 5000)
    assert 1000 <= len(sizes_of(alike, range(5000)).by_index) < 1100
    monkeypatch.setattr(looking, "MOST_SECONDS", 0.0)
    slow = Lengths(list(range(1, 5001)))
    assert len(sizes_of(slow, range(5000)).by_index) <= 1


def test_samples_that_are_read_many_at_once_are_read_so() -> None:
    class Many(Lengths):
        def __getitems__(self, indices: list[int]) -> list[list[int]]:
            return [[0] * self.lengths[index] for index in indices]

    dataset = Many([3, 4, 5])
    assert sizes_of(dataset, range(3)).by_index == {0: {"": (3,)}, 1: {"": (4,)}, 2: {"": (5,)}}
    assert dataset.reads == 0


def test_batches_drawn_ahead_come_in_their_order_with_the_error_in_its_place() -> None:
    def program() -> Any:
        yield from ([1], [1, 2], [1, 2, 3])
        raise ValueError("a broken shard")

    own = program()
    ahead = Ahead()
    assert ahead.draw(lambda: next(own), 10) == [[1], [1, 2], [1, 2, 3]]
    assert [ahead.next(lambda: next(own)) for _ in range(3)] == [[1], [1, 2], [1, 2, 3]]
    with pytest.raises(ValueError, match="a broken shard"):
        ahead.next(lambda: next(own))
    with pytest.raises(StopIteration):
        ahead.next(lambda: next(own))


def test_a_smaller_last_batch_is_no_other_shape() -> None:
    loader = data.DataLoader(Lengths([1]), batch_size=8)
    whole: Shapes = {"ids": (8, 64), "labels": (8,)}
    assert not differ(loader, [whole, whole, {"ids": (5, 64), "labels": (5,)}])
    assert differ(loader, [whole, {"ids": (8, 63), "labels": (8,)}])
    assert differ(loader, [{"tokens": (4000,)}, {"tokens": (3900,)}])


def test_periods_are_compared_where_batches_come_in_an_order() -> None:
    low, high = (40 * MIB, 90 * MIB), (90 * MIB, 90 * MIB)
    assert seen_enough([low, high, high, low, high], None, period=3) is None
    assert seen_enough([low, high, high, low, high, high], None, period=3) == "steady"
    risen = (90 * MIB, 100 * MIB)
    assert seen_enough([low, high, high, low, risen, risen], None, period=3) is None
    assert seen_enough([low, high, high, low, risen, risen, low, risen, risen], None, period=3) == "steady"


FOUND: dict[str, Any] = {
    "dataset": "Rows", "of": "samples", "measured": "input_ids", "lengths": [61, 128, 480, 512], "looked_at": 2000,
    "there_are": 2000, "unreadable": 0, "failure": "", "not_made": "", "changes": False, "evaluates": False,
    "seconds": 0.1, "times": 2, "percentile": 100.0, "given": {"input_ids": [8, 512], "labels": [8]}, "steps": [2, 3],
}  # fmt: skip


def told(**changes: Any) -> list[str]:
    return longest.notes(process({"asked": True, "batches": [FOUND | changes], "differing": [], "not_given": ""}))


def process(loaders: dict[str, Any]) -> Process:
    sizes = {1: 30, 2: 90, 3: 91, 4: 40}
    return Process(
        pid=1,
        versions={},
        step_peaks=[],
        used_peak_bytes=MIB,
        phase_peaks={},
        steps=4,
        ooms=[],
        end={"loaders": loaders},
        communication={},
        phases_of_steps=[
            (step, {"backward": [size * MIB, 0, 0], "evaluation": [7 * MIB + step * MIB, 0, 0]})
            for step, size in sizes.items()
        ],
    )


def test_what_the_longest_took_is_told() -> None:
    assert told()[-1].startswith("What tensors hold does not depend on when the longest comes; what PyTorch reserves")
    assert told()[:-1] == [
        "Batches of Rows: input_ids of 61 to 512 (p50 128, p99 480) in all 2,000 samples; the longest, input_ids "
        "8 x 512, was rehearsed in steps 2 and 3: 91.00 MiB of tensors, 40.00 MiB in other steps."
    ]
    assert "in 500 of 2,000 samples, taken at random;" in told(looked_at=500)[0]
    assert "in the first 20 batches; that at p99, input_ids" in told(of="batches", looked_at=20, percentile=99)[0]
    assert told(steps=[])[0].endswith("the longest, input_ids 8 x 512, was given 2 times.")
    assert told(evaluates=True)[0].endswith(
        "was evaluated with in steps 2 and 3: 10.00 MiB of tensors, 11.00 MiB in other steps."
    )
    assert "Rows: length 61 to 512" in told(measured="")[0]


def test_what_kept_it_from_being_given_is_told() -> None:
    nothing = {"times": 0, "steps": [], "given": {}}
    assert told(**nothing, lengths=[]) == [
        "All 2,000 samples of Rows are alike in size, and so are its batches: --longest had nothing to do."
    ]
    assert told(**nothing) == [
        "The program took too few batches of Rows for the longest to come: --steps looks further."
    ]
    assert told(**nothing, not_made="KeyError: 'x'") == [
        "The longest batch of Rows could not be made: KeyError: 'x'. Its own came in its place."
    ]
    assert told(unreadable=1, failure="OSError: gone.")[0] == (
        "1 sample of Rows could not be read, the first for OSError: gone; --longest leaves such out."
    )
    assert told(changes=True)[1].startswith("A sample of Rows that was read again had another size, as with random")
    assert longest.notes(process({"asked": True, "batches": []})) == [
        "The program took no batch from a DataLoader of PyTorch's, so --longest had nothing to do."
    ]


def test_without_it_a_note_says_that_the_batches_differ() -> None:
    found = {"dataset": "Rows", "batches": 4, "least": {"ids": [8, 61]}, "most": {"ids": [8, 128]}}
    assert longest.notes(process({"asked": False, "differing": [found]})) == [
        "The batches of Rows differ in shape: of 4 batches the smallest was ids 8 x 61, the largest ids 8 x 128. A "
        "longer one may come later and take more; --longest rehearses the longest that the loader can give."
    ]
    assert longest.notes(None) == []


def test_the_values_of_a_result() -> None:
    [batches] = longest.batches_of(process({"asked": True, "batches": [FOUND]}))
    assert batches.lengths == {"min": 61, "p50": 128, "p99": 480, "max": 512}
    assert (batches.longest_peak_bytes, batches.ordinary_peak_bytes) == (91 * MIB, 40 * MIB)
    assert set(dataclasses.asdict(batches)) == {*FOUND, "longest_peak_bytes", "ordinary_peak_bytes"} - {
        "failure", "not_made", "changes",
    }  # fmt: skip


def test_a_sampler_whose_indices_are_batches_gives_no_choice_of_samples() -> None:
    """`batch_size=None` with a sampler of batches: the data set takes a list of indices at once."""
    given = data.TensorDataset(torch.arange(24))
    sampler = data.BatchSampler(data.SequentialSampler(given), batch_size=8, drop_last=False)
    loader: Any = data.DataLoader(given, sampler=sampler, batch_size=None)  # type: ignore[arg-type]
    assert choice_of(loader) is None

"""Which batches loaders of many kinds give under `--longest`, in this process; rehearsals are in test_longest.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import data
from torch.utils.data import dataloader

from dryfit.rehearse.inside.longest.giving import Longest

LENGTHS = [11, 12, 13, 14, 15, 16, 17, 18, 99, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30]
Begin = Callable[..., Longest]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Put the hook on this process's loaders, to be taken off at the end."""
    monkeypatch.setattr(data.DataLoader, "__iter__", data.DataLoader.__iter__)
    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__next__", dataloader._BaseDataLoaderIter.__next__)

    def begin(asked: str = "max", steps: int | None = None) -> Longest:
        longest = Longest()
        longest.begin_anew(asked, steps)
        longest.watch(dataloader)
        return longest

    return begin


def pad(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def loader_of(dataset: Any, **options: Any) -> data.DataLoader[Any]:
    return data.DataLoader(dataset, **options)


def rows(lengths: list[int] = LENGTHS) -> list[torch.Tensor]:
    return [torch.full((length,), number) for number, length in enumerate(lengths)]


class Stream(data.IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from rows()


def lengths_of(loader: Any) -> list[int]:
    return [batch.shape[1] for batch in loader]


def facts(longest: Longest) -> dict[str, Any]:
    seen = longest.facts()
    assert seen["not_given"] == ""
    [found] = seen["batches"]
    return dict(found)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_longest_comes_twice_in_three_and_the_others_are_the_programs_own(begin: Begin, workers: int) -> None:
    own = list(loader_of(rows(), batch_size=2, collate_fn=pad, num_workers=workers))
    longest = begin()
    given = list(loader_of(rows(), batch_size=2, collate_fn=pad, num_workers=workers))
    assert len(given) == len(own) == 10
    for place, (batch, of_program) in enumerate(zip(given, own, strict=True)):
        if place % 3:
            assert batch.shape == (2, 99)
        else:
            assert torch.equal(batch, of_program)
    found = facts(longest)
    assert found["lengths"] == [11, 21, 99, 99]
    assert (found["looked_at"], found["there_are"], found["times"], found["of"]) == (20, 20, 6, "samples")
    assert found["given"] == {"": [2, 99]}


def test_a_shuffled_loader_gives_the_longest_samples_together(begin: Begin) -> None:
    longest = begin()
    loader = loader_of(rows(), batch_size=4, shuffle=True, collate_fn=pad)
    batches = list(loader)
    assert sorted(batches[1][:, 0].tolist()) == [8, 17, 18, 19]
    assert len(batches) == len(loader)
    assert longest.period == 3


def test_a_program_that_draws_at_random_draws_the_same(begin: Begin) -> None:
    def drawn() -> list[Any]:
        torch.manual_seed(3), random.seed(3)
        loader = loader_of(rows(), batch_size=4, shuffle=True, collate_fn=masked)
        return [(float(torch.rand(1)), random.random()) for _ in loader]

    def masked(samples: list[torch.Tensor]) -> torch.Tensor:
        batch = pad(samples)
        return batch * (torch.rand(len(samples), 1) < random.random())

    before = drawn()
    begin()
    assert drawn() == before


def test_the_percentile_of_batches_and_none_above_it(begin: Begin) -> None:
    longest = begin("p50")
    given = lengths_of(loader_of(rows(), batch_size=2, collate_fn=pad))
    own = [12, 14, 16, 18, 99, 22, 24, 26, 28, 30]
    chosen = sorted(own)[4]
    assert given == [12, 22, 22, 18, chosen, chosen, chosen, chosen, chosen, chosen] and chosen == 22
    assert facts(longest)["looked_at"] == 10


def test_the_longest_of_so_many_batches_only(begin: Begin) -> None:
    longest = begin("max:3")
    given = lengths_of(loader_of(rows(), batch_size=2, collate_fn=pad))
    assert given == [12, 16, 16, 18, 16, 16, 24, 16, 16, 30]
    assert (facts(longest)["looked_at"], facts(longest)["of"]) == (3, "batches")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_gives_the_longest_of_those_it_gave_so_far(begin: Begin, workers: int) -> None:
    longest = begin()
    given = lengths_of(loader_of(Stream(), batch_size=2, collate_fn=pad, num_workers=workers))
    assert given == [12, 99, 99, 18, 99, 99, 24, 99, 99, 30]
    found = facts(longest)
    assert (found["of"], found["looked_at"], found["there_are"], found["unreadable"]) == ("batches", 10, None, 0)


def test_a_stream_that_the_program_changes_in_place_is_given_whole_again(begin: Begin) -> None:
    begin("max:10")
    for place, batch in enumerate(loader_of(Stream(), batch_size=2, collate_fn=lambda rows: {"ids": pad(rows)})):
        assert place % 3 == 0 or batch["ids"].shape == (2, 99)
        batch.pop("ids")


def test_batches_of_a_samplers_own(begin: Begin) -> None:
    longest = begin()
    sampler = [[0, 1, 2, 3], [8], [17, 18, 19], [4, 5]]
    loader = loader_of(rows(), batch_sampler=sampler, collate_fn=pad)
    assert [tuple(batch.shape) for batch in loader] == [(4, 14), (1, 99), (1, 99), (2, 16)]
    assert facts(longest)["there_are"] == 10


def test_a_sampler_that_can_be_run_once_is_looked_at_as_it_runs(begin: Begin) -> None:
    longest = begin()
    sampler = (each for each in [[0, 1], [2, 3], [18, 19], [4, 5]])
    assert lengths_of(loader_of(rows(), batch_sampler=sampler, collate_fn=pad)) == [12, 30, 30, 16]
    assert facts(longest)["of"] == "batches"


def test_a_loader_without_batches_gives_the_longest_sample(begin: Begin) -> None:
    begin()
    given = [len(sample) for sample in loader_of(rows(), batch_size=None)]
    assert given[:4] == [11, 99, 99, 14]


def test_epochs_go_on_where_the_last_one_ended(begin: Begin) -> None:
    longest = begin()
    loader = loader_of(rows()[:8], batch_size=2, collate_fn=pad, num_workers=1, persistent_workers=True)
    assert lengths_of(loader) + lengths_of(loader) == [12, 18, 18, 18, 18, 18, 16, 18]
    made_anew = loader_of(loader.dataset, batch_size=2, collate_fn=pad)
    assert lengths_of(made_anew) == [18, 14, 18, 18]
    assert len(longest.facts()["batches"]) == 1


def test_few_batches_or_one_step_begin_with_the_longest(begin: Begin) -> None:
    begin()
    assert lengths_of(loader_of(rows([1, 2, 3, 9]), batch_size=2, shuffle=True, collate_fn=pad)) == [9, 9]


def test_one_step_is_the_longest(begin: Begin) -> None:
    begin(steps=1)
    assert lengths_of(loader_of(rows(), batch_size=2, collate_fn=pad))[0] == 99


def test_alike_samples_leave_the_programs_batches_as_they_are(begin: Begin) -> None:
    longest = begin()
    loader = loader_of(rows([9] * 11), batch_size=2)
    assert [int(batch[0, 0]) for batch in loader] == [0, 2, 4, 6, 8, 10]
    found = facts(longest)
    assert (found["times"], found["lengths"], found["looked_at"]) == (0, [], 11)
    assert longest.period == 1


def test_samples_alike_whose_collate_function_makes_other_sizes(begin: Begin) -> None:
    sizes = iter([32, 64, 48] * 10)
    longest = begin()
    loader = loader_of(rows([9] * 12), batch_size=2, collate_fn=lambda rows: torch.zeros(2, next(sizes)))
    assert lengths_of(loader) == [32, 64, 64, 32, 64, 64]
    assert facts(longest)["of"] == "batches"


def test_a_collate_function_that_fails_on_it_leaves_the_programs_batch(begin: Begin) -> None:
    def picky(samples: list[torch.Tensor]) -> torch.Tensor:
        if sum(map(len, samples)) >= 59 and len(samples[0]) == 30:
            raise ValueError("too long\nby far")
        return pad(samples)

    longest = begin("max")
    torch.manual_seed(0)
    loader = loader_of(rows([*range(11, 31)]), batch_size=2, shuffle=True, collate_fn=picky)
    assert len(lengths_of(loader)) == 10
    assert facts(longest)["not_made"] == "ValueError: too long\nby far"


def test_a_program_whose_own_batch_fails_fails_there(begin: Begin) -> None:
    class Broken(data.IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            yield from rows()[:6]
            raise ValueError("a broken shard")

    begin()
    seen = []
    with pytest.raises(ValueError, match="a broken shard"):
        for batch in loader_of(Broken(), batch_size=2, collate_fn=pad):
            seen.append(batch.shape[1])
    assert seen == [12, 16, 16]


def test_random_crops_are_told(begin: Begin) -> None:
    class Crops(data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.zeros(random.randint(10, 10_000))

    longest = begin()
    list(loader_of(Crops(), batch_size=2, shuffle=True, collate_fn=pad))
    assert facts(longest)["changes"] is True


def test_the_step_of_the_longest_is_known_by_the_shapes_of_a_models_call(begin: Begin) -> None:
    longest = begin()
    loader = loader_of([(row, 1) for row in rows()], batch_size=2, collate_fn=labelled)
    for step, (ids, labels) in enumerate(loader, start=1):
        longest.model_called(step, "forward", (ids.T, labels), {})
    assert facts(longest)["steps"] == [2, 3, 5, 6, 8, 9]
    assert facts(longest)["evaluates"] is False


def labelled(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return pad([row for row, _ in samples]), torch.tensor([label for _, label in samples])


def test_without_being_asked_batches_are_only_noted(begin: Begin) -> None:
    longest = begin("")
    assert lengths_of(loader_of(rows(), batch_size=2, collate_fn=pad))[:3] == [12, 14, 16]
    assert longest.facts()["differing"] == [
        {"dataset": "list", "batches": 10, "least": {"": [2, 12]}, "most": {"": [2, 99]}}
    ]
    assert longest.facts()["batches"] == []

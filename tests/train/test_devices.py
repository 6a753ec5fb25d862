"""`to_device`: what comes, in which order, and how many batches a card holds meanwhile."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
import torch
from tests.train.on_card import MIB, found_on_card
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from dryfit.errors import UsageError
from dryfit.train.devices import to_device

BATCH_BYTES = 4 * MIB


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_a_card_holds_the_batch_at_hand_and_as_many_as_are_asked_for(prefetch: int) -> None:
    held = found_on_card()["to_the_device"]["held"][str(prefetch)]
    in_batches = [round(each / BATCH_BYTES, 2) for each in held]
    ahead = [min(prefetch, 4 - at) for at in range(5)]
    assert in_batches == [1 + each for each in ahead]


def test_the_callers_stream_is_recorded_for_all_that_was_copied() -> None:
    found = found_on_card()["to_the_device"]
    assert found["moved"] == ["cuda:0", "cuda:0"]
    assert [size for size, is_callers in found["recorded"] if is_callers] == [16, 4, 20]
    assert all(is_callers for _, is_callers in found["recorded"])


def test_what_moves_itself_and_what_is_there_already() -> None:
    found = found_on_card()["to_the_device"]
    assert found["packed"] == ["cuda:0", "cpu"]  # as the sizes of a PackedSequence have to be
    assert found["as it was"] == [True, "a"]


def test_a_loader_is_gone_through_in_order_once_per_epoch_and_has_its_length() -> None:
    loader = DataLoader(TensorDataset(torch.arange(7)), batch_size=2)
    batches = to_device(loader, "cpu", prefetch=2)
    assert len(batches) == 4
    for _ in range(2):
        assert [batch[0].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5], [6]]


def test_nothing_is_read_ahead_on_the_host() -> None:
    read = []

    def numbers() -> Iterator[torch.Tensor]:
        for number in itertools.count():
            read.append(number)
            yield torch.tensor(number)

    batches = to_device(numbers(), "cpu")
    assert int(next(iter(batches))) == 0
    assert read == [0]
    with pytest.raises(TypeError, match="generator has no length, so neither has to_device of it"):
        len(batches)


@dataclass
class Fields:
    inputs: torch.Tensor
    name: str


Pair = namedtuple("Pair", "one other")


def test_batches_of_every_kind_keep_their_classes() -> None:
    from transformers import BatchEncoding

    rows = torch.zeros(2, 3)
    counts = defaultdict(list, a=rows)
    batch = [
        rows, (rows, 1), {"a": [rows]}, OrderedDict(a=rows), counts, Pair(rows, "b"), Fields(rows, "c"),
        BatchEncoding({"input_ids": rows}), MappingProxyType({"a": rows}), pack_sequence([torch.zeros(3)]), None, "d",
    ]  # fmt: skip
    (moved,) = to_device([batch], "meta")
    assert [type(each) for each in moved] == [
        type(each) if type(each) is not MappingProxyType else dict for each in batch
    ]
    places = [
        moved[0], moved[1][0], moved[2]["a"][0], moved[3]["a"], moved[4]["a"], moved[5].one, moved[6].inputs,
        moved[7]["input_ids"], moved[8]["a"], moved[9].data,
    ]  # fmt: skip
    assert {each.device.type for each in places} == {"meta"}
    assert rows.device.type == counts["a"].device.type == "cpu"
    assert moved[4].default_factory is list
    assert (moved[1][1], moved[5].other, moved[6].name, *moved[10:]) == (1, "b", "c", None, "d")


class Table(MutableMapping[str, torch.Tensor]):
    """A mapping whose copy shares its columns with it."""

    def __init__(self) -> None:
        self.columns = {"a": torch.zeros(2)}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.columns[name]

    def __setitem__(self, name: str, column: torch.Tensor) -> None:
        self.columns[name] = column

    def __delitem__(self, name: str) -> None:
        del self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class Moving(Table):
    def to(self, device: torch.device) -> str:
        return f"moved to {device}"


def test_the_loaders_own_mappings_are_left_alone() -> None:
    table = Table()
    moved, other = to_device([table, Moving()], "meta")
    assert moved["a"].device.type == "meta" and table["a"].device.type == "cpu"
    assert other == "moved to meta"


@pytest.mark.parametrize("prefetch", [-1, 1.5, None, True])
def test_a_prefetch_that_is_no_number_is_refused(prefetch: Any) -> None:
    with pytest.raises(UsageError, match=f"prefetch={prefetch} is no number of batches; it has to be 0 or more"):
        to_device([], "cpu", prefetch=prefetch)


def test_an_error_of_the_loader_passes_through() -> None:
    def raising() -> Iterator[torch.Tensor]:
        yield torch.zeros(1)
        raise KeyError("second")

    batches = iter(to_device(raising(), "cpu"))
    next(batches)
    with pytest.raises(KeyError, match="second"):
        next(batches)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for where there is no card")
def test_without_a_card_pytorch_says_so() -> None:
    with pytest.raises((RuntimeError, AssertionError), match=r"NVIDIA|CUDA"):
        next(iter(to_device([torch.zeros(1)], "cuda")))

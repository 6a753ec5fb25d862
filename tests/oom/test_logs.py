"""Whole logs: ranks at once, prefixes, colours, wrapped lines, repetitions, and length."""

from __future__ import annotations

import textwrap
import time

import pytest

from dryfit.oom import OomMessage, read_messages

from .texts import PART_C, Text, gib, mib

TEXTS = {text.name.split()[0]: text.text for text in PART_C}


def _of_rank(rank: int, asked: str = "1.50 GiB") -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU {rank} has a total capacity of "
        f"47.41 GiB of which 270.69 MiB is free. Including non-PyTorch memory, this process has 47.1{rank} GiB memory "
        "in use. Of the allocated memory 33.18 GiB is allocated by PyTorch, and 13.19 GiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
        "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def _ranks(messages: tuple[OomMessage, ...]) -> list[tuple[int | None, int | None]]:
    return [(message.rank, message.device) for message in messages]


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank{}]: ",
        "[rank{}]:",
        "rank{}: ",
        "Rank {}: ",
        "[rank: {}] ",
        "[Rank {}] ",
        "[default{}]:",
        "[default{0}]:[rank{0}]: ",
        "{}: ",
        "[1,{}]<stderr>:",
        "2026-05-08 11:47:02.257 [rank{}]: ",
        "2025-11-12T11:25:13.4961658Z [rank{}]: ",
        "\x1b[31m[rank{}]:\x1b[0m \x1b[1m",
        "[12:00:01] [rank{}]: ",
    ],
)
def test_each_rank_has_its_own_message(prefix: str) -> None:
    before = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    step()"]
    lines = [prefix.format(rank) + line for line in before for rank in (0, 1, 2)]
    lines += [prefix.format(rank) + _of_rank(rank) for rank in (0, 1, 2)]
    messages = read_messages("\n".join(lines))
    assert _ranks(messages) == [(0, 0), (1, 1), (2, 2)]
    assert [message.process_bytes for message in messages] == [gib(47.10), gib(47.11), gib(47.12)]


def test_ranks_that_write_a_message_of_several_lines_at_once() -> None:
    lines = TEXTS["19"].splitlines()
    other = TEXTS["19"].replace("16.66 GiB", "11.11 GiB").replace("31.27 MiB", "2.00 MiB").splitlines()
    log = [f"[rank{rank}]: {line}" for pair in zip(lines, other, strict=True) for rank, line in enumerate(pair)]
    messages = read_messages("\n".join(log))
    assert [message.rank for message in messages] == [0, 1]
    assert [message.requested_bytes for message in messages] == [mib(31.27), mib(2)]
    assert [message.allocated_bytes for message in messages] == [gib(16.66), gib(11.11)]


@pytest.mark.parametrize("source", ["(WorkerDict pid={}) ", "(pid={}, ip=172.31.41.219) ", "worker-{}  | "])
def test_workers_without_a_rank_are_kept_apart(source: str) -> None:
    wrapped = [_of_rank(at).replace(". GPU", ".\nGPU").splitlines() for at in (0, 1)]
    log = [source.format(10 + at) + line for pair in zip(*wrapped, strict=True) for at, line in enumerate(pair)]
    assert _ranks(read_messages("\n".join(log))) == [(None, 0), (None, 1)]


def test_numbers_of_lines_are_no_ranks() -> None:
    numbered = "\n".join(
        f"{at}: {line}" for at, line in enumerate([*["x"] * 3, *_of_rank(0).replace(". ", ".\n").splitlines()], start=1)
    )
    assert [message.rank for message in read_messages(numbered)] == [None]


def test_a_failure_told_twice_is_one_message_with_its_rank() -> None:
    log = f"{_of_rank(3)}\n[rank3]: {_of_rank(3)}\nERROR:root:{_of_rank(3)}\n[rank4]: {_of_rank(4)}"
    messages = read_messages(log)
    assert [(message.rank, message.count) for message in messages] == [(3, 3), (4, 1)]


def test_messages_come_in_the_order_of_the_log_whatever_their_rank() -> None:
    log = f"[rank1]: start\n[rank0]: start\n[rank0]: {_of_rank(0)}\n[rank1]: {_of_rank(1)}\n{TEXTS['2']}"
    assert _ranks(read_messages(log)) == [(0, 0), (1, 1), (None, 0)]


def test_two_failures_of_one_rank_are_two() -> None:
    messages = read_messages(f"[rank0]: {_of_rank(0)}\nretry\n[rank0]: {_of_rank(0, asked='3.00 GiB')}")
    assert [message.requested_bytes for message in messages] == [gib(1.5), gib(3)]


@pytest.mark.parametrize("text", PART_C, ids=[text.name for text in PART_C])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_wrapped_between_words(text: Text, width: int) -> None:
    whole = text.text
    if "\n" in whole:
        return
    wrapped = "\n".join(textwrap.wrap(whole, width, break_on_hyphens=False, break_long_words=False))
    for log in (wrapped, wrapped.replace("\n", "\r\n"), wrapped.replace("\n", "\n[rank7]: ").join(["[rank7]: ", ""])):
        (message,) = read_messages(log)
        assert dict(message.numbers) == text.numbers
        assert message.format == text.format


@pytest.mark.parametrize("width", [37, 53, 80, 100, 117])
@pytest.mark.parametrize("name", ["2", "3", "4", "6", "7", "8", "9", "13", "14", "17"])
def test_broken_within_words_and_numbers(name: str, width: int) -> None:
    text = next(text for text in PART_C if text.name.split()[0] == name)
    # A terminal's copy: broken at its width, whatever is there.
    broken = "\n".join(text.text[at : at + width] for at in range(0, len(text.text), width))
    (message,) = read_messages(broken)
    assert dict(message.numbers) == text.numbers


def test_a_progress_bar_that_writes_over_itself_and_escapes_of_json() -> None:
    bar = "Epoch 0:  10%|#         | 1/10\rEpoch 0:  20%|##        | 2/10\r"
    assert len(read_messages(bar + _of_rank(1))) == 1
    (message,) = read_messages('{"message": "' + TEXTS["19"].replace("\n", "\\n") + '", "level": "error"}')
    assert message.requested_bytes == mib(31.27)
    assert message.total_bytes == gib(22.13)


def test_a_replica_tells_its_device() -> None:
    log = (
        "RuntimeError: Caught RuntimeError in replica 1 on device 3.\nOriginal Traceback (most recent call last):\n"
        "  output = module(*input)\nRuntimeError: CUDA error: out of memory\n"
    )
    (message,) = read_messages(log)
    assert (message.format, message.device) == ("runtime error", 3)
    # A replica that failed of something else is no message.
    assert read_messages("RuntimeError: Caught RuntimeError in replica 1 on device 3.\nValueError: no") == ()


def test_an_error_during_the_handling_of_another() -> None:
    log = (
        f"{TEXTS['2']}\n\nDuring handling of the above exception, another exception occurred:\n\n"
        f"RuntimeError: {TEXTS['3']}\nW1130 01:00:00.123456 99 torch/elastic/agent.py:900] failed (exitcode: 1)\n"
    )
    assert [message.format for message in read_messages(log)] == ["cuda 1.0", "cuda 1.4"]


def test_a_long_log_takes_little_time_and_no_more_for_its_length() -> None:
    line = "[rank%d]: 2026-05-01 12:00:00,123 step %d loss 0.23 memory 12.3 GiB free; Tried nothing, Error free\n"
    log = "".join(line % (at % 8, at) for at in range(30_000)) + "".join(
        f"[rank{r}]: {_of_rank(r)}\n" for r in range(8)
    )
    began = time.perf_counter()
    messages = read_messages(log)
    once = time.perf_counter() - began
    assert [message.rank for message in messages] == list(range(8))
    assert once < 20  # 0.5 s on one idle core
    began = time.perf_counter()
    read_messages(log * 4)
    assert time.perf_counter() - began < 16 * once


@pytest.mark.parametrize(
    "part",
    [
        "CUDA ",
        "Error: CUDA out of ",
        "\n",
        " ",
        "\x1b[",
        "\x1b]",
        "1",
        "1.",
        "Process 1 has 1 ",
        "(a",
        "[rank1]: ",
        "DataLoader worker (pid 1,1",
        "Caught a.a.a.",
        "0: ",
        "a |",
        "Tried to allocate 1.0",
        "out of memory ",
        "PYTORCH_CUDA_ALLOC_CONF",
    ],
)
def test_no_text_is_slow(part: str) -> None:
    began = time.perf_counter()
    read_messages(part * (400_000 // len(part)))
    assert time.perf_counter() - began < 15  # below 1 s on one idle core; a quadratic search takes hours

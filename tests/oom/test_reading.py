"""Every format: each text gives its numbers, and what is none is said to be none."""

from __future__ import annotations

import pytest

from dryfit.oom import read_messages, root_message, says_out_of_memory, verdict

from .texts import NEGATIVE, PART_C, Text
from .wild import WILD

EVERY = (*PART_C, *WILD)


def _named(texts: tuple[Text, ...]) -> list[str]:
    return [text.name for text in texts]


@pytest.mark.parametrize("text", EVERY, ids=_named(EVERY))
def test_every_number_of_every_format(text: Text) -> None:
    (message,) = read_messages(text.text)
    assert message.format == text.format
    assert dict(message.numbers) == text.numbers
    for name, value in text.others.items():
        assert getattr(message, name) == value, name
    assert message.count == 1
    if {"allocated_bytes", "unused_bytes"} <= message.numbers.keys():
        assert message.reserved_bytes == message.numbers["allocated_bytes"] + message.numbers["unused_bytes"]


def test_all_formats_are_here() -> None:
    assert {int(text.name.split()[0]) for text in PART_C} == set(range(1, 30))
    assert len(WILD) >= 40


@pytest.mark.parametrize("text", NEGATIVE, ids=_named(NEGATIVE))
def test_what_is_none_is_not_called_one(text: Text) -> None:
    (message,) = read_messages(text.text)
    assert (message.format, message.certainty) == (text.format, "not")
    assert not says_out_of_memory(text.text)


@pytest.mark.parametrize(
    "text",
    [
        "If you run into CUDA out of memory errors, use a smaller batch.",
        "CUDA out of memory? Lower --batch-size.",
        "12.3 GiB free; 1.0 GiB cached. Everything fits.",
        "step 3: 1.05 GiB allowed; 20.0 MiB is free.",
        "",
    ],
)
def test_prose_and_other_numbers_are_no_message(text: str) -> None:
    assert read_messages(text) == ()


def test_the_text_ends_where_the_message_ends() -> None:
    for text in PART_C:
        (message,) = read_messages(f"epoch 3\n{text.text}\nGPU 7 cleaned up, 3.00 GiB free; bye")
        assert "bye" not in message.text, text.name
        assert message.device == text.others.get("device"), text.name


def test_windows_says_no_number_of_a_process() -> None:
    # As Windows' driver answers; PyTorch prints what it got. A report on a GTX 1070.
    (message,) = read_messages(
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.13 GiB. GPU 0 has a total capacity of 8.00 GiB of "
        "which 6.10 GiB is free. Process 9132 has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this "
        "process has 17179869184.00 GiB memory in use. 2.63 GiB allowed; Of the allocated memory 954.00 MiB is "
        "allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
    )
    assert message.process_bytes is None
    assert message.other_processes == ()
    assert message.unused_bytes == 0
    assert message.allowed_bytes == 2823940997


def test_what_a_form_never_prints_is_not_read_into_it() -> None:
    (message,) = read_messages(
        "MPS backend out of memory\nried to allocate 27.12 GiB. Of the allocated memory 16.16 GiB is allocated by "
        "PyTorch, and 144.59 MiB is reserved by PyTorch but unallocated\n"
    )
    assert (message.reserved_bytes, message.unused_bytes) == (None, None)


def test_a_size_of_the_host_that_no_machine_has_is_told_and_one_of_a_device_is_not() -> None:
    (host,) = read_messages("DefaultCPUAllocator: not enough memory: you tried to allocate 18446744073709551608 bytes.")
    assert host.requested_bytes == 18446744073709551608
    assert verdict(host).claim.endswith("no machine has that.")
    (nccl,) = read_messages("NCCL WARN Failed to CUDA calloc 18446744073709551608 bytes")
    assert nccl.requested_bytes is None


def test_a_message_cut_anywhere_keeps_the_numbers_before_the_cut() -> None:
    whole = next(text for text in PART_C if text.name.startswith("9 "))
    for end in range(len(whole.text)):
        for message in read_messages(whole.text[:end]):
            assert message.numbers.items() <= whole.numbers.items(), whole.text[:end]


def test_the_root_is_the_first_that_has_numbers_and_is_sure() -> None:
    texts = {text.name.split()[0]: text.text for text in PART_C}
    messages = read_messages("\n".join(texts[name] for name in ("26", "27", "23", "6", "8")))
    root = root_message(messages)
    assert root is not None and root.format == "nccl" and root.requested_bytes == 6291456
    assert root_message(read_messages(texts["26"])) is not None
    assert root_message(()) is None

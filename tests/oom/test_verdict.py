"""One cause and one next step for each text, in numbers, and never what is done already."""

from __future__ import annotations

import re

import pytest

from dryfit.findings import Finding, rule_of
from dryfit.oom import read_messages, settings_in, verdict

from .texts import NEGATIVE, PART_C, Text
from .wild import WILD

EVERY = (*PART_C, *WILD, *NEGATIVE)
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
BY_NAME = {text.name: text.text for text in EVERY}


def found(name: str, settings: dict[str, str] | None = None) -> Finding:
    text = next(text for key, text in BY_NAME.items() if key.startswith(name))
    (message,) = read_messages(text)
    return verdict(message, settings=settings)


@pytest.mark.parametrize("text", EVERY, ids=[text.name for text in EVERY])
def test_every_text_has_its_cause(text: Text) -> None:
    (message,) = read_messages(text.text)
    finding = verdict(message)
    assert finding.code == text.code, (finding.claim, finding.advice)
    assert rule_of(finding.code) is not None
    assert dict(finding.evidence.numbers) == text.numbers
    assert finding.evidence.memory == ("host" if message.backend == "host" else "device")
    assert finding.evidence.size_bytes == message.requested_bytes


@pytest.mark.parametrize("text", EVERY, ids=[text.name for text in EVERY])
@pytest.mark.parametrize("settings", [{}, EXPANDABLE, {"expandable_segments": "True", "max_split_size_mb": "128"}])
def test_sentences_are_whole_and_advise_nothing_that_is_on(text: Text, settings: dict[str, str]) -> None:
    finding = verdict(read_messages(text.text)[0], settings=settings)
    for sentence in (finding.claim, finding.advice):
        assert sentence[0].isupper() or sentence.startswith(("cuDNN", "cuBLAS")), sentence
        assert sentence.endswith("."), sentence
        assert "None" not in sentence and "  " not in sentence, sentence
        # Sizes are in binary units, with two places.
        assert not re.search(r"\d\d\.\d{3,}|\d [KMG]B\b", sentence), sentence
    if settings:
        assert "expandable_segments:True" not in re.sub(r"Take PyTorch 2.1 or later.*", "", finding.advice)
    if finding.code != "DF502":
        assert "expandable" not in finding.advice


def test_a_full_card_is_too_small_whatever_lies_between_its_tensors() -> None:
    finding = found("6 capacty")
    assert finding.claim == (
        "GPU 0 is full: of its 23.64 GiB this program has 22.81 GiB in tensors (96 %), asked for 48.00 MiB, and 9.69 "
        "MiB are free. 362.31 MiB lie unused between tensors (1 %): that can have failed this request, but joining "
        "them would soon be used up too."
    )
    assert finding.advice == (
        "Lower the peak, by 38.31 MiB at the least: `dryfit plan YOUR_PROGRAM` rehearses what makes it smaller and "
        "says which of that fits."
    )


def test_fragmentation_is_named_where_free_and_unused_would_do() -> None:
    finding = found("lerf#73")
    assert finding.code == "DF502"
    assert finding.claim == (
        "GPU 0 has room, in pieces: 3.00 GiB were asked for, 1.66 GiB are free, and 4.84 GiB (20 % of the device) lie "
        "unused between tensors, in pieces that are too small for it."
    )
    assert finding.advice == ("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets such pieces move.")


def test_what_is_set_is_kept_and_what_is_on_is_not_advised() -> None:
    assert found("lerf#73", {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}).advice.startswith(
        "Set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True,"
    )
    assert found("lerf#73", {"PYTORCH_ALLOC_CONF": "expandable_segments:False"}).advice.startswith(
        "Set PYTORCH_ALLOC_CONF=expandable_segments:True,"
    )
    assert found("lerf#73", EXPANDABLE).advice.startswith(
        "Expandable segments are on already, so what is left are holes within them. Let the largest batch come first"
    )
    assert found("lerf#73", {"expandable_segments": "unsupported"}).advice.startswith(
        "Expandable segments cannot be had on this platform. Let the largest batch come first"
    )
    assert found("pytorch#138002").advice.startswith("Set PYTORCH_HIP_ALLOC_CONF=expandable_segments:True,")
    assert found("TouchNet#100").advice.startswith("Set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True,")


def test_a_version_is_advised_what_it_has() -> None:
    # 1.4 to 1.9 have no setting for it; 1.10 to 2.0 have one.
    assert "max_split_size_mb" not in found("pytorch#35901").advice
    assert found("pytorch#35901").advice.startswith("Take PyTorch 2.1 or later")
    assert found("AP-PA#3").advice.startswith("Set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,")
    assert found("AP-PA#3", {"max_split_size_mb": "256"}).advice.startswith("Take PyTorch 2.1 or later")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("3 reserved", "the driver refused 2.26 GiB with 3.03 GiB free, so the device was not full"),
        ("3 reserved", "on Windows, and on chips that share memory with the CPU"),
        ("4 FastFold", "One request of 77.40 GiB is larger than the whole device: GPU 0 has 38.61 GiB."),
        ("5 iPASSR", "PyTorch has 17.20 GiB already, more than the card: the driver, as Windows' does, lends it"),
        ("7 taggui", "the driver refused 20.00 MiB with 2.35 GiB free"),
        ("9 two", "process 16335 25.34 GiB"),
        ("9 two", "Without them the request of 576.00 MiB would have been served."),
        ("12 HIP", "The other 69.46 GiB belong to somebody else"),
        ("12 HIP", "On a chip that shares its memory with the CPU that includes all other programs."),
        ("13 HIP", "a memory fraction allows PyTorch 1.05 GiB"),
        ("13 HIP", "The driver has 244.65 GiB free."),
        ("14 MPS", "Most of it is not in tensors"),
        ("16 XPU", "The text does not say who has the rest."),
        ("17 XPU", "above the 4 GiB that Intel's driver gives in one piece"),
        ("19 cudaMallocAsync", "The rest, 5.47 GiB, is another process's, or freed and still kept"),
        ("26 absurd", "It is what is left of another failure, such as a collective that timed out"),
        ("28 host", "The host's memory ran out, not the card's. 221.61 GiB were asked for."),
        ("pytorch#111363", "a memory fraction, which this version of PyTorch does not always print"),
        ("colabtools#867", "asked for 20.00 MiB (a segment, for a tensor of 1 to 10 MiB)"),
    ],
)
def test_a_hard_case_gets_its_sentence(name: str, words: str) -> None:
    assert words in found(name).claim


def test_allocated_above_the_card_is_the_hosts_memory() -> None:
    (message,) = read_messages(
        "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 8.00 GiB total capacity; 13.08 GiB already "
        "allocated; 0 bytes free; 14.00 GiB reserved in total by PyTorch)"
    )
    finding = verdict(message)
    assert finding.code == "DF501"
    assert "lends it the host's memory, many times slower, and that ran out too" in finding.claim
    assert "The program needs 13.58 GiB at this place." in finding.claim


def test_two_ranks_on_one_card_are_a_possibility() -> None:
    (message,) = read_messages(f"[rank1]: {BY_NAME['9 two processes']}")
    assert verdict(message).advice == (
        "See what process 16335 is and end it, or take another card: `nvidia-smi`. If it is a rank of this program, "
        "give each its own: torch.cuda.set_device(local_rank)."
    )


def test_an_error_raised_again_without_its_numbers() -> None:
    (message,) = read_messages("RuntimeError: CUDA out of memory.")
    finding = verdict(message)
    assert (message.format, finding.code) == ("cuda", "DF507")
    assert finding.claim == "The device ran out of memory, and the text ends before the numbers that would say why."


def test_a_mistaken_shape_is_said_to_be_one() -> None:
    (message,) = read_messages(
        "CUDA out of memory. Tried to allocate 37252.90 GiB. GPU 0 has a total capacity of 79.15 GiB of which 70.00 "
        "GiB is free. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch "
        "but unallocated."
    )
    finding = verdict(message)
    assert finding.code == "DF501"
    assert finding.advice.startswith("So large a tensor is rather a mistake in a shape, such as (n, 1) with (n,)")


def test_libraries_outside_the_allocator_are_named_when_they_hold_the_room() -> None:
    (message,) = read_messages(
        "[rank3]: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which "
        "200.00 MiB is free. Including non-PyTorch memory, this process has 78.90 GiB memory in use. Of the allocated "
        "memory 68.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated."
    )
    finding = verdict(message)
    assert finding.code == "DF505"
    assert finding.claim == (
        "GPU 3 (rank 3): this process has 78.90 GiB, and PyTorch's allocator only 68.20 GiB of it. The other 10.70 GiB "
        "are the CUDA context's and of libraries that take memory by themselves; a context alone is below 1 GiB."
    )


def test_a_limit_where_the_card_is_full_too_is_not_the_cause() -> None:
    (message,) = read_messages(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.60 GiB. GPU 0 has a total capacity of 8.00 "
        "GiB of which 453.00 MiB is free. 6.80 GiB allowed; Of the allocated memory 6.41 GiB is allocated by PyTorch, "
        "and 20.00 MiB is reserved by PyTorch but unallocated."
    )
    finding = verdict(message)
    assert finding.code == "DF501"
    assert finding.claim.endswith("Raising the limit of 6.80 GiB would not mend it.")


def test_a_limit_that_is_not_reached_is_not_the_cause() -> None:
    (message,) = read_messages(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 191.69 GiB of which 0 bytes is "
        "free. 50.00 GiB allowed; Of the allocated memory 9.58 GiB is allocated by PyTorch, and 10.00 MiB is reserved "
        "by PyTorch but unallocated."
    )
    finding = verdict(message)
    assert finding.code == "DF503"
    assert "The other 182.10 GiB belong to somebody else" in finding.claim
    assert "limit" not in finding.claim + finding.advice


def test_a_limit_that_is_in_the_settings_is_named_there() -> None:
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.5"}
    assert found("13 HIP", settings).advice.startswith("Raise per_process_memory_fraction:0.5,")
    assert found("25 cuDNN", settings).advice.startswith("Lower the memory fraction further")
    assert found("27 NCCL", settings).advice.startswith("Lower the memory fraction further")
    assert found("14 MPS", {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.5"}).advice.startswith(
        "Take PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.5 out"
    )
    relaxed = {"UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS": "1"}
    assert found("17 XPU", relaxed).advice.startswith("Compute it in parts")


def test_statistics_stand_in_for_the_numbers_that_a_text_lacks() -> None:
    (message,) = read_messages("RuntimeError: CUDA error: out of memory")
    stats = {"allocated_bytes.all.current": 10 << 30, "reserved_bytes.all.current": 12 << 30}
    finding = verdict(message, memory_stats=stats)
    assert "PyTorch's allocator held 12.00 GiB, 10.00 GiB of it in tensors." in finding.claim
    assert finding.evidence.numbers["unused_bytes"] == 2 << 30
    assert "The text has no numbers." in verdict(message).claim


def test_settings_of_a_text_are_those_it_sets_and_not_those_a_message_advises() -> None:
    assert settings_in("$ PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64 python train.py") == {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"
    }
    assert settings_in('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"') == EXPANDABLE
    assert settings_in("UserWarning: expandable_segments not supported on this platform (Triggered internally)") == {
        "expandable_segments": "unsupported"
    }
    for text in EVERY:
        assert settings_in(text.text) == {}, text.name

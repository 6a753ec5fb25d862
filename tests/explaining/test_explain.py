"""What `explain` says of recordings, files and text."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dryfit.errors import UsageError
from dryfit.explaining.explaining import explain
from dryfit.explaining.explanation import LOG, RECORDING, SNAPSHOT, TEXT, Explanation
from dryfit.explaining.told import explain_stdin
from dryfit.places import as_seen_from_here
from dryfit.recording.file import save
from dryfit.recording.model import Events
from dryfit.rehearse import retrace as retrace_module

from .on_card import GIB, MIB, PROGRAM, line_of, recorded

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB "
    "of which 1.50 GiB is free. Including non-PyTorch memory, this process has 22.19 GiB memory in use. Of the "
    "allocated memory 21.50 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated."
)


def explained(case: str, allocator: str = "", **options: Any) -> Explanation:
    return explain(recorded(case, allocator).recording, **options)


def test_fragmentation_is_named_with_the_setting_that_would_have_helped_and_by_how_much() -> None:
    explanation = explained("fragments")
    (finding,) = explanation.findings
    assert finding.code == "DF502"
    file, line = as_seen_from_here(str(PROGRAM)), line_of("return torch.empty")
    assert finding.claim == (
        "The request that failed needs 1.86 GiB at "
        f"{file}:{line} in one piece. 1.71 GiB lie free in PyTorch's segments, in "
        "pieces of at most 190.00 MiB, and 1.74 GiB on the card: together enough."
    )
    assert finding.place is not None
    assert (finding.place.line, finding.place.function) == (line, "take")
    assert finding.advice.startswith(
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. With expandable_segments:True"
    )
    assert ": no OOM" in finding.advice
    assert explanation.next_step == finding.advice
    assert finding.evidence.numbers["largest_hole_bytes"] == 190 * MIB

    (card,) = explanation.cards
    assert card.capacity_bytes == 4 * GIB
    assert card.would_have is not None
    assert card.would_have.is_faithful
    assert card.would_have.as_recorded.served is False
    best = card.would_have.others[card.would_have.best or 0]
    assert best.settings == "expandable_segments:True"
    assert best.served
    assert best.saved_bytes > 1000 * MIB
    assert "what the program would have asked for after that is not in it" in explanation.notes[1]


def test_what_is_set_already_is_not_advised() -> None:
    for case in ("too_big", "fragments"):
        explanation = explained(case, "expandable_segments:True")
        assert all("=expandable_segments:True" not in finding.advice for finding in explanation.findings)
    (card,) = explained("too_big", "expandable_segments:True").cards
    assert card.settings == "expandable_segments:True"
    assert card.would_have is not None
    assert [outcome.settings for outcome in card.would_have.others] == [""]


def test_a_program_that_needs_more_than_there_is_is_too_big_whatever_is_set() -> None:
    (finding,) = explained("too_big").findings
    assert finding.code == "DF501"
    assert "even in one piece" in finding.claim
    assert "PYTORCH_CUDA_ALLOC_CONF" not in finding.advice
    (card,) = explained("too_big").cards
    assert card.would_have is not None
    assert card.would_have.best is None
    assert all(outcome.served is False and "still an OOM" in outcome.sentence for outcome in card.would_have.others)
    smallest = card.would_have.as_recorded.fits_on[0]
    assert "OOM" in card.would_have.as_recorded.sentence
    assert smallest  # 4.5 GiB: the smallest cards of the catalogue hold it


def test_a_limit_that_was_set_is_told_from_a_full_card() -> None:
    (finding,) = explained("limited").findings
    assert finding.code == "DF504"
    assert finding.claim.endswith("enough for it: a limit that the program set refused it.")
    assert "set_per_process_memory_fraction" in finding.advice


def test_memory_that_somebody_else_has_is_seen_where_the_card_is_named() -> None:
    (finding,) = explained("too_big", gpu="a100-40gb").findings
    assert finding.code == "DF503"
    assert finding.evidence.numbers["held_by_others_bytes"] > 30 * GIB
    assert "nvidia-smi" in finding.advice


def test_a_run_without_a_failure_is_judged_on_the_card_that_is_named() -> None:
    assert explained("retried").findings == ()
    assert explained("retried", gpu="a100-40gb").findings == ()
    step = explained("retried").next_step
    assert step.startswith(
        "Nothing failed. Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. With expandable_segments:True, reserved "
        "memory would have been"
    )
    assert "OOM" not in step  # there was none


def test_settings_can_be_asked_for() -> None:
    (card,) = explained("fragments", settings="max_split_size_mb:64").cards
    assert card.would_have is not None
    assert [outcome.settings for outcome in card.would_have.others] == ["max_split_size_mb:64"]


def test_a_text_has_no_requests_to_play() -> None:
    with pytest.raises(UsageError, match=r"^A text has no requests to play .*; leave settings out"):
        explain(MESSAGE, settings="max_split_size_mb:64")
    with pytest.raises(UsageError, match="leave gpu out"):
        explain(MESSAGE, gpu="rtx-4090")


def test_what_is_piped_has_to_be_text() -> None:
    assert explain_stdin(MESSAGE.encode()).findings[0].code == "DF501"
    with pytest.raises(UsageError, match=r"^What comes from stdin is no text; name a snapshot or recording as a file"):
        explain_stdin(recorded("fragments").content)
    with pytest.raises(UsageError, match=r"^Stdin holds no out-of-memory message"):
        explain_stdin(b"")


def test_without_retracing_the_block_map_still_tells() -> None:
    explanation = explained("fragments", retrace=False)
    assert explanation.cards[0].would_have is None
    (finding,) = explanation.findings
    assert finding.code == "DF502"
    assert finding.advice == "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets such pieces move."


def test_files_are_told_apart_by_their_content(tmp_path: Path) -> None:
    run = recorded("fragments")
    log = tmp_path / "snapshot.pickle"
    log.write_text(f"step 1\n{MESSAGE}\n")
    snapshot = tmp_path / "train.log"
    snapshot.write_bytes(gzip.compress(run.content))
    ours = tmp_path / "anything"
    save(run.recording, ours)
    assert explain(log).kind == explain(str(log)).kind == LOG
    assert explain(snapshot, retrace=False).kind == SNAPSHOT
    assert explain(ours, retrace=False).kind == SNAPSHOT  # what it was made from counts
    assert {SNAPSHOT, RECORDING, LOG, TEXT} >= {explain(MESSAGE).kind}


def test_text_is_explained_message_by_message_the_cause_first() -> None:
    other = MESSAGE.replace("GPU 0", "GPU 1").replace("2.00 GiB", "3.00 GiB", 1)
    explanation = explain(f"[rank0]: {MESSAGE}\n[rank1]: {other}\n")
    assert [each.message.rank for each in explanation.messages] == [0, 1]
    assert explanation.findings == tuple(each.finding for each in explanation.messages)
    assert explanation.next_step == explanation.findings[0].advice
    assert json.loads(explanation.to_json())["messages"][0]["message"]["requested_bytes"] == 2 * GIB


def test_json_has_everything() -> None:
    explanation = explained("fragments")
    values = json.loads(explanation.to_json())
    assert values["findings"][0]["code"] == "DF502"
    assert values["cards"][0]["footprint"]["schema_version"] == 1
    assert values["cards"][0]["would_have"]["others"][0]["settings"] == "expandable_segments:True"
    assert values["next_step"] == explanation.next_step


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty, and a recording of dryfit or a memory snapshot"),
        (b"all is well\n", "/given holds no out-of-memory message"),
        (pickle.dumps({"segments": 3}), "where a list is expected"),
        (pickle.dumps([1, 2]), "is no"),
        (pickle.dumps(os.system), "nothing of it was run"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is of no kind that dryfit knows"),
    ],
)
def test_other_files_are_refused_in_a_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        explain(path)
    assert sentence in str(caught.value)


def test_a_snapshot_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.pickle"
    path.write_bytes(recorded("fragments").content[:5000])
    with pytest.raises(UsageError, match=r"cut off|damaged"):
        explain(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        explain(tmp_path)
    with pytest.raises(UsageError, match=r"^There is no file .*nothing\.pickle"):
        explain(tmp_path / "nothing.pickle")
    with pytest.raises(UsageError, match=r"^There is no file snapshot\.pickle; give a log"):
        explain("snapshot.pickle")


def test_a_recording_without_events_says_so() -> None:
    recording = recorded("emptied").recording
    state = dataclasses.replace(recording.devices[0], events=Events())
    explanation = explain(dataclasses.replace(recording, devices=(state,)))
    assert explanation.findings == ()
    assert "nothing can be played under other settings" in explanation.notes[0]
    assert explanation.next_step.startswith("It has no events to tell whether a request failed.")


def test_a_run_that_used_no_card_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cpu.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    with pytest.raises(UsageError, match="has no card"):
        explain(path)


def test_wrong_settings_and_cards_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrace_module, "allocator_process", None)
    with pytest.raises(UsageError, match="is no setting that dryfit can replay"):
        explained("fragments", settings="backend:cudaMallocAsync")
    with pytest.raises(UsageError, match="no-such-card"):
        explained("fragments", gpu="no-such-card")


def test_a_torch_without_cuda_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def without() -> None:
        raise UsageError("The installed torch is a CPU-only build.")

    monkeypatch.setattr(retrace_module, "installed_torch", without)
    explanation = explained("fragments")
    assert explanation.findings[0].code == "DF502"
    assert explanation.cards[0].why_not_retraced == "The installed torch is a CPU-only build."
    assert explanation.notes == ("The installed torch is a CPU-only build.",)


def test_explaining_imports_no_torch() -> None:
    code = f"from dryfit.explaining.explaining import explain; explain({MESSAGE!r})"
    code += "; import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

"""expandable-segments: equal to the variable set in the shell, in cold and in warm rehearsals."""

from __future__ import annotations

import pytest

import dryfit
from dryfit.measures.expandable_segments import MEASURES, merged
from dryfit.measures.facts import Facts

from .conftest import CARD, ENTRY, figures

(MEASURE,) = MEASURES
ON = "expandable_segments:True"


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_is_as_set_in_the_shell(rehearse, monkeypatch, variable: str) -> None:
    plain = rehearse("language_model")
    monkeypatch.setenv(variable, "max_split_size_mb:512")
    switched = rehearse("language_model", measures=["expandable-segments"])
    monkeypatch.setenv(variable, f"max_split_size_mb:512,{ON}")
    assert figures(switched) == figures(rehearse("language_model"))
    assert switched.measures == {"expandable-segments": True}
    assert switched.peak_allocated_bytes == plain.peak_allocated_bytes
    assert switched.peak_reserved_bytes < plain.peak_reserved_bytes


def test_is_the_same_in_a_process_that_was_started_for_it(rehearse) -> None:
    cold = dryfit.run(
        [ENTRY, "language_model"], gpu=CARD, quiet=True, figures_only=True, measures=["expandable-segments"]
    )
    assert figures(cold) == figures(rehearse("language_model", measures=["expandable-segments"]))
    assert cold.measures == {"expandable-segments": True}


def test_a_program_that_sets_the_variable_before_its_imports_keeps_its_settings(tmp_path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:512"\n'
        "import torch\nmodel = torch.nn.Linear(64, 64).cuda()\nmodel(torch.ones(8, 64, device='cuda'))\n"
    )
    result = dryfit.run([program], gpu=CARD, quiet=True, figures_only=True, measures=["expandable-segments"])
    assert result.measures == {"expandable-segments": True}
    assert result.allocator_settings["PYTORCH_CUDA_ALLOC_CONF"] == f"max_split_size_mb:512,{ON}"


def test_a_program_that_sets_the_allocator_later_is_refused(rehearse) -> None:
    result = rehearse("expandable_settings", measures=["expandable-segments"])
    assert result.ending.how == "not switched on"
    assert (
        "The allocator has made segments, and none of them is expandable: the program changes the allocator's settings "
        "itself after it has imported torch. Have it add expandable_segments:True there."
    ) in result.ending.sentence


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ON),
        ("expandable_segments:False", ON),
        (" expandable_segments : True, garbage_collection_threshold:0.8", f" garbage_collection_threshold:0.8,{ON}"),
        ("roundup_power2_divisions:[256:1,512:2,>:4]", f"roundup_power2_divisions:[256:1,512:2,>:4],{ON}"),
    ],
)
def test_keeps_the_other_settings(before: str, after: str) -> None:
    assert merged(before) == after


def test_applies_where_there_are_segments_that_do_not_expand_yet() -> None:
    assert MEASURE.why_not(Facts(allocator={"backend": "native"})) == ""
    assert MEASURE.why_not(Facts(allocator={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"})) == ""
    assert MEASURE.why_not(Facts(allocator={"PYTORCH_ALLOC_CONF": ON})) == "expandable segments are on already"
    assert MEASURE.why_not(Facts(allocator={"PYTORCH_CUDA_ALLOC_CONF": f"{ON},max_split_size_mb:512"})) == (
        "expandable segments are on already"
    )
    assert MEASURE.why_not(Facts(allocator={"backend": "cudaMallocAsync"})) == (
        "the program's allocator is cudaMallocAsync, which has no segments"
    )
    assert MEASURE.why_not(Facts(allocator={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})) == (
        "PYTORCH_NO_CUDA_MEMORY_CACHING is set: the allocator keeps no segments"
    )

"""Two footprints compared: the value, and the words a person reads."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest

from dryfit.analyse.compare import Comparison, LineChange, TensorChange, compare
from dryfit.analyse.footprint import Footprint, LineBytes, TensorBytes
from dryfit.report.compare import change_line, print_comparison

from . import footprints

GOLDEN = Path(__file__).parent / "golden"
MIB = 1 << 20
COMPARISONS = {
    "compare-batches": compare(footprints.gpt2(8), footprints.gpt2(16, moved_by=3)),
    "compare-the-same": compare(footprints.gpt2(), footprints.gpt2()),
    "compare-with-a-bare-snapshot": compare(footprints.gpt2(), footprints.bare_snapshot()),
}


def printed(comparison: Comparison) -> str:
    out = io.StringIO()
    print_comparison(comparison, file=out)
    return out.getvalue()


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_report_is_as_committed(name: str, rewrite_goldens: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if rewrite_goldens:
        path.write_text(printed(COMPARISONS[name]))
    text = printed(COMPARISONS[name])
    assert text == path.read_text()
    assert text.isascii()
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_the_owners_changes_sum_to_the_peak_s() -> None:
    comparison = COMPARISONS["compare-batches"]
    change = sum(one.after_bytes - one.before_bytes for one in comparison.owners)
    assert change == comparison.after.allocated_bytes - comparison.before.allocated_bytes
    own = sum(one.own_after_bytes - one.own_before_bytes for one in comparison.modules)
    assert own == change
    lines = sum(one.after_bytes - one.before_bytes for one in comparison.lines)
    assert lines == change


def test_the_batch_is_read_off_the_shapes_and_what_one_more_takes() -> None:
    batch = COMPARISONS["compare-batches"].batch
    assert batch is not None
    peak = footprints.gpt2(8).peak
    assert (batch.before, batch.after) == (8, 16)
    assert batch.bytes_per_sample * 8 == peak.grows_with_batch_bytes
    assert batch.empty_batch_bytes == peak.fixed_bytes
    back = compare(footprints.gpt2(16), footprints.gpt2(8)).batch
    assert back is not None
    assert (back.before, back.after, back.bytes_per_sample) == (16, 8, batch.bytes_per_sample)


def test_the_same_batch_and_unknown_shapes_say_nothing_of_a_batch() -> None:
    assert COMPARISONS["compare-the-same"].batch is None
    assert COMPARISONS["compare-with-a-bare-snapshot"].batch is None
    assert "batch is" not in printed(COMPARISONS["compare-the-same"])


def test_a_longer_sequence_is_no_larger_batch() -> None:
    def with_shape(shape: tuple[int, ...]) -> Footprint:
        tensor = TensorBytes(
            index=0, owner="saved activation", size_bytes=8, requested_bytes=8, shape=shape, module="a"
        )
        return dataclasses.replace(footprints.gpt2(), tensors=(tensor,))

    assert compare(with_shape((8, 128, 64)), with_shape((8, 256, 64))).batch is None
    grown = compare(with_shape((8, 128, 64)), with_shape((12, 128, 64))).batch
    assert grown is not None and (grown.before, grown.after) == (8, 12)


def test_what_goes_with_the_batch_is_said_by_owner() -> None:
    text = printed(COMPARISONS["compare-batches"])
    assert text.startswith("PEAK 6.27 GiB -> 11.36 GiB allocated by tensors: 5.09 GiB more, +81%\n")
    assert "each further sample takes 651.01 MiB at the peak, and 1.19 GiB are there whatever the batch." in text
    assert "What goes with the batch: saved activation 3.55 GiB -> 7.10 GiB, temporary 1.54 GiB -> 3.07 GiB" in text


def test_first_lines() -> None:
    assert change_line(COMPARISONS["compare-the-same"]).endswith("6.27 GiB allocated by tensors: the same")
    less = compare(footprints.gpt2(16), footprints.gpt2(8))
    assert change_line(less) == "PEAK 11.36 GiB -> 6.27 GiB allocated by tensors: 5.09 GiB less, -45%"


def lines_of(*lines: tuple[str, int, str, int]) -> Footprint:
    return dataclasses.replace(
        footprints.gpt2(),
        lines=tuple(
            LineBytes(file=file, line=line, function=function, size_bytes=size, blocks=1)
            for file, line, function, size in lines
        ),
    )


def pairs(a: Footprint, b: Footprint) -> list[tuple[int | None, int | None]]:
    changes: tuple[LineChange, ...] = compare(a, b).lines
    return sorted(((one.before_line, one.after_line) for one in changes), key=str)


def test_lines_that_moved_together_are_matched_within_their_function() -> None:
    before = lines_of(("m.py", 10, "forward", 5), ("m.py", 12, "forward", 6), ("m.py", 40, "main", 7))
    after = lines_of(("m.py", 12, "forward", 5), ("m.py", 14, "forward", 9), ("m.py", 40, "main", 7))
    assert pairs(before, after) == [(10, 12), (12, 14), (40, 40)]


def test_a_line_of_another_function_is_another_line() -> None:
    before, after = lines_of(("m.py", 10, "forward", 5)), lines_of(("m.py", 11, "backward", 5))
    assert pairs(before, after) == [(10, None), (None, 11)]


def test_a_program_copied_to_another_folder_is_the_same_program() -> None:
    before, after = lines_of(("/a/m.py", 10, "f", 5)), lines_of(("/b/m.py", 11, "f", 9))
    assert pairs(before, after) == [(10, 11)]
    two = lines_of(("/b/m.py", 11, "f", 9), ("/c/m.py", 11, "f", 9))
    assert (None, 11) in pairs(before, two)


def test_two_functions_on_one_line_stay_apart() -> None:
    both = lines_of(("m.py", 10, "f", 5), ("m.py", 10, "<lambda>", 7))
    assert sum(one.before_bytes for one in compare(both, both).lines) == 12


def with_tensors(*sizes: int, cut: bool = True) -> Footprint:
    tensors = tuple(
        TensorBytes(index=n, owner="parameter", size_bytes=size * MIB, requested_bytes=0, name=f"w{size}", module="m")
        for n, size in enumerate(sizes)
    )
    full = footprints.gpt2()
    owners = full.peak.owners if cut else (dataclasses.replace(full.peak.owners[0], blocks=len(tensors)),)
    return dataclasses.replace(full, tensors=tensors, peak=dataclasses.replace(full.peak, owners=owners))


def changed(a: Footprint, b: Footprint) -> dict[str, TensorChange]:
    return {
        one.name: one
        for one in compare(a, b).tensors
        if (one.before_bytes, one.before_count) != (one.after_bytes, one.after_count)
    }


def test_what_only_the_end_of_a_list_hides_is_no_change() -> None:
    assert set(changed(with_tensors(90, 50, 8), with_tensors(90, 50))) == set()
    assert set(changed(with_tensors(90, 50, 8), with_tensors(90))) == set()
    assert set(changed(with_tensors(90, 50, 8), with_tensors(50))) == {"w90"}


def test_tensors_of_one_line_are_compared_size_by_size() -> None:
    def of_sizes(*sizes: int) -> Footprint:
        tensors = tuple(
            TensorBytes(index=n, owner="temporary", size_bytes=size * MIB, requested_bytes=0, file="m.py", line=4)
            for n, size in enumerate(sizes)
        )
        return dataclasses.replace(footprints.gpt2(), tensors=tensors)

    found = compare(of_sizes(64, 32, 32), of_sizes(128, 64, 64)).tensors
    sizes = [(one.before_count, one.before_bytes // MIB, one.after_count, one.after_bytes // MIB) for one in found]
    assert sizes == [(1, 64, 1, 128), (2, 32, 2, 64)]
    text = printed(compare(of_sizes(64, 32, 32), of_sizes(128, 64, 64)))
    assert re.search(r"64\.00 MiB +128\.00 MiB  temporary +m\.py:4$", text, re.MULTILINE)
    assert re.search(r"2\+ x 32\.00 MiB  2\+ x 64\.00 MiB  temporary +m\.py:4$", text, re.MULTILINE)


def test_peaks_of_two_kinds_make_a_rough_line() -> None:
    other = footprints.gpt2(16)
    other = dataclasses.replace(other, peak=dataclasses.replace(other.peak, phase="loss"))
    text = printed(compare(footprints.gpt2(8), other))
    assert "The peaks are of two kinds, backward and loss: the line is a rough one." in text


def test_lists_of_everything_hide_nothing() -> None:
    gone = changed(with_tensors(90, 50, 8, cut=False), with_tensors(90, cut=False))
    assert set(gone) == {"w50", "w8"}
    assert (gone["w8"].before_bytes, gone["w8"].after_bytes, gone["w8"].after_shape) == (8 * MIB, 0, None)


def test_the_comparison_as_json_has_everything() -> None:
    values = COMPARISONS["compare-batches"].to_dict()
    assert json.loads(json.dumps(values)) == values
    assert list(values)[:4] == ["schema_version", "before", "after", "owners"]
    assert values["schema_version"] == 1
    assert values["batch"] == {
        "before": 8, "after": 16, "bytes_per_sample": 682631176, "empty_batch_bytes": 1273103872,
    }  # fmt: skip

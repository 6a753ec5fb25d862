"""What the processes saw of their loaders' batches -> `LoaderBatches` and sentences. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dryfit.recording.model import EVALUATION
from dryfit.rehearse.inside.longest.asked import BATCHES
from dryfit.rehearse.inside.longest.sizes import in_words
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from dryfit.rehearse.processes import Process

_OF_RESERVED = (
    "What tensors hold does not depend on when the longest comes; what PyTorch reserves does, and may be more where "
    "lengths rise slowly: see docs/longest.md."
)
_PhasesOfStep = tuple[int, dict[str, list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderBatches:
    """One loader's batches under `--longest`: their lengths, which was given as the longest, and what it took.

    `lengths` are `min`, `p50`, `p99` and `max` of the dimension `measured`, over `looked_at` samples or batches (`of`);
    {} where all are alike. `there_are` is how many samples there are, None if that is not known. `given` are the shapes
    of the batch at the `percentile` of the batches' sizes, 100 for the longest, which was given so many `times`.
    `evaluates` is whether the program only evaluates with it. The peaks are what tensors held while it trained (or
    evaluated) in `steps`, where a model was called with that batch, and in the others; None where there are none, or it
    is not known which they are.
    """

    dataset: str
    of: str
    percentile: float
    looked_at: int
    there_are: int | None
    unreadable: int
    measured: str
    lengths: dict[str, int]
    given: dict[str, list[int]]
    times: int
    evaluates: bool
    steps: list[int]
    longest_peak_bytes: int | None
    ordinary_peak_bytes: int | None
    seconds: float


def batches_of(process: Process | None) -> list[LoaderBatches]:
    """Of each loader that a process took batches from while the longest was asked for."""
    return (
        [_batches_of(found, process.phases_of_steps) for found in _seen(process).get("batches", ())] if process else []
    )


def notes(process: Process | None) -> list[str]:
    """Sentences on the batches: what the longest took, or what kept it from being given; where it was not asked for,
    that the batches differ, if they do."""
    if process is None or process.end is None or not process.used_peak_bytes:
        return []
    seen = _seen(process)
    if not seen.get("asked"):
        return [_that_they_differ(each) for each in seen.get("differing", ())]
    if seen.get("not_given"):
        return [
            f"The longest batch could not be given. This is our fault; please report these lines:\n{seen['not_given']}"
        ]
    if not seen.get("batches"):
        return ["The program took no batch from a DataLoader of PyTorch's, so --longest had nothing to do."]
    told = list(zip(batches_of(process), seen["batches"], strict=True))
    sentences = [sentence for batches, found in told for sentence in _of_loader(batches, found)]
    if any(batches.times for batches, _ in told):
        sentences.append(_OF_RESERVED)
    return sentences


def _seen(process: Process | None) -> Mapping[str, Any]:
    seen: Mapping[str, Any] = (process.end or {}).get("loaders", {}) if process is not None else {}
    return seen


def _batches_of(found: Mapping[str, Any], phases_of_steps: Sequence[_PhasesOfStep]) -> LoaderBatches:
    steps = set(found["steps"])
    in_its_phases = [(step, _peak_bytes(phases, found["evaluates"])) for step, phases in phases_of_steps if step]
    longest = [peak for step, peak in in_its_phases if step in steps]
    ordinary = [peak for step, peak in in_its_phases if step not in steps and peak]
    own = {each: found[each] for each in LoaderBatches.__slots__ if each in found}
    return LoaderBatches(
        **own | {"lengths": dict(zip(("min", "p50", "p99", "max"), found["lengths"], strict=False))},
        longest_peak_bytes=max(longest, default=None),
        ordinary_peak_bytes=max(ordinary, default=None) if steps else None,
    )


def _peak_bytes(phases: Mapping[str, Sequence[int]], evaluates: bool) -> int:
    """The most that tensors held in a step while it evaluated, or while it did not."""
    return max((sizes[0] for phase, sizes in phases.items() if (phase == EVALUATION) == evaluates), default=0)


def _of_loader(batches: LoaderBatches, found: Mapping[str, Any]) -> Iterator[str]:
    failure = " ".join(found["failure"].split()).rstrip(".")
    if batches.unreadable:
        some = _counted(batches.unreadable, "sample")
        yield f"{some} of {batches.dataset} could not be read, the first for {failure}; --longest leaves such out."
    if not_made := " ".join(found["not_made"].split()).rstrip("."):
        yield f"The longest batch of {batches.dataset} could not be made: {not_made}. Its own came in its place."
    if batches.times:
        yield _what_it_took(batches)
    elif not batches.lengths and batches.looked_at and not not_made:
        yield (
            f"{_looked_at(batches).capitalize()} of {batches.dataset} are alike in size, and so are its batches: "
            "--longest had nothing to do."
        )
    elif batches.lengths and not not_made:
        yield f"The program took too few batches of {batches.dataset} for the longest to come: --steps looks further."
    if found["changes"]:
        yield (
            f"A sample of {batches.dataset} that was read again had another size, as with random crops: the lengths "
            "are those of one reading."
        )


def _what_it_took(batches: LoaderBatches) -> str:
    lengths = batches.lengths
    spread = f"{lengths['min']} to {lengths['max']} (p50 {lengths['p50']}, p99 {lengths['p99']})"
    which = "the longest" if batches.percentile == 100 else f"that at p{batches.percentile:g}"
    name = "length " if batches.measured.startswith("[") or not batches.measured else f"{batches.measured} of "
    text = f"Batches of {batches.dataset}: {name}{spread} in {_looked_at(batches)}; "
    text += f"{which}, {in_words(batches.given)}, was "
    if batches.longest_peak_bytes is None:
        return f"{text}given {_counted(batches.times, 'time')}."
    text += f"{'evaluated with' if batches.evaluates else 'rehearsed'} in {_steps(batches.steps)}: "
    text += f"{format_bytes(batches.longest_peak_bytes)} of tensors"
    if batches.ordinary_peak_bytes is not None:
        text += f", {format_bytes(batches.ordinary_peak_bytes)} in other steps"
    return f"{text}."


def _looked_at(batches: LoaderBatches) -> str:
    if batches.of == BATCHES:
        return f"the first {_counted(batches.looked_at, 'batch')}"
    if batches.there_are in (None, batches.looked_at):
        return (
            f"all {_counted(batches.looked_at, 'sample')}"
            if batches.there_are
            else _counted(batches.looked_at, "sample")
        )
    return f"{batches.looked_at:,} of {batches.there_are:,} samples, taken at random"


def _counted(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def _steps(steps: Sequence[int]) -> str:
    """Steps in words: "steps 2, 3 and 5"; only the first and last of many.

    >>> _steps([2]), _steps([2, 3, 5])
    ('step 2', 'steps 2, 3 and 5')
    """
    if len(steps) == 1:
        return f"step {steps[0]}"
    if len(steps) > 8:
        return f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
    return f"steps {', '.join(map(str, steps[:-1]))} and {steps[-1]}"


def _that_they_differ(found: Mapping[str, Any]) -> str:
    return (
        f"The batches of {found['dataset']} differ in shape: of {_counted(found['batches'], 'batch')} the smallest was "
        f"{in_words(found['least'])}, the largest {in_words(found['most'])}. A longer one may come later and take "
        "more; --longest rehearses the longest that the loader can give."
    )

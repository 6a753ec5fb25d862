"""Compares a plan with its measures written by hand: python -m tests.plans.check gpt2_xl unet

Each row of the plan of a program beside is rehearsed once more, as the program that a person would have written from
the snippets (`entry.py NAME --by-hand MEASURES`). Peaks, phases, FLOPs and bytes over the bus have to be the same, and
the rows in the order of their price.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import dryfit
from dryfit.rehearse.warm import WarmRehearsals, warm_rehearsals
from dryfit.search.planned import Plan, Tried
from dryfit.search.trial import FITS, TOO_BIG, trial_of
from dryfit.units import MIB, format_bytes

ENTRY = str(Path(__file__).parent / "programs" / "entry.py")
_WITHOUT_LIMIT_BYTES = 2 * 2**40
_BY_HAND_IN_THE_SHELL = {"expandable-segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
# Not written into these programs; tests of `tests/measures` compare them with programs by hand.
_ELSEWHERE = ("fsdp", "lora", "qlora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A program beside, the card it is to fit on, and its arguments; without a batch its words hold none."""

    name: str
    gpu: str
    batch: int | None = None
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return [ENTRY, self.name, *(("--batch", "{batch}") if self.batch is not None else ()), *self.arguments]

    def by_hand(self, measures: Sequence[str]) -> list[str]:
        """The words of the program with these written into it; the batch is that of a whole step."""
        words = [word.replace("{batch}", str(self.batch)) for word in self.words]
        named = ",".join(each.removesuffix(":placed") for each in measures if each not in _BY_HAND_IN_THE_SHELL)
        return [*words, "--by-hand", named] if named else words

    def plan(self, **options: Any) -> Plan:
        return dryfit.plan(self.words, gpu=self.gpu, batch=self.batch, **options)


_TABLE_HEAD = """\
| program | card | as it is | the answer | needs | FLOPs | over the bus | rows |
| --- | --- | --- | --- | --- | --- | --- | --- |"""

# By name; "as written" are those without a placeholder for the batch, which cannot be made smaller then.
CASES = {
    f"{each.name}{'' if each.batch is not None else '_as_written'}": each
    for each in (
        Case(name="gpt2_xl", gpu="rtx-3090", batch=4),
        Case(name="llama_7b_lora", gpu="rtx-4080", batch=4),
        Case(name="vit_l", gpu="rtx-3090", batch=64),
        Case(name="optimizer_bound", gpu="rtx-3080-10gb", batch=32),
        Case(name="optimizer_bound", gpu="rtx-3080-10gb"),
        Case(name="vocabulary_bound", gpu="rtx-3090", batch=24),
        Case(name="vocabulary_bound", gpu="rtx-3090"),
        Case(name="unet", gpu="rtx-4080", batch=4),
    )
}


def differences(case: Case, plan: Plan, rehearse: WarmRehearsals, *, jobs: int = 2) -> Iterator[str]:
    """What a plan says otherwise than the programs written by hand, or than the order of prices."""
    rows = [each for each in (plan.as_it_is, *plan.tried) if _names(each).isdisjoint(_ELSEWHERE)]
    with ThreadPoolExecutor(jobs) as pool:
        for variables, alike in _by_variables(rows):
            with mock.patch.dict(os.environ, variables):
                for found in pool.map(lambda row: list(_of_row(case, plan, row, rehearse)), alike):
                    yield from found
    yield from _of_order(plan)


def by_hand() -> AbstractContextManager[WarmRehearsals]:
    """Rehearsals of the programs written by hand."""
    return warm_rehearsals([ENTRY], quiet=True, figures_only=True)


def _by_variables(rows: Sequence[Tried]) -> Iterator[tuple[dict[str, str], list[Tried]]]:
    for name, variables in (("", {}), *_BY_HAND_IN_THE_SHELL.items()):
        yield variables, [row for row in rows if (set(row.measures) & {*_BY_HAND_IN_THE_SHELL} or {""}) == {name}]


def _of_row(case: Case, plan: Plan, row: Tried, rehearse: WarmRehearsals) -> Iterator[str]:
    what = " + ".join(row.measures) or "as it is"
    if row.kind not in (FITS, TOO_BIG):
        yield f"{what}: no answer to compare: {row.sentence}"
        return
    words = case.by_hand(row.measures)
    # What fits has the figures of the card, what does not those without a limit.
    limit = {"reserve_bytes": plan.reserve_bytes} if row.kind == FITS else {"memory_bytes": _WITHOUT_LIMIT_BYTES}
    result = rehearse(words, gpu=case.gpu, **limit)
    trial = trial_of(0, result)
    if trial.kind != FITS:
        yield f"{what}: by hand it is {trial.kind}: {trial.sentence}"
        return
    for figure in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_total_bytes"):
        yield from _difference(f"{what}: {figure}", getattr(row, figure), getattr(result, figure))
    for phase in {**row.phase_peaks, **result.phase_peaks}:
        yield from _difference(f"{what}: {phase}", row.phase_peaks.get(phase, 0), result.phase_peaks.get(phase, 0))
    if row.price is None or not row.price.is_counted:
        return
    facts = rehearse(words, gpu=case.gpu, memory_bytes=_WITHOUT_LIMIT_BYTES, facts=True).facts
    if facts is None or facts.failure:
        yield f"{what}: what it is like by hand was not found out: {facts.failure if facts else 'it did not get there'}"
        return
    yield from _difference(f"{what}: FLOPs", row.price.flops, facts.flops)
    yield from _difference(f"{what}: bytes over the bus", row.price.host_bytes, facts.host_bytes)


def _difference(what: str, in_plan: int, by_hand: int) -> Iterator[str]:
    if in_plan != by_hand:
        yield f"{what}: {in_plan:,} in the plan, {by_hand:,} by hand ({in_plan - by_hand:+,})"


def _of_order(plan: Plan) -> Iterator[str]:
    """Whether the cheapest of what fits is the answer, and the others follow by their price."""
    priced = [each for each in plan.tried if each.kind == FITS and each.price is not None]
    orders = [each.price.order for each in priced if each.price is not None]
    if orders != sorted(orders):
        yield f"the rows that fit are not in the order of their price: {orders}"
    if plan.cheapest and priced and priced[0].measures != plan.cheapest:
        yield f"the answer is {plan.cheapest}, and the first row {priced[0].measures}"
    does_not = [each.kind != FITS for each in plan.tried]
    if does_not != sorted(does_not):
        yield "a row that does not fit comes before one that does"


def _names(row: Tried) -> set[str]:
    return {word.partition(":")[0] for word in row.measures}


def table_row(case: Case, plan: Plan) -> str:
    """What a plan answered, as a row of the table in docs/plan.md."""
    words = f"{case.name}{f', batch {case.batch}' if case.batch is not None else ''}"
    found = plan.of(plan.cheapest)
    sizes = [format_bytes(plan.as_it_is.peak_total_bytes), "", "", ""]
    answer = "nothing fits"
    if found is not None and found.price is not None:
        answer = " + ".join(found.measures) or "fits as it is"
        bus_bytes = found.price.extra_host_bytes
        sizes[1:] = [format_bytes(found.peak_total_bytes), f"{found.price.extra_percent:+.1f} %"]
        sizes.append(f"+{format_bytes(bus_bytes)}" if bus_bytes >= MIB else "")
    return f"| {words} | {case.gpu} | {sizes[0]} | {answer} | {' | '.join(sizes[1:])} | {len(plan.tried) + 1} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.plans.check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--keep", default="accuracy", help="as of dryfit plan")
    parser.add_argument("--plan", metavar="FILE", help="a saved plan of the one program, in place of a new one")
    parser.add_argument("--table", action="store_true", help="print the table of docs/plan.md, and compare nothing")
    given = parser.parse_args()
    if given.table:
        print(_TABLE_HEAD)
    found_any = False
    for name in given.names or CASES:
        case = CASES[name]
        plan = Plan.load(given.plan) if given.plan else case.plan(keep=given.keep, progress=sys.stderr)
        if given.table:
            print(table_row(case, plan), flush=True)
            continue
        with by_hand() as rehearse:
            found = list(differences(case, plan, rehearse))
        print(f"{name}: {len(plan.tried) + 1} rows, {len(found)} differences", flush=True)
        for line in found:
            print(f"  {line}", flush=True)
        found_any = found_any or bool(found)
    return int(found_any)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())

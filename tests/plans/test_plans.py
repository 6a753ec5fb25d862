"""Plans of the programs beside, made small, on small cards: the answers, and that rows are as written by hand."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dryfit.measures.catalogue import measures_of
from dryfit.rehearse.warm import WarmRehearsals
from dryfit.report.plan import print_plan
from dryfit.search.planned import Plan

from . import check
from .check import Case

PROGRAMS = Path(check.ENTRY).parent


def _case(name: str, memory: str, arguments: str, *, batch: int | None = None) -> Case:
    return Case(name=name, gpu=f"sm=86,sms=82,memory={memory}", batch=batch, arguments=tuple(arguments.split()))


# Each of them is bound by what its large one is bound by. Of the measures the few that make the answer.
CASES: dict[str, tuple[Case, dict[str, Any]]] = {
    "gpt2_xl": (
        _case("gpt2_xl", "860MiB", "--batch 8 --layers 4 --width 256 --heads 4 --length 256"),
        {"only": ("checkpoint-blocks", "chunked-cross-entropy", "offload-optimizer"), "most": 4},
    ),
    "llama_7b_lora": (
        _case("llama_7b_lora", "680MiB", "--layers 4 --width 512 --heads 8 --length 256", batch=8),
        {"only": ("checkpoint-selective", "micro-batch"), "most": 4},
    ),
    "vit_l": (
        _case("vit_l", "765MiB", "--batch 32 --layers 4 --width 256 --heads 4"),
        {"only": ("fused-optimizer", "checkpoint-every-second", "checkpoint-selective", "checkpoint-blocks")},
    ),
    "optimizer_bound": (
        _case("optimizer_bound", "1500MiB", "--layers 4 --width 4096", batch=8),
        {"only": ("fused-optimizer", "micro-batch")},
    ),
    "vocabulary_bound": (
        _case(
            "vocabulary_bound", "700MiB", "--batch 8 --layers 2 --width 128 --heads 2 --length 128 --vocabulary 32768"
        ),
        {"only": ("expandable-segments", "checkpoint-blocks", "chunked-cross-entropy")},
    ),
    "unet": (
        _case("unet", "1800MiB", "--width 16 --size 384", batch=8),
        {"without": ("expandable-segments", "offload-activations", "offload-optimizer", "checkpoint-selective")},
    ),
}
OF_STACKS = ("gpt2_xl", "llama_7b_lora", "vit_l")


@functools.cache
def plan_of(name: str) -> Plan:
    case, options = CASES[name]
    return case.plan(cache=False, **options)


@pytest.fixture(scope="module")
def by_hand() -> Iterator[WarmRehearsals]:
    with check.by_hand() as rehearse:
        yield rehearse


def percent(plan: Plan, *measures: str) -> float:
    """FLOPs beyond those of the program as it is, as counted."""
    row = plan.of(measures)
    assert row is not None
    assert row.price is not None
    assert row.price.is_counted
    return row.price.extra_percent


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.stacks if name in OF_STACKS else ()) for name in CASES]
)
def test_every_row_is_as_written_by_hand_and_ranked_by_its_price(name: str, by_hand: WarmRehearsals) -> None:
    plan = plan_of(name)
    assert plan.as_it_is.kind == "too big"
    assert list(check.differences(CASES[name][0], plan, by_hand)) == []


def test_what_the_programs_have_of_snippets_is_as_these_say() -> None:
    def snippet(name: str) -> str:
        ((measure, _),) = measures_of([name])
        return measure.snippet("pytorch", "8")

    def written(file: str) -> str:
        return (PROGRAMS / file).read_text().split('"""\n\n', 1)[1]

    in_chunks = written("chunked_cross_entropy.py").split("def write_into")[0].strip()
    assert snippet("chunked-cross-entropy").startswith(in_chunks)
    on_host = written("optimizer_on_host.py").split("class OffloadedAdam(")[0].strip()
    assert on_host in f"from typing import Any\n\n{snippet('offload-optimizer')}"
    kept = snippet("checkpoint-selective").partition("aten =")[2].partition("\n\n")[0]
    assert kept in written("by_hand.py")


@pytest.mark.stacks
def test_logits_of_a_large_vocabulary_and_large_states_take_two_measures() -> None:
    found = plan_of("gpt2_xl").cheapest
    assert found is not None
    assert len(found) == 2
    assert "chunked-cross-entropy" in " ".join(found)


@pytest.mark.stacks
def test_micro_batches_cost_no_flops_and_the_weakest_that_fits_is_taken() -> None:
    plan = plan_of("llama_7b_lora")
    assert plan.cheapest == ("micro-batch:4:placed",)
    assert plan.of(("micro-batch:2:placed",)).kind == "too big"  # type: ignore[union-attr]
    assert percent(plan, "micro-batch:4:placed") == 0


@pytest.mark.stacks
def test_checkpointing_costs_what_is_computed_once_more_and_not_a_third() -> None:
    """A block's last matrix product, 4 of its 12 parts, gives nothing that backward needs: it is not computed again."""
    plan = plan_of("vit_l")
    assert plan.cheapest == ("checkpoint-every-second",)
    assert percent(plan, "checkpoint-selective") == 0
    assert percent(plan, "checkpoint-blocks") == pytest.approx(22.2, abs=0.1)
    assert percent(plan, "checkpoint-every-second") == pytest.approx(percent(plan, "checkpoint-blocks") / 2)


def test_where_the_optimizer_step_is_the_peak_fused_wins_and_a_smaller_batch_is_said_to_give_nothing() -> None:
    plan = plan_of("optimizer_bound")
    assert plan.cheapest == plan.surely == ("fused-optimizer",)
    assert (
        "The peak is in the optimizer step, when activations are gone: a smaller batch gives next to nothing "
        "(micro-batch:2:placed: "
    ) in printed(plan)


def test_where_the_logits_are_the_peak_the_loss_is_computed_in_chunks() -> None:
    plan = plan_of("vocabulary_bound")
    assert plan.cheapest == plan.surely == ("chunked-cross-entropy:8",)
    assert plan.of(("checkpoint-blocks",)).kind == "too big"  # type: ignore[union-attr]
    assert 25 < percent(plan, "chunked-cross-entropy:8") < 33


def test_where_batch_norms_see_the_batch_micro_batches_are_another_method() -> None:
    plan = plan_of("unet")
    assert plan.cheapest == plan.surely == ("checkpoint-blocks",)
    assert percent(plan, "checkpoint-blocks") == pytest.approx(31.9, abs=0.1)
    (micro,) = (each for each in plan.not_tried if each.measure == "micro-batch")
    assert (micro.why, micro.how_to) == ("it trains something else, or by another rule", "--keep nothing")


def printed(plan: Plan) -> str:
    out = io.StringIO()
    print_plan(plan, file=out)
    return out.getvalue()

"""The whole plan, of a simulated program with simulated measures."""

from __future__ import annotations

import dataclasses
import io
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.measures import catalogue
from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.measure import METHOD, PRECISION, Measure
from dryfit.measures.micro_batch import MEASURES as MICRO_BATCH
from dryfit.rehearse.result import Ending
from dryfit.search import choosing, starting
from dryfit.search import plan as plan_module
from dryfit.search.planned import Plan, is_more_than_needed

from .simulated import GIB, Simulated, failure, result_of
from .simulated_measures import FLOPS, Program, measure

CARD = find_card("rtx-3090")  # 23.57 GiB
NOT_SWITCHED_ON = Ending(how="not switched on", sentence="b cannot be switched on in train.py: it is another way.")
RAISED = Ending(
    how="raised", sentence="train.py failed after 1 optimiser step: ValueError: no.", error_type="ValueError"
)
TIME_LIMIT = Ending(
    how="time limit", sentence="train.py was stopped after 1 optimiser step, at the limit of 5 seconds."
)

MakePlan = Callable[..., Plan]


@pytest.fixture
def make_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MakePlan:
    """`dryfit.plan`, with simulated measures and a simulated program, in a folder with a script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('simulated')\n")

    def run(program: Program | Simulated, measures: Sequence[Measure], words: str = "train.py", **options: Any) -> Plan:
        for module in (catalogue, choosing):
            monkeypatch.setattr(module, "all_measures", lambda: tuple(measures))
        simulated = program.simulated if isinstance(program, Program) else program
        monkeypatch.setattr(starting, "warm_rehearsals", simulated)
        return plan_module.plan(words.split(), **{"gpu": "rtx-3090", "jobs": 2, **options})

    return run


FREE = measure("free")
CHECKPOINT = measure("checkpoint", group="blocks")
EVERY_SECOND = measure("every-second", group="blocks")
STEP = measure("step", snippets={"pytorch": "for_{blocks}()"})
EFFECTS = {
    "free": {"backward": 1.0},
    "every-second": {"forward": 5.0, "backward": 2.7, "flops": 150},
    "checkpoint": {"forward": 10.0, "backward": 9.0, "flops": 330},
    "step": {"optimizer step": 6.0, "host": 100.0},
}
USUAL = (FREE, EVERY_SECOND, CHECKPOINT, STEP)


def test_the_cheapest_that_fits_its_price_and_what_was_looked_at(make_plan: MakePlan) -> None:
    found = make_plan(Program(EFFECTS), USUAL)
    assert found.as_it_is.kind == "too big"
    assert found.as_it_is.lacking_bytes == 26 * GIB + CARD.outside_bytes - CARD.total_bytes
    assert (found.cheapest, found.surely, found.nearest, found.exit_code) == (("free", "every-second"),) * 2 + (None, 0)
    cheapest = found.of(found.cheapest)
    assert cheapest is not None
    assert cheapest.price is not None
    assert (cheapest.price.flops, cheapest.price.base_flops, cheapest.price.extra_percent) == (1150, FLOPS, 15.0)
    assert cheapest.peak_total_bytes == int(22.3 * GIB) + CARD.outside_bytes
    assert found.tried[0] == cheapest
    fits = [each for each in found.tried if each.kind == "fits"]
    assert [each.price.order for each in fits if each.price] == sorted(each.price.order for each in fits if each.price)
    (searched,) = found.searched
    assert (searched.measures, searched.combinations, searched.largest) == (4, 7, 0)
    assert (searched.rehearsed, searched.cheaper) == (1, 0)  # free + step moves bytes to the host, which costs more
    assert [written.measure for written in found.to_write] == ["free", "every-second"]
    assert found.cards[0].measures == ()
    assert found.cards[0].card is not None
    assert found.to_write[0].snippet == "write('free', )"


def test_the_price_is_of_that_very_combination_and_not_a_sum(make_plan: MakePlan) -> None:
    """Two combinations fit; by the sum of its parts the first is cheaper, counted it is not."""
    measures = [measure("a"), measure("b"), measure("c")]
    effects = {
        "a": {"backward": 2.0, "flops": 100},
        "b": {"backward": 2.0, "flops": 100},
        "c": {"backward": 5.0, "flops": 220},
    }
    program = Program(effects)
    counted = program.rehearse

    def rehearse(words: list[str], *, measures: tuple[str, ...] = (), **options: Any) -> Any:
        result = counted(words, measures=measures, **options)
        if result.facts is not None and set(measures) == {"a", "b"}:
            return dataclasses.replace(result, facts=dataclasses.replace(result.facts, flops=FLOPS + 300))
        return result

    found = make_plan(Simulated(rehearse), measures)
    assert found.cheapest == ("c",)
    both = found.of(("a", "b"))
    assert both is not None
    assert both.price is not None
    assert (both.kind, both.price.extra_percent) == ("fits", 30.0)


def test_a_program_that_fits_says_so_first_and_what_measures_save(make_plan: MakePlan) -> None:
    found = make_plan(Program(EFFECTS, as_it_is={"forward": 12.0, "backward": 14.0, "optimizer step": 13.0}), USUAL)
    assert (found.cheapest, found.surely, found.exit_code, found.to_write, found.searched) == ((), (), 0, (), ())
    assert {each.measures for each in found.tried} == {("free",), ("every-second",), ("checkpoint",), ("step",)}
    assert all(each.kind == "fits" and each.price for each in found.tried)
    assert found.cards == ()


def test_of_a_ladder_the_weakest_option_that_fits_and_the_one_before_was_rehearsed(make_plan: MakePlan) -> None:
    ladder = measure("ladder", options=("2", "4", "8", "16"))
    effects = {"ladder:2": {"backward": 2.0}, "ladder:4": {"backward": 4.0}, "ladder:8": {"backward": 6.0}}
    effects["ladder:16"] = {"backward": 6.0}
    found = make_plan(Program(effects), [ladder])
    assert found.cheapest == ("ladder:4",)
    assert found.of(("ladder:2",)).kind == "too big"  # type: ignore[union-attr]
    assert [(each.measure, each.why) for each in found.rejected] == [
        ("ladder:16", "it takes no less than ladder:8 in any phase")
    ]
    assert found.to_write[0].snippet == "write('ladder', 4)"


def test_of_equal_prices_the_weaker_option_comes_first(make_plan: MakePlan) -> None:
    ladder = measure("ladder", options=("1", "2", "3"))
    effects = {f"ladder:{n}": {"backward": 8.0 + 3.0 * n} for n in (1, 2, 3)}
    found = make_plan(Program(effects), [ladder])
    assert [each.measures for each in found.tried] == [("ladder:1",), ("ladder:2",), ("ladder:3",)]


def test_a_ladder_is_climbed_while_it_saves_a_hundredth(make_plan: MakePlan) -> None:
    ladder = measure("ladder", options=("2", "4", "8", "16"))
    effects = {f"ladder:{2**n}": {"backward": 1 - 0.1**n} for n in range(1, 5)}
    found = make_plan(Program(effects), [ladder])
    assert [each.measures for each in found.tried] == [("ladder:4",), ("ladder:2",)]
    assert [(each.measure, each.why) for each in found.not_tried] == [
        ("ladder:8 to ladder:16", "ladder:4 saves less than 1 % more than what comes before it")
    ]


def test_what_is_of_no_use_is_rejected_with_why(make_plan: MakePlan) -> None:
    measures = [
        measure("a", needs="no-such-package"),
        measure("b", options=("1", "2")),
        measure("idle"),
        measure("same"),
    ]
    refused = dataclasses.replace(NOT_SWITCHED_ON, sentence="a cannot be switched on in train.py: it is not installed.")
    effects: dict[str, dict[str, float]] = {word: {} for word in ("a", "b:1", "b:2", "idle", "same")}
    program = Program(effects, ends={"a": refused, "b:1": RAISED}, idle=["idle"])
    found = make_plan(program, measures)
    assert [(each.measure, each.why, each.how_to) for each in found.rejected] == [
        ("a", "a cannot be switched on in train.py: it is not installed.", "pip install no-such-package"),
        ("b:1", "with it train.py failed after 1 optimiser step: ValueError: no.", ""),
        ("idle", "it found nothing to do in this program", ""),
        ("same", "it takes no less in any phase", ""),
    ]
    assert ("b:2", "b:1 is of no use") in [(each.measure, each.why) for each in found.not_tried]
    assert (found.cheapest, found.nearest, found.exit_code) == (None, (), 1)
    assert found.tried == ()


def test_what_does_not_apply_or_changes_too_much_is_not_rehearsed(make_plan: MakePlan) -> None:
    measures = [
        measure("absent", why_not="there is no loader"), measure("bf16", changes=PRECISION),
        measure("lora", changes=METHOD), measure("none", options=()),
    ]  # fmt: skip
    program = Program({"bf16": {"backward": 9.0}, "lora": {"optimizer step": 9.0}})
    found = make_plan(program, measures)
    assert [(each.measure, each.why, each.how_to) for each in found.not_tried] == [
        ("absent", "there is no loader", ""),
        ("bf16", "it computes or keeps numbers with fewer bits", "--keep method"),
        ("lora", "it trains something else, or by another rule", "--keep nothing"),
        ("none", "it has no option for this program", ""),
    ]
    assert make_plan(program, measures, keep="method").cheapest == ("bf16",)
    kept = make_plan(program, measures, keep="nothing")
    assert [each.measure for each in kept.not_tried] == ["absent", "none"]
    assert [each.price.changes for each in kept.tried if each.price] == ["precision", "method"]


def test_nothing_changed_is_cheaper_than_any_flops(make_plan: MakePlan) -> None:
    measures = [measure("bf16", changes=PRECISION), CHECKPOINT]
    found = make_plan(Program(EFFECTS | {"bf16": {"backward": 9.0}}), measures, keep="nothing")
    assert found.cheapest == ("checkpoint",)
    assert [each.measures for each in found.tried][:2] == [("checkpoint",), ("bf16",)]


def test_only_and_without_restrict_what_is_tried(make_plan: MakePlan) -> None:
    found = make_plan(Program(EFFECTS), USUAL, only=["checkpoint", "free"])
    assert found.cheapest == ("checkpoint",)
    assert [(each.measure, each.why) for each in found.not_tried] == [
        ("every-second", "not one of --only"),
        ("step", "not one of --only"),
    ]
    found = make_plan(Program(EFFECTS), USUAL, without=["every-second"])
    assert found.cheapest == ("checkpoint",)
    assert [(each.measure, each.why) for each in found.not_tried] == [("every-second", "left out by --without")]


def test_a_measure_that_takes_long_is_tried_where_it_is_asked_for(make_plan: MakePlan) -> None:
    slow = measure("slow", takes_long="it takes minutes")
    program = Program(EFFECTS | {"slow": {"backward": 9.0}})
    found = make_plan(program, [slow, CHECKPOINT])
    assert found.cheapest == ("checkpoint",)
    assert [(each.measure, each.why, each.how_to) for each in found.not_tried] == [
        ("slow", "it takes minutes", "--also slow")
    ]
    assert make_plan(program, [slow, CHECKPOINT], also=["slow"]).cheapest == ("slow",)
    assert make_plan(program, [slow, CHECKPOINT], only=["slow"]).cheapest == ("slow",)
    with pytest.raises(UsageError, match="slow is named in --also and in --without; it can be tried or left out"):
        make_plan(program, [slow, CHECKPOINT], also=["slow"], without=["slow"])


def test_where_nothing_fits_the_nearest_is_said_and_the_card_it_was_rehearsed_on(make_plan: MakePlan) -> None:
    program = Program(EFFECTS, as_it_is={"forward": 50.0, "backward": 60.0, "optimizer step": 55.0})
    found = make_plan(program, USUAL)
    assert (found.cheapest, found.surely, found.exit_code) == (None, None, 1)
    assert found.nearest == ("free", "checkpoint", "step")
    nearest = found.of(found.nearest)
    assert nearest is not None
    assert nearest.price is not None
    assert nearest.lacking_bytes == 50 * GIB + CARD.outside_bytes - CARD.total_bytes
    assert [each.measure for each in found.to_write] == ["free", "checkpoint", "step"]
    (searched,) = found.searched
    assert (searched.rehearsed, searched.cheaper, searched.left, searched.ruled_out) == (7, 7, 0, 0)
    assert [each.measures for each in found.cards] == [(), found.nearest]
    for each in found.cards:
        assert each.card is not None
        tried_there = [
            options for _, options in program.simulated.calls
            if options["gpu"] == each.card and options.get("measures", ()) == each.measures
        ]  # fmt: skip
        assert len(tried_there) == 1


def test_more_cards_are_looked_at_only_where_one_is_not_enough(make_plan: MakePlan) -> None:
    shards = measure("shards", group="cards", options=("2", "4"))
    effects = EFFECTS | {"shards:2": {"backward": 5.0, "forward": 5.0}, "shards:4": {"backward": 8.0, "forward": 8.0}}
    found = make_plan(Program(effects), [shards, CHECKPOINT])
    assert found.cheapest == ("checkpoint",)
    assert [(each.measure, each.why, each.how_to) for each in found.not_tried] == [
        ("shards", "it needs several cards, and one is enough", "--also shards")
    ]
    too_big = {"forward": 20.0, "backward": 34.0, "optimizer step": 20.0}
    found = make_plan(Program(effects, as_it_is=too_big), [shards, CHECKPOINT], cache=False)
    assert found.cheapest == ("checkpoint", "shards:2")
    assert found.of(found.cheapest).price.cards == 2  # type: ignore[union-attr]
    assert make_plan(Program(effects), [shards, CHECKPOINT], only="shards").cheapest == ("shards:2",)


def test_a_budget_ends_the_search_and_what_was_left_is_counted(make_plan: MakePlan) -> None:
    found = make_plan(
        Program(EFFECTS, as_it_is=dict.fromkeys(("forward", "backward", "optimizer step"), 60.0)), USUAL, most=0
    )
    (searched,) = found.searched
    assert (searched.rehearsed, searched.most) == (0, 0)
    assert searched.left + searched.ruled_out == searched.cheaper == 7
    assert found.cheapest is None


def test_what_lies_between_tensors_and_the_card_is_decided_by_a_rehearsal_on_it(make_plan: MakePlan) -> None:
    """23 GiB of tensors and 3 GiB that is cached: too much without a limit, and on the card it is given back."""
    program = Program({"a": {"backward": 3.0}}, cached_gib=3.0)
    found = make_plan(program, [measure("a")])
    assert found.cheapest == ("a",)
    on_card = [options for _, options in program.simulated.calls if options["memory_bytes"] is None]
    assert [options["measures"] for options in on_card if options["gpu"] == "rtx-3090"][:1] == [("a",)]
    assert found.of(("a",)).peak_total_bytes == CARD.total_bytes  # type: ignore[union-attr]


def test_tensors_alone_that_take_too_much_are_not_rehearsed_on_the_card(make_plan: MakePlan) -> None:
    program = Program(EFFECTS, as_it_is={"backward": 60.0})
    make_plan(program, [FREE])
    assert [options for _, options in program.simulated.calls if options["gpu"] == "rtx-3090"
            and options["memory_bytes"] is None] == []  # fmt: skip


def test_too_close_to_call_goes_on_to_what_fits_for_sure(make_plan: MakePlan) -> None:
    """`a` leaves 50 MiB of a margin of 100; `a` and `b` leave more."""
    room = CARD.usable_bytes / GIB
    program = Program({"a": {"backward": 26 - room + 0.05}, "b": {"backward": 0.5, "flops": 10}})
    found = make_plan(program, [measure("a"), measure("b")])
    assert (found.cheapest, found.surely) == (("a",), ("a", "b"))
    a, both = found.of(("a",)), found.of(("a", "b"))
    assert a is not None
    assert both is not None
    assert (a.kind, a.is_close, both.kind, both.is_close) == ("fits", True, "fits", False)
    assert [each.measure for each in found.to_write] == ["a", "b"]
    assert [each.is_strict for each in found.searched] == [False, True]
    assert found.exit_code == 0


def test_what_is_found_on_the_way_to_what_is_sure_and_costs_less_is_the_cheapest(make_plan: MakePlan) -> None:
    """Together `a` and `b` cost less than `a` alone, which only counting can tell."""
    room = CARD.usable_bytes / GIB
    program = Program({"a": {"backward": 26 - room + 0.05, "flops": 50}, "b": {"backward": 0.5, "flops": -20}})
    whole = program.rehearse

    def rehearse(words: list[str], *, measures: tuple[str, ...] = (), **options: Any) -> Any:
        result = whole(words, measures=measures, **options)
        if measures == ("b",) and result.facts is not None:
            return dataclasses.replace(result, facts=dataclasses.replace(result.facts, flops=FLOPS + 20))
        return result

    found = make_plan(Simulated(rehearse), [measure("a"), measure("b")])
    assert (found.cheapest, found.surely) == (("a", "b"), ("a", "b"))
    assert found.tried[0].measures == ("a", "b")


def test_a_close_call_that_the_whole_margin_settles_is_none(make_plan: MakePlan) -> None:
    """What is cached fills the card up to the brim, and is given back."""
    found = make_plan(Program({"a": {"backward": 4.0}}, cached_gib=3.0), [measure("a")])
    assert (found.cheapest, found.surely) == (("a",), ("a",))
    assert found.of(("a",)).is_close is False  # type: ignore[union-attr]


def test_a_reserve_stays_free(make_plan: MakePlan) -> None:
    assert make_plan(Program(EFFECTS), USUAL, reserve_bytes=GIB).cheapest == ("checkpoint",)


def test_a_program_that_fails_gets_no_plan_but_its_own_error(make_plan: MakePlan) -> None:
    program = Simulated(lambda words, **options: failure(words, gpu=options["gpu"]))
    found = make_plan(program, USUAL)
    assert (found.as_it_is.kind, found.exit_code, found.tried, found.cheapest) == ("failed", 2, (), None)
    assert "ValueError: no" in found.as_it_is.sentence
    assert len(program.calls) == 2


def test_a_limit_of_ours_that_stops_the_program_is_no_answer(make_plan: MakePlan) -> None:
    found = make_plan(Program({}, ends={"": TIME_LIMIT}), [])
    assert (found.as_it_is.kind, found.exit_code) == ("stopped", 3)


def test_a_combination_that_fails_is_none_and_the_next_is_found(make_plan: MakePlan) -> None:
    program = Program(EFFECTS)
    whole = program.rehearse

    def rehearse(words: list[str], *, measures: tuple[str, ...] = (), **options: Any) -> Any:
        result = whole(words, measures=measures, **options)
        return dataclasses.replace(result, ending=RAISED) if measures == ("free", "every-second") else result

    found = make_plan(Simulated(rehearse), USUAL)
    assert found.cheapest == ("checkpoint",)
    failed = found.of(("free", "every-second"))
    assert failed is not None
    assert (failed.kind, failed.sentence) == ("failed", RAISED.sentence)
    assert found.searched[0].unanswered == 1


def test_without_facts_measures_are_tried_all_the_same_and_that_is_said(make_plan: MakePlan) -> None:
    found = make_plan(Program(EFFECTS, facts=None), [CHECKPOINT])
    assert found.cheapest == ("checkpoint",)
    assert found.tried[0].price is None
    assert found.notes[0].startswith("What the program is like could not be seen, so that no FLOPs are counted:")


def test_a_snippet_is_for_the_way_and_the_blocks_of_the_program(make_plan: MakePlan) -> None:
    model = ModelFacts(kind="m.M", parameters=1, trainable=1, blocks={"Layer": 12, "Head": 2})
    effects = {"step": {"backward": 5.0, "optimizer step": 1.0}, "checkpoint": {"backward": 9.0}}
    found = make_plan(Program(effects, facts=Facts(models=(model,))), [STEP])
    assert (found.way, found.to_write[0].snippet) == ("pytorch", "for_(Layer, Head)()")
    found = make_plan(Program(effects, facts=Facts(way="transformers")), [CHECKPOINT], cache=False)
    assert found.to_write[0].snippet == "TrainingArguments(...)"


def test_a_snippet_is_for_the_model_where_that_has_it_built_in(make_plan: MakePlan) -> None:
    built_in = {"pytorch": "loop", "transformers model": "built in", "transformers": "Trainer", "lightning": "here"}
    effects = {"step": {"backward": 8.0}}
    model = ModelFacts(kind="m.M", parameters=1, trainable=1, is_transformers=True)
    for way, models, snippet in (
        ("pytorch", (), "loop"),
        ("pytorch", (model,), "built in"),
        ("transformers", (model,), "Trainer"),
        ("lightning", (model,), "here"),
        ("accelerate", (model,), "built in"),
        ("accelerate", (), "loop"),
    ):
        program = Program(effects, facts=Facts(way=way, models=models))
        found = make_plan(program, [measure("step", snippets=built_in)], cache=False)
        assert found.to_write[0].snippet == snippet


def test_the_batch_in_the_words_is_cut_into_micro_batches(make_plan: MakePlan) -> None:
    seen: dict[tuple[str, ...], str] = {}

    def rehearse(words: list[str], *, measures: tuple[str, ...] = (), facts: bool = False, **options: Any) -> Any:
        seen[measures] = words[2]
        size = int(words[2]) * GIB // 2
        optimizer = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=1, tensors=1)
        return dataclasses.replace(
            result_of(words, size, **options),
            phase_peaks={"backward": size},
            measures={word.partition(":")[0]: True for word in measures},
            facts=Facts(flops=7, optimizers=(optimizer,)) if facts else None,
        )

    found = make_plan(Simulated(rehearse), MICRO_BATCH, words="train.py --batch {batch}", batch=64)
    assert seen[()] == "64"
    assert found.cheapest == ("micro-batch:2:placed",)
    assert seen[found.cheapest] == "32"
    assert found.of(found.cheapest).command == ("train.py", "--batch", "32")  # type: ignore[union-attr]
    assert "/ 2" in found.to_write[0].snippet
    assert "placed" not in found.to_write[0].snippet


def test_a_repeated_plan_is_read_from_the_cache(make_plan: MakePlan) -> None:
    first = Program(EFFECTS, ends={"free": NOT_SWITCHED_ON})
    found = make_plan(first, USUAL)
    again = Program(EFFECTS, ends={"free": NOT_SWITCHED_ON})
    repeated = make_plan(again, USUAL)
    assert again.simulated.calls == []
    assert (repeated.rehearsals, repeated.from_cache) == (0, found.rehearsals)
    same = dataclasses.replace(repeated, rehearsals=found.rehearsals, from_cache=0, wall_seconds=found.wall_seconds)
    assert same == found
    make_plan(again, USUAL, cache=False)
    assert again.simulated.calls != []


def test_a_plan_is_the_same_however_many_run_at_a_time(make_plan: MakePlan) -> None:
    answers = {make_plan(Program(EFFECTS), USUAL, jobs=jobs, cache=False).cheapest for jobs in (1, 2, 5)}
    assert answers == {("free", "every-second")}


def test_a_plan_can_be_saved_and_read_back(make_plan: MakePlan, tmp_path: Path) -> None:
    found = make_plan(Program(EFFECTS), USUAL)
    found.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == found
    assert found.to_dict()["tried"][0]["price"]["extra_percent"] == 15.0
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a saved plan of dryfit plan"):
        Plan.load(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text('{"schema_version": 99}')
    with pytest.raises(UsageError, match="has schema version 99, and this dryfit knows up to 1"):
        Plan.load(tmp_path / "plan.json")


def test_progress_says_what_is_rehearsed_and_what_came_of_it(make_plan: MakePlan) -> None:
    said = io.StringIO()
    make_plan(Program(EFFECTS, ends={"step": NOT_SWITCHED_ON}), USUAL, progress=said)
    lines = said.getvalue().splitlines()
    assert "dryfit: as it is on rtx-3090 without a limit: takes 26.31 GiB (2.0 s)" in lines
    assert "dryfit: step on rtx-3090 without a limit: not switched on (2.0 s)" in lines
    assert "dryfit: the price of checkpoint on rtx-3090: takes 22.31 GiB (2.0 s)" in lines


def test_ctrl_c_in_the_middle_ends_the_search(make_plan: MakePlan) -> None:
    class Interrupts(Program):
        def rehearse(self, words: list[str], **options: Any) -> Any:
            if options.get("measures"):
                raise KeyboardInterrupt
            return super().rehearse(words, **options)

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        make_plan(Interrupts(EFFECTS), USUAL)
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_more_than_needed_is_a_set_of_which_a_part_fits_as_surely(make_plan: MakePlan) -> None:
    found = make_plan(Program(EFFECTS), USUAL)
    a = found.tried[0]
    more = dataclasses.replace(a, measures=(*a.measures, "step"))
    assert is_more_than_needed(more, [a])
    assert not is_more_than_needed(a, [a, more])
    assert not is_more_than_needed(more, [dataclasses.replace(a, is_close=True)])
    assert not is_more_than_needed(more, [dataclasses.replace(a, kind="too big")])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gpu": None}, "A plan needs a card for the program to fit on: name one with --gpu, as in --gpu rtx-3090"),
        ({"gpu": "unlimited"}, "On the unlimited card everything fits; name the card that the program is to fit on"),
        ({"reserve_bytes": 100 * GIB}, "--reserve 100.00 GiB leaves nothing of NVIDIA GeForce RTX 3090, which has"),
        ({"keep": "everything"}, "--keep everything is none of accuracy, method, nothing."),
        ({"only": ["fre"]}, "There is no measure 'fre'; there are free, every-second, checkpoint, step."),
        ({"only": ["free"], "without": ["free"]}, "free is named in --only and in --without; it can be tried or left"),
        ({"without": ["free:2"]}, "free:2 names an option; give the measure alone, free"),
        ({"most": -1}, "--most -1 is no number of combinations; it has to be 0 or more."),
        ({"jobs": 0}, "--jobs 0 would rehearse nothing; it has to be 1 or more."),
        ({"batch": 64}, "--batch 64 has no place to go: no word of the program holds {batch}."),
        ({"words": "train.py {batch}"}, "The program's words hold {batch}, and --batch does not say what stands there"),
        ({"words": "train.py {batch}", "batch": 0}, "--batch 0 is no batch; it has to be 1 or more."),
        ({"words": "train.py {seq}"}, "{seq} stands for nothing: a plan varies {batch} alone."),
        ({"seconds": 0.0}, "--seconds 0 leaves no time to run the program"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(make_plan: MakePlan, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        make_plan(Program(EFFECTS), USUAL, **options)
    assert str(error.value).startswith(sentence)


def test_a_measure_asked_for_that_changes_what_is_to_be_kept_is_refused(make_plan: MakePlan) -> None:
    measures = [measure("lora", changes=METHOD), FREE]
    with pytest.raises(UsageError) as error:
        make_plan(Program({"lora": {}, "free": {}}), measures, only=["lora"])
    assert str(error.value) == (
        "--only lora and --keep accuracy contradict each other: it trains something else, or by another rule. "
        "Say --keep nothing to allow that."
    )


def test_a_program_given_as_one_word_is_refused() -> None:
    with pytest.raises(UsageError, match="is given as a list of words"):
        plan_module.plan("train.py", gpu="l4")

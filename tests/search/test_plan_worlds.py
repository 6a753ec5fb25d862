"""Plans of programs that train on many cards: the examples, against the same edited by hand; and worlds in numbers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dryfit
from dryfit.errors import UsageError
from dryfit.rehearse.result import Communication, RankPeak
from dryfit.rehearse.world import World
from dryfit.search.planned import Plan, Tried

from .simulated_measures import FACTS, Program, measure
from .test_plan import MakePlan, make_plan

__all__ = ["make_plan"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"
CARD = "sm=80,sms=108,memory=40GiB"
RANKS, LAYERS, WIDTH = 8, 8, 2048
WEIGHTS_BYTES = LAYERS * (WIDTH + 1) * WIDTH * 4
SHARDED_BY_HAND = """
for layer in model:
    fully_shard(layer)
fully_shard(model)
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    """The plan of the example under DDP, on a card that has room for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        names = ("gradient-as-bucket-view", "zero-redundancy-optimizer", "fsdp-for-ddp", "reshard-after-forward")
        yield dryfit.plan([str(EXAMPLES / "ddp.py")], gpu=CARD, world=RANKS, only=names, jobs=2)


def figures(each: Any) -> dict[str, Any]:
    return {
        "allocated": each.peak_allocated_bytes,
        "reserved": each.peak_reserved_bytes,
        "total": each.peak_total_bytes,
        "phases": each.phase_peaks,
        "passed": each.communication,
    }


def of(plan: Plan, name: str) -> Tried:
    found = plan.of((name,) if name else ())
    assert found is not None
    return found


def by_hand(program: Path, *words: str, ranks: str = "0") -> Any:
    return dryfit.run([str(program), *words], gpu=CARD, world=RANKS, ranks=ranks, quiet=True)


@pytest.mark.xdist_group("plan-worlds")
def test_each_measure_takes_and_sends_what_it_does_by_hand(planned: Plan, tmp_path: Path) -> None:
    assert figures(of(planned, "gradient-as-bucket-view")) == figures(by_hand(EXAMPLES / "ddp.py", "view"))
    zero = by_hand(EXAMPLES / "zero.py", ranks="0,last")
    assert figures(of(planned, "zero-redundancy-optimizer")) == figures(zero)
    assert of(planned, "zero-redundancy-optimizer").ranks == tuple(zero.ranks)
    sharded, wrapped = re.subn(
        r"model = DistributedDataParallel\(\n.*?\n\)\n",
        SHARDED_BY_HAND,
        (EXAMPLES / "ddp.py").read_text(),
        flags=re.DOTALL,
    )
    sharded, moved = re.subn(r"\.cuda\(\)\n", "\n", sharded)
    assert (wrapped, moved) == (1, 1)
    (tmp_path / "fsdp.py").write_text(f"from torch.distributed.fsdp import fully_shard\n{sharded}")
    assert figures(of(planned, "fsdp-for-ddp")) == figures(by_hand(tmp_path / "fsdp.py"))


@pytest.mark.xdist_group("plan-worlds")
def test_what_they_take_and_send_is_what_arithmetic_says(planned: Plan) -> None:
    """An all-reduce sends 2 (n - 1) / n of its payload, a gather or a scatter (n - 1) / n, a broadcast all of it."""
    part = WEIGHTS_BYTES * (RANKS - 1) // RANKS
    sent = {each.measures: each.sent_bytes for each in (planned.as_it_is, *planned.tried)}
    assert sent == {
        (): 2 * part,
        ("gradient-as-bucket-view",): 2 * part,
        ("zero-redundancy-optimizer",): 2 * part + WEIGHTS_BYTES,
        ("fsdp-for-ddp",): 3 * part,  # parameters gathered for each pass, gradients scattered
    }
    base, views = planned.as_it_is, of(planned, "gradient-as-bucket-view")
    assert base.peak_allocated_bytes - views.peak_allocated_bytes == WEIGHTS_BYTES
    # Parameters, gradients, two states and the step's copies, in shards.
    assert of(planned, "fsdp-for-ddp").phase_peaks["after the step"] < base.phase_peaks["after the step"] // (RANKS - 1)
    orders = [each.price.order for each in planned.tried if each.price is not None]
    assert orders == sorted(orders)
    assert planned.tried[0].measures == ("gradient-as-bucket-view",)  # which sends no more
    reasons = {each.measure: each.why for each in planned.not_tried}
    assert reasons["reshard-after-forward"] == "no model of the program is sharded by FSDP2 (fully_shard)"
    assert (planned.world, planned.exit_code) == (World(size=RANKS), 0)


@pytest.mark.xdist_group("plan-worlds")
def test_a_plan_of_a_world_is_saved_and_read_back(planned: Plan, tmp_path: Path) -> None:
    planned.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == planned


class Ranks(Program):
    """A program of which the last rank takes more, as it is or with measures whose shares are unequal."""

    def __init__(self, effects: dict[str, dict[str, float]], *, uneven: tuple[str, ...]) -> None:
        super().__init__(effects)
        self.uneven, self.asked = uneven, []  # type: ignore[var-annotated]

    def rehearse(self, words: list[str], *, ranks: str = "0", world: int = 1, nodes: int = 1, **options: Any) -> Any:  # type: ignore[override]
        measures = options.get("measures", ())
        self.asked.append((measures, ranks, world, nodes, options.get("facts", False)))
        result = super().rehearse(words, **options)
        more = 1 << 30 if any(word in self.uneven for word in measures or [""]) else 0
        total = result.peak_total_bytes
        peaks = [
            RankPeak(
                rank=rank, verdict="fits", peak_allocated_bytes=size, peak_reserved_bytes=size, peak_total_bytes=size
            )
            for rank, size in ((0, total - more), (world - 1, total))
        ]
        sent = {"all-reduce": Communication(calls=1, payload_bytes=7, sent_bytes=7 * (1 + len(measures)))}
        facts = (
            dataclasses.replace(result.facts, world=world, sent_bytes=7 * (1 + len(measures))) if result.facts else None
        )
        return dataclasses.replace(
            result, world=World(size=world, nodes=nodes), ranks=peaks if ranks == "0,last" else [], communication=sent,
            facts=facts,
        )  # fmt: skip


EFFECTS = {"even": {"backward": 1.0}, "uneven": {"backward": 4.0}}
MEASURES = (measure("even"), measure("uneven", is_uneven=True))


def asked_ranks(program: Ranks) -> dict[tuple[str, ...], str]:
    """Of each set of measures, the ranks that were asked for first."""
    first: dict[tuple[str, ...], str] = {}
    for measures, ranks, _, _, is_for_facts in program.asked:
        if not is_for_facts:
            first.setdefault(measures, ranks)
    return first


def test_the_last_rank_is_rehearsed_where_it_may_take_another_amount(make_plan: MakePlan) -> None:
    program = Ranks(EFFECTS, uneven=("uneven",))
    found = make_plan(program, MEASURES, world=16, nodes=4)
    ranks = asked_ranks(program)
    assert (ranks[()], ranks["even",], ranks["uneven",]) == ("0,last", "0", "0,last")
    assert {ranks for _, ranks, _, _, is_for_facts in program.asked if is_for_facts} == {"0"}
    assert {(world, nodes) for _, _, world, nodes, _ in program.asked} == {(16, 4)}
    assert found.world == World(size=16, nodes=4)
    price = of(found, "uneven").price
    assert price is not None
    assert (of(found, "uneven").sent_bytes, price.sent_bytes, price.extra_sent_bytes) == (14, 14, 7)


def test_where_the_program_itself_is_uneven_the_last_rank_is_always_rehearsed(make_plan: MakePlan) -> None:
    program = Ranks(EFFECTS, uneven=("",))
    make_plan(program, MEASURES, world=2)
    assert set(asked_ranks(program).values()) == {"0,last"}


def test_a_program_without_a_process_group_is_said_to_be_alone(make_plan: MakePlan) -> None:
    found = make_plan(Program(EFFECTS, facts=FACTS), MEASURES, world=8)
    assert found.notes == (
        "The program made no process group, so that it is not one of 8 ranks: every figure is that of a program on one "
        "card. Without --world, measures that spread it over several cards are tried.",
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"world": 0}, "--world 0: a world has 1 to 1048576 ranks, one for each card."),
        (
            {"world": 8, "nodes": 3},
            "--world 8 --nodes 3: 8 ranks cannot be shared out equally among 3 nodes; every node",
        ),
        ({"world": 8, "cards": 2}, "--cards 2 --world 8: the world says how many cards there are; leave one out."),
        ({"nodes": 3}, "--nodes says how many machines share a world: give its number of ranks, as in --world 8."),
    ],
)
def test_bad_worlds_are_named(make_plan: MakePlan, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        make_plan(Program(EFFECTS), MEASURES, **options)
    assert str(refused.value).startswith(sentence)

"""What holds of every recording, however odd."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dryfit.analyse import analyse
from dryfit.analyse.stretches import stretches_of
from dryfit.recording import model
from dryfit.recording.model import OWNERS, PHASES

from .build import Script, at, module

FRAMES = (
    at("/home/me/train.py", 3),
    at("/x/torch/optim/adam.py", 5, "step"),
    at("/x/torch/nn/parallel/distributed.py", 5, "forward"),
    at("/x/torch/utils/checkpoint.py", 5, "recompute_fn"),
    at("/x/torch/nn/functional.py", 5, "cross_entropy"),
    at("/x/torch/autograd/__init__.py", 5, "backward"),
    at("c10.cpp", 0, "torch::autograd::Engine::thread_main"),
    module("blocks.0"),
    module(""),
)
PLAINLY_OWNED = [owner for owner in OWNERS if owner != model.REMAINDER]
ALLOC = st.tuples(
    st.just("alloc"),
    st.sampled_from([4, 512, 4096, 8_519_680]),
    st.lists(st.sampled_from(FRAMES), max_size=3),
    st.sampled_from([*PLAINLY_OWNED, "", "", ""]),
)
ACTION = st.one_of(
    ALLOC,
    st.tuples(st.just("free"), st.integers(0, 20)),
    st.tuples(st.just("phase"), st.sampled_from(PHASES), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("oom"), st.integers(1, 1 << 30)),
)


def written(actions: list, source: str) -> Script:
    script = Script(source)
    alive: list[int] = []
    for action in actions:
        if action[0] == "alloc":
            _, size, frames, owner = action
            alive.append(script.alloc(size, *frames, owner=owner, name="blocks.0.weight", dtype="float32"))
        elif action[0] == "free" and alive:
            script.free(alive.pop(action[1] % len(alive)), stack=FRAMES[:1])
        elif action[0] == "phase" and source == "rehearsal":
            script.phase(action[1], action[2], action[3])
        elif action[0] == "oom":
            script.out_of_memory(action[1])
    return script


@given(st.lists(ACTION, max_size=60), st.sampled_from(["rehearsal", "snapshot"]))
def test_every_allocation_has_one_owner_and_a_place(actions: list, source: str) -> None:
    recording = written(actions, source).recording()
    analysed = analyse(recording)
    replayed, found = analysed.replay, analysed.attribution
    count = len(replayed.lifetimes)
    assert len(found.owner) == len(found.module) == len(found.line) == len(found.is_logits_or_loss) == count
    assert {OWNERS[owner] for owner in found.owner} <= set(PLAINLY_OWNED)
    assert all(module < len(found.modules) for module in found.module)
    assert all(line < len(found.lines) for line in found.line)
    assert set(found.tensor) <= set(range(count))


@given(st.lists(ACTION, max_size=60))
def test_every_event_lies_in_one_stretch(actions: list) -> None:
    (trace,) = written(actions, "rehearsal").recording().devices
    stretches = stretches_of(trace.events, trace.marks)
    for event, place in enumerate(stretches.of_event):
        assert stretches.all[place].begin <= event < stretches.all[place].end
    assert all(stretch.decided_at >= stretch.end or not stretch.precedes_backward for stretch in stretches.all)


@given(st.lists(ACTION, max_size=40))
def test_the_same_recording_gives_the_same_answer(actions: list) -> None:
    recording = written(actions, "rehearsal").recording()
    assert analyse(recording).attribution == analyse(recording).attribution

"""Phases and owners of a real card's snapshot, which has stacks and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dryfit.analyse import analyse
from dryfit.analyse.phases_from_stacks import phases_from_stacks
from dryfit.analyse.stack_facts import facts_of
from dryfit.recording import model
from dryfit.recording.model import OWNERS, Block, Segment
from dryfit.recording.opening import open_recording

from .attributed import Attributed
from .build import BASE_ADDRESS, MIB, Script, at

SNAPSHOTS = Path(__file__).parents[3] / "shared" / "truth" / "snapshots"
TRAIN = at("train.py", 9, "<module>")
CALL = at("site-packages/torch/nn/modules/module.py", 1790, "_call_impl")
FORWARD = (at("model.py", 5, "forward"), CALL, TRAIN)
ENGINE = (at("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),)
ACCUMULATES = (
    at("accumulate_grad.cpp", 0, "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)"),
    *ENGINE,
)
STEP = (at("site-packages/torch/optim/adamw.py", 300, "_multi_tensor_adamw"), TRAIN)
ZERO_GRAD = (at("site-packages/torch/optim/optimizer.py", 1066, "zero_grad"), TRAIN)
BUILD = (at("model.py", 2, "__init__"), TRAIN)


def phases(script: Script) -> list[tuple[int, str]]:
    recording = script.recording()
    return [(mark.step, mark.phase) for mark in phases_from_stacks(recording.devices[0], facts_of(recording.stacks))]


def a_step(script: Script, size: int = MIB) -> int:
    """Forward, loss, backward and optimizer of a model with one parameter; the gradient it leaves."""
    saved = [script.alloc(size, *FORWARD) for _ in range(3)]
    loss = script.alloc(512, TRAIN)
    gradient = script.alloc(size, *ENGINE)
    script.free(*saved, loss, stack=ENGINE)
    scrap = script.alloc(size, *STEP)
    script.free(scrap, stack=STEP)
    return gradient


def test_steps_and_phases_are_read_off_the_stacks() -> None:
    script = Script("snapshot")
    script.alloc(MIB, *BUILD)
    for _ in range(2):
        script.free(a_step(script), stack=ZERO_GRAD)
    assert phases(script) == [
        (0, "setup"),
        *[(1, phase) for phase in ("forward", "loss", "backward", "optimizer step", "zero_grad")],
        *[(2, phase) for phase in ("forward", "loss", "backward", "optimizer step", "zero_grad")],
    ]


def test_where_no_frames_of_c_were_recorded_an_empty_stack_is_backward() -> None:
    script = Script("snapshot")
    saved = [script.alloc(MIB, *FORWARD) for _ in range(2)]
    script.alloc(MIB)
    script.free(*saved)
    assert phases(script) == [(1, "forward"), (1, "backward")]


def test_without_optimizer_or_zero_grad_a_forward_pass_after_backward_is_the_next_step() -> None:
    script = Script("snapshot")
    for _ in range(2):
        saved = script.alloc(MIB, *FORWARD)
        script.alloc(MIB, *ENGINE)
        script.free(saved, stack=ENGINE)
    assert phases(script) == [(1, "forward"), (1, "backward"), (2, "forward"), (2, "backward")]


def test_a_forward_pass_that_keeps_nothing_is_an_evaluation() -> None:
    script = Script("snapshot")
    for _ in range(40):
        script.free(script.alloc(MIB, *FORWARD))
    assert phases(script) == [(1, "evaluation")]


def test_stacks_without_any_known_frame_give_no_marks() -> None:
    script = Script("snapshot")
    script.alloc(MIB, TRAIN)
    assert phases(script) == []
    assert Attributed(script).all.lines[-1] == ("train.py", 9, "<module>")


def test_owners_of_a_training_step() -> None:
    script = Script("snapshot")
    weight = script.alloc(MIB, *BUILD)
    moved = script.alloc(MIB, at("site-packages/torch/nn/modules/module.py", 915, "_apply"), TRAIN)
    saved, scrap = script.alloc(MIB, *FORWARD), script.alloc(MIB, *FORWARD)
    cublas = script.alloc(8_519_680, *FORWARD)
    convolution = script.alloc(MIB, at("Conv_v8.cpp", 0, "at::native::run_conv_plan(cudnnContext*)"), *FORWARD)
    script.free(scrap, convolution)
    passing, gradient = script.alloc(MIB, *ENGINE), script.alloc(MIB, *ENGINE)
    script.free(passing, saved, stack=ENGINE)
    state, foreach = script.alloc(MIB, *STEP), script.alloc(MIB, *STEP)
    script.free(foreach, stack=STEP)
    script.free(gradient, stack=ZERO_GRAD)
    found = Attributed(script)
    assert {name: found.owner(event) for name, event in locals().items() if isinstance(event, int)} == {
        "weight": model.PARAMETER,
        "moved": model.PARAMETER,
        "saved": model.ACTIVATION,
        "scrap": model.TEMPORARY,
        "cublas": model.WORKSPACE,
        "convolution": model.WORKSPACE,
        "passing": model.TEMPORARY,
        "gradient": model.GRADIENT,
        "state": model.OPTIMIZER_STATE,
        "foreach": model.TEMPORARY,
    }


def test_what_an_optimizers_constructor_makes_is_its_state() -> None:
    script = Script("snapshot")
    state = script.alloc(MIB, at("optimizer/adam.py", 27, "__init__"), TRAIN)
    a_step(script)
    assert Attributed(script).owner(state) == model.OPTIMIZER_STATE


def test_a_cast_of_a_weight_is_an_autocast_copy_and_of_activations_is_not() -> None:
    cast = at("autocast_mode.cpp", 0, "at::autocast::cached_cast(c10::ScalarType, at::Tensor const&, c10::DeviceType)")
    script = Script("snapshot")
    script.alloc(4 * MIB, *BUILD)
    of_weight, of_input = script.alloc(2 * MIB, cast, *FORWARD), script.alloc(3 * MIB, cast, *FORWARD)
    script.free(of_weight, of_input, stack=ENGINE)
    a_step(script)
    found = Attributed(script)
    assert found.owner(of_weight) == model.AUTOCAST_COPY
    assert found.owner(of_input) != model.AUTOCAST_COPY


def held(sizes: list[int]) -> tuple[Segment, ...]:
    """A segment with blocks that were there before the recording."""
    base = 0x600000000000
    blocks, address = [], base
    for size in sizes:
        blocks.append(Block(address, size, size, "active_allocated"))
        address += size
    return (Segment(base, address - base, 0, False, False, 0, tuple(blocks)),)


def owners_of_before(script: Script, sizes: list[int]) -> Counter[str]:
    found = Attributed(script, held_before=held(sizes))
    names = Counter(
        OWNERS[owner] for owner, begin in zip(found.all.owner, found.lifetimes.begin, strict=True) if begin < 0
    )
    if model.UNKNOWN in names:
        assert "held since before the recording began" in {label.name for label in found.all.tensor.values()}
    return names


def test_what_was_there_before_is_unknown_and_says_so() -> None:
    script = Script("snapshot")
    script.alloc(MIB, *FORWARD)
    assert owners_of_before(script, [2 * MIB, 3 * MIB]) == {model.UNKNOWN: 2}


def test_blocks_from_before_in_a_multiple_of_the_gradients_sizes_are_parameters_and_states() -> None:
    script = Script("snapshot")
    for size in (2 * MIB, 3 * MIB):
        a_step(script, size)
    script = Script("snapshot")
    saved = script.alloc(MIB, *FORWARD)
    gradients = [script.alloc(size, *ENGINE) for size in (2 * MIB, 3 * MIB)]
    script.free(saved, stack=ENGINE)
    script.free(*gradients, stack=ZERO_GRAD)
    sizes = [2 * MIB, 3 * MIB]
    assert owners_of_before(script, sizes) == {model.PARAMETER: 2}
    assert owners_of_before(script, sizes * 3) == {model.PARAMETER: 2, model.OPTIMIZER_STATE: 4}
    assert owners_of_before(script, [2 * MIB, 3 * MIB, 3 * MIB]) == {model.UNKNOWN: 3}


def test_gradients_from_before_are_known_by_what_is_added_to_them() -> None:
    script = Script("snapshot")
    saved = script.alloc(MIB, *FORWARD)
    added = [script.alloc(size, *ENGINE) for size in (2 * MIB, 3 * MIB)]
    script.free(*added, stack=ACCUMULATES)
    script.free(saved, stack=ENGINE)
    assert owners_of_before(script, [2 * MIB, 3 * MIB] * 2) == {model.PARAMETER: 2, model.GRADIENT: 2}


def at_the_peak(file: str) -> dict[str, int]:
    """What each owner had asked for at the peak, in bytes."""
    if not SNAPSHOTS.exists():
        pytest.skip(f"the recordings of real cards are not in {SNAPSHOTS}")
    recording = open_recording(SNAPSHOTS / file)
    analysed = analyse(recording)
    replayed, found = analysed.replay, analysed.attribution
    peak = replayed.allocated_bytes.index(max(replayed.allocated_bytes))
    sizes: Counter[str] = Counter()
    lifetimes = replayed.lifetimes
    for owner, begin, end, size in zip(
        found.owner, lifetimes.begin, lifetimes.end, lifetimes.requested_bytes, strict=True
    ):
        if begin <= peak < end:
            sizes[OWNERS[owner]] += size
    return sizes


def transformer(width: int, inner: int, layers: int, vocabulary: int) -> int:
    """Parameters of the course's language model: attention, SwiGLU, two norms a layer; embedding, norm and head."""
    return layers * (4 * width**2 + 3 * width * inner + 2 * width) + 2 * vocabulary * width + width


@pytest.mark.truth
@pytest.mark.parametrize(
    ("file", "parameters", "gradients", "states"),
    [
        ("linyun_xl_ctx128_full_step_none.pickle.xz", transformer(2560, 10240, 32, 10000), 1, 2),
        ("linyun_xl_ctx128_full_step_bf16.pickle.xz", transformer(2560, 10240, 32, 10000), 1, 2),
        ("niu_small4L_train_ctx100_fp32.pickle.xz", transformer(512, 1344, 4, 10000), 0, 2),
        ("pytorchblog_resnet50_bs1_sgdm.pickle.xz", 25_557_032, None, 1),
    ],
)
def test_owners_of_real_recordings_equal_the_arithmetic(
    file: str, parameters: int, gradients: int | None, states: int
) -> None:
    sizes = at_the_peak(file)
    assert sizes[model.PARAMETER] == 4 * parameters
    assert sizes[model.OPTIMIZER_STATE] == 4 * parameters * states
    if gradients is not None:  # else the peak lies within backward
        assert sizes[model.GRADIENT] == 4 * parameters * gradients
    assert sizes[model.UNKNOWN] < 0.02 * sum(sizes.values())


@pytest.mark.truth
def test_copies_for_autocast_in_a_real_recording_equal_the_arithmetic() -> None:
    sizes = at_the_peak("linyun_xl_ctx128_forward_bf16.pickle.xz")
    in_linear_layers = transformer(2560, 10240, 32, 10000) - 10000 * 2560 - (2 * 32 + 1) * 2560
    assert sizes[model.AUTOCAST_COPY] <= 2 * in_linear_layers
    assert sizes[model.AUTOCAST_COPY] > 0.98 * 2 * in_linear_layers


def test_between_two_forward_passes_data_is_what_was_made_where_data_was_made() -> None:
    script = Script("snapshot")
    batch, state = at("train.py", 6, "<module>"), at("train.py", 14, "<module>")
    first = script.alloc(MIB, batch)
    for _ in range(3):
        script.alloc(MIB, *FORWARD)
    joined = script.alloc(MIB, state)
    second = script.alloc(MIB, batch)
    script.alloc(MIB, *FORWARD)
    script.alloc(512, *ENGINE)
    assert phases(script) == [(0, "setup"), (1, "forward"), (1, "loss"), (1, "data"), (1, "forward"), (1, "backward")]
    assert first < joined < second


def test_what_a_program_without_gradients_makes_between_its_modules_is_of_the_evaluation() -> None:
    script = Script("snapshot")
    state = at("infer.py", 14, "<module>")
    script.alloc(MIB, at("infer.py", 3, "<module>"))
    kept = script.alloc(2 * MIB, *FORWARD)
    for _ in range(20):
        joined = script.alloc(2 * MIB, state)
        script.free(kept, stack=(TRAIN,))
        kept = script.alloc(2 * MIB, *FORWARD)
        script.free(joined, stack=(TRAIN,))
    assert phases(script) == [(0, "setup"), (1, "evaluation")]
    assert Attributed(script).owner(joined) == model.TEMPORARY


def test_a_block_that_waited_for_a_stream_before_the_recording_is_nobodys() -> None:
    block = Block(BASE_ADDRESS, 2 * MIB, MIB, "active_awaiting_free")
    held = (Segment(BASE_ADDRESS, 2 * MIB, 0, False, False, 0, (block,)),)
    found = Attributed(Script("snapshot"), held)
    assert [OWNERS[owner] for owner in found.all.owner] == [model.UNKNOWN]

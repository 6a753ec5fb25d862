"""Each rule that finds an owner."""

from __future__ import annotations

import os

import pytest

from dryfit.analyse.stack_facts import COMMUNICATES, IN_OPTIMIZER, facts_of
from dryfit.recording import model
from dryfit.recording.stacks import Stacks

from .attributed import Attributed
from .build import MIB, Script, at, module

TRAIN = at("/home/me/train.py", 9)
ENGINE = ()
"""The stack of autograd's own threads: none."""


def optimizer_frames(name: str = "_multi_tensor_adamw") -> tuple:
    return at("/x/site-packages/torch/optim/adamw.py", 50, name), TRAIN


def a_step(script: Script, step: int, kept: int = 4 * MIB) -> tuple[int, int]:
    """A forward pass that saves one activation, and the backward pass that frees it: the activation, the scrap."""
    script.phase(model.FORWARD, step)
    saved = script.alloc(kept, module("fc"), module(""), TRAIN)
    script.phase(model.BACKWARD)
    scrap = script.alloc(kept // 2, *ENGINE)
    script.free(saved, scrap)
    return saved, scrap


@pytest.mark.parametrize(
    "owner", [model.PARAMETER, model.GRADIENT, model.OPTIMIZER_STATE, model.BUFFER, model.COMMUNICATION]
)
def test_a_label_says_the_owner(owner: str) -> None:
    script = Script()
    labelled = script.alloc(MIB, TRAIN, owner=owner, name="fc.weight", dtype="float32", shape=(512, 512))
    found = Attributed(script)
    assert found.owner(labelled) == owner
    assert found.tensor(labelled).name == "fc.weight"
    assert found.tensor(labelled).shape == (512, 512)


def test_of_several_labels_the_first_owner_in_the_order_of_reports_counts() -> None:
    script = Script()
    both = script.alloc(MIB, TRAIN, owner=model.INPUT, name="0")
    script.label(both, model.PARAMETER, "embedding.weight")
    assert Attributed(script).owner(both) == model.PARAMETER


def test_a_batch_is_an_input() -> None:
    script = Script()
    script.phase(model.SETUP, 0)
    batch = script.alloc(MIB, TRAIN, owner=model.INPUT, name="0")
    a_step(script, 1)
    assert Attributed(script).owner(batch) == model.INPUT


def test_what_one_model_gives_another_is_no_input() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    logits = script.alloc(
        MIB, module("head"), module(""), TRAIN, owner=model.INPUT, name="0", dtype="float32", shape=(512, 512)
    )
    script.phase(model.BACKWARD)
    script.free(logits)
    found = Attributed(script)
    assert found.owner(logits) == model.ACTIVATION
    assert (found.tensor(logits).name, found.tensor(logits).shape) == ("", (512, 512))


def test_an_unlabelled_batch_such_as_targets_is_an_input_if_the_forward_pass_finds_it() -> None:
    script = Script()
    script.phase(model.DATA, 1)
    targets, scratch = script.alloc(MIB, TRAIN), script.alloc(MIB, TRAIN)
    script.free(scratch)
    a_step(script, 1)
    script.phase(model.DATA, 2)
    script.free(targets)
    a_step(script, 2)
    found = Attributed(script)
    assert found.owner(targets) == model.INPUT
    assert found.owner(scratch) == model.TEMPORARY


def test_what_a_library_was_told_to_work_in_is_a_workspace() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    cublas = script.alloc(8_519_680, module("fc"), module(""), TRAIN)
    script.workspaces.append((script.address_of(cublas), 8_519_680))
    a_step(script, 1)
    assert Attributed(script).owner(cublas) == model.WORKSPACE


def test_a_part_of_a_workspace_makes_the_whole_one_if_it_is_never_freed() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    cublas = script.alloc(8_519_680, module("fc"), module(""), TRAIN)
    passing = script.alloc(8_519_680, module("fc"), module(""), TRAIN)
    for block in (cublas, passing):
        script.workspaces.append((script.address_of(block), MIB))
    script.free(passing)
    found = Attributed(script)
    assert found.owner(cublas) == model.WORKSPACE
    assert found.owner(passing) == model.TEMPORARY


def test_buckets_and_gathered_weights_are_communication_buffers() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    ddp = script.alloc(MIB, at("/x/torch/nn/parallel/distributed.py", 5, "_ddp_init_helper"), TRAIN)
    fsdp = script.alloc(MIB, at("/x/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 5, "foreach_all_gather"))
    own = script.alloc(MIB, module("fc"), at("/x/torch/nn/parallel/distributed.py", 9, "forward"), module(""), TRAIN)
    script.free(own)
    found = Attributed(script)
    assert found.owner(ddp) == found.owner(fsdp) == model.COMMUNICATION
    assert found.owner(own) == model.TEMPORARY  # a module called through DDP allocates for itself


def test_an_optimizer_makes_states_and_temporaries() -> None:
    script = Script()
    script.phase(model.OPTIMIZER_STEP, 1)
    state, scrap = script.alloc(MIB, *optimizer_frames()), script.alloc(MIB, *optimizer_frames())
    script.free(scrap)
    script.phase(model.AFTER_STEP)
    script.alloc(MIB, TRAIN)
    found = Attributed(script)
    assert found.owner(state) == model.OPTIMIZER_STATE
    assert found.owner(scrap) == model.TEMPORARY


def test_an_optimizer_that_runs_out_of_memory_leaves_states_only_where_it_makes_them() -> None:
    script = Script()
    script.phase(model.OPTIMIZER_STEP, 1)
    state = script.alloc(MIB, at("/x/torch/optim/adamw.py", 20, "_init_group"), *optimizer_frames())
    scrap = script.alloc(MIB, *optimizer_frames())
    script.out_of_memory(MIB, *optimizer_frames())
    script.free(state, scrap)
    found = Attributed(script)
    assert found.owner(state) == model.OPTIMIZER_STATE
    assert found.owner(scrap) == model.TEMPORARY


def test_forward_makes_saved_activations_and_temporaries() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    saved, scrap = script.alloc(MIB, module(""), TRAIN), script.alloc(MIB, module(""), TRAIN)
    script.free(scrap)
    script.phase(model.LOSS)
    held = script.alloc(MIB, TRAIN)
    script.phase(model.BACKWARD)
    script.free(saved)
    script.phase(model.AFTER_BACKWARD)
    script.free(held)
    found = Attributed(script)
    assert found.owner(saved) == model.ACTIVATION
    assert found.owner(scrap) == model.TEMPORARY
    assert found.owner(held) == model.ACTIVATION


def test_what_zero_grad_frees_between_model_and_backward_does_not_end_the_forward_pass() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    saved, output = script.alloc(MIB, module(""), TRAIN), script.alloc(MIB, module(""), TRAIN)
    script.phase(model.ZERO_GRAD)
    scrap = script.alloc(MIB, TRAIN)
    script.free(scrap)
    script.phase(model.FORWARD)
    script.free(output)
    script.phase(model.BACKWARD)
    script.free(saved)
    found = Attributed(script)
    assert found.owner(saved) == model.ACTIVATION
    assert found.owner(output) == model.TEMPORARY


def test_out_of_memory_in_forward_leaves_what_was_there_as_saved_activations() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    saved, scrap = script.alloc(MIB, module("a"), TRAIN), script.alloc(MIB, module("a"), TRAIN)
    script.free(scrap)
    script.out_of_memory(64 * MIB, module("b"), TRAIN)
    script.free(saved)
    again, _ = a_step(script, 1)
    found = Attributed(script)
    assert found.owner(saved) == model.ACTIVATION
    assert found.owner(scrap) == model.TEMPORARY
    assert found.owner(again) == model.ACTIVATION


def test_what_the_end_of_the_recording_kept_is_what_its_like_was_before() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    output = script.alloc(MIB, module("a"), module(""), TRAIN)
    script.free(output)
    a_step(script, 1)
    script.phase(model.FORWARD, 2)
    cut_off = script.alloc(MIB, module("a"), module(""), TRAIN)
    unlike = script.alloc(2 * MIB, module("a"), module(""), TRAIN)
    found = Attributed(script)
    assert found.owner(cut_off) == model.TEMPORARY
    assert found.owner(unlike) == model.ACTIVATION


def test_backward_makes_temporaries_and_labelled_gradients() -> None:
    script = Script()
    _, scrap = a_step(script, 1)
    gradient = script.alloc(MIB, *ENGINE, owner=model.GRADIENT, name="fc.weight")
    script.phase(model.AFTER_BACKWARD)
    script.alloc(512, TRAIN)
    found = Attributed(script)
    assert found.owner(scrap) == model.TEMPORARY
    assert found.owner(gradient) == model.GRADIENT


def test_optimizers_that_step_inside_backward_do_not_end_it() -> None:
    script = Script()
    script.phase(model.BACKWARD, 1)
    scrap = script.alloc(MIB, *ENGINE)
    for _ in range(2):
        script.phase(model.OPTIMIZER_STEP)
        inner = script.alloc(MIB, *optimizer_frames())
        script.free(inner)
        script.phase(model.ZERO_GRAD)
        script.alloc(512, TRAIN)
        script.phase(model.BACKWARD)
        script.alloc(512, *ENGINE)
    script.free(scrap)
    found = Attributed(script)
    assert found.owner(scrap) == model.TEMPORARY
    assert found.owner(inner) == model.TEMPORARY


def test_recomputation_makes_saved_activations_that_outlive_it() -> None:
    script = Script()
    recomputing = (module("blocks.0"), at("/x/torch/utils/checkpoint.py", 7, "recompute_fn"))
    script.phase(model.BACKWARD, 1)
    recomputed, scrap = script.alloc(MIB, *recomputing), script.alloc(MIB, *recomputing)
    script.free(scrap)
    gradient = script.alloc(MIB, *ENGINE)
    script.free(recomputed, gradient)
    found = Attributed(script)
    assert found.owner(recomputed) == model.ACTIVATION
    assert found.owner(scrap) == found.owner(gradient) == model.TEMPORARY
    assert found.module(recomputed) == "blocks.0"


def test_what_a_backward_pass_leaves_for_the_next_is_a_saved_activation() -> None:
    script = Script()
    parameter = script.alloc(MIB, TRAIN, owner=model.PARAMETER, name="fc.weight")
    script.phase(model.BACKWARD, 1)
    kept = script.alloc(2 * MIB, *ENGINE)  # autograd.grad(..., create_graph=True)
    script.phase(model.LOSS)
    script.alloc(512, TRAIN)
    script.phase(model.BACKWARD)
    script.free(kept)
    found = Attributed(script)
    assert found.owner(kept) == model.ACTIVATION
    assert found.owner(parameter) == model.PARAMETER


def test_gradients_of_a_backward_pass_that_ran_out_of_memory_are_found_by_size_once_for_each_parameter() -> None:
    script = Script()
    for name in ("a.weight", "b.weight"):
        script.alloc(3 * MIB, TRAIN, owner=model.PARAMETER, name=name)
    script.phase(model.BACKWARD, 1)
    first, second = script.alloc(3 * MIB, *ENGINE), script.alloc(3 * MIB, *ENGINE)
    passing, other = script.alloc(3 * MIB, *ENGINE), script.alloc(5 * MIB, *ENGINE)
    script.out_of_memory(64 * MIB)
    script.free(passing, other, first, second)
    found = Attributed(script)
    assert [found.owner(event) for event in (first, second)] == [model.GRADIENT] * 2
    assert [found.owner(event) for event in (passing, other)] == [model.TEMPORARY] * 2


def test_a_parameter_whose_gradient_is_there_already_takes_no_other() -> None:
    script = Script()
    script.alloc(3 * MIB, TRAIN, owner=model.PARAMETER, name="a.weight")
    script.phase(model.BACKWARD, 1)
    script.alloc(3 * MIB, *ENGINE, owner=model.GRADIENT, name="a.weight")
    script.phase(model.FORWARD)
    script.alloc(512, module(""), TRAIN)
    script.phase(model.BACKWARD)
    to_be_added = script.alloc(3 * MIB, *ENGINE)
    script.out_of_memory(64 * MIB)
    script.free(to_be_added)
    assert Attributed(script).owner(to_be_added) == model.TEMPORARY


def test_evaluation_makes_temporaries_and_outputs_that_the_program_holds() -> None:
    script = Script()
    script.phase(model.EVALUATION, 1)
    scrap, output = script.alloc(MIB, module("a"), TRAIN), script.alloc(MIB, module("head"), TRAIN)
    script.free(scrap)
    a_step(script, 2)
    found = Attributed(script)
    assert found.owner(scrap) == model.TEMPORARY
    assert found.owner(output) == model.ACTIVATION


def test_a_loss_that_follows_a_model_without_gradients_saves_for_backward() -> None:
    script = Script()
    script.phase(model.EVALUATION, 1)
    from_reference = script.alloc(MIB, module("reference"), TRAIN)
    script.phase(model.LOSS)
    saved = script.alloc(MIB, at("/home/me/dpo.py", 3, "loss"), TRAIN)
    script.free(from_reference)
    script.phase(model.BACKWARD)
    script.free(saved)
    found = Attributed(script)
    assert found.owner(from_reference) == model.TEMPORARY
    assert found.owner(saved) == model.ACTIVATION


def test_setup_frees_temporaries_and_makes_parameters_that_no_forward_pass_has_shown() -> None:
    script = Script()
    script.phase(model.SETUP, 0)
    scrap = script.alloc(MIB, TRAIN)
    copied = script.alloc(MIB, at("/x/torch/_tensor.py", 90, "__deepcopy__"), TRAIN)
    moved = script.alloc(MIB, at("/x/torch/nn/modules/module.py", 1000, "_apply"), TRAIN)
    nobody_knows = script.alloc(MIB, TRAIN)
    script.free(scrap)
    a_step(script, 1)
    found = Attributed(script)
    assert found.owner(scrap) == model.TEMPORARY
    assert found.owner(copied) == found.owner(moved) == model.PARAMETER
    assert found.owner(nobody_knows) == model.UNKNOWN


def test_a_mask_that_a_module_makes_once_and_keeps_is_a_buffer_and_a_leak_is_none() -> None:
    script = Script()
    leaks = []
    for step in range(1, 5):
        script.phase(model.FORWARD, step)
        if step == 1:
            mask = script.alloc(3 * MIB, module("attention"), module(""), at("/home/me/model.py", 4, "mask"))
        leaks.append(script.alloc(MIB, module("fc"), module(""), TRAIN))
        a_step(script, step)
    found = Attributed(script)
    assert found.owner(mask) == model.BUFFER
    assert {found.owner(event) for event in leaks} == {model.ACTIVATION}


def test_what_takes_a_parameters_place_in_an_optimizer_is_the_parameter() -> None:
    script = Script()
    parameter = script.alloc(MIB, TRAIN, owner=model.PARAMETER, name="fc.weight")
    for step in (1, 2):
        script.phase(model.OPTIMIZER_STEP, step)
        state = script.alloc(MIB, at("/home/me/adam.py", 5, "step"), *optimizer_frames("wrapper"))
        successor = script.alloc(MIB, at("/home/me/adam.py", 9, "step"), *optimizer_frames("wrapper"))
        script.free(parameter)
        parameter = successor
        script.phase(model.AFTER_STEP)
        script.alloc(512, TRAIN)
    found = Attributed(script)
    assert found.owner(successor) == model.PARAMETER
    assert found.owner(state) == model.OPTIMIZER_STATE


def test_an_allocation_that_no_rule_knows_is_unknown() -> None:
    script = Script()
    script.phase(model.AFTER_STEP, 1)
    kept = script.alloc(MIB, TRAIN)
    script.phase(model.DATA, 2)
    script.alloc(512, TRAIN)
    assert Attributed(script).owner(kept) == model.UNKNOWN


def test_what_deepspeed_gathers_communicates_but_not_its_layers_norms_or_optimizer() -> None:
    zero, step = "/venv/lib/python3.11/site-packages/deepspeed/runtime/zero", ("stage_1_and_2.py", "step")
    stacks = Stacks()
    calls = {
        "gathered": [("partition_parameters.py", "all_gather_coalesced"), ("parameter_offload.py", "pre_forward")],
        "layer": [("linear.py", "forward")],
        "norm": [("stage_1_and_2.py", "get_grad_norm_direct"), ("stage_1_and_2.py", "scaled_global_norm"), step],
        "check": [("../utils.py", "has_inf_or_nan"), ("stage3.py", "_has_inf_or_nan"), step],
        "optimizer": [("../../../torch/optim/adamw.py", "step"), ("stage_1_and_2.py", "_optimizer_step"), step],
    }
    stack_of = {
        name: stacks.add([at(os.path.normpath(f"{zero}/{file}"), 1, function) for file, function in frames])
        for name, frames in calls.items()
    }
    facts = facts_of(stacks)
    assert [name for name, stack in stack_of.items() if facts[stack] & COMMUNICATES] == ["gathered"]
    assert facts[stack_of["optimizer"]] & IN_OPTIMIZER

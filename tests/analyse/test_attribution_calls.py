"""Programs that call their models more than once before a backward pass, or without one."""

from __future__ import annotations

from dryfit.analyse import analyse
from dryfit.analyse.footprint import Footprint
from dryfit.recording import model

from .attributed import Attributed
from .build import MIB, Script, at, module

TRAIN = at("/home/me/train.py", 9)
LOOP = at("/home/me/train.py", 12)
ENGINE = (at("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),)


def footprint(script: Script) -> Footprint:
    return analyse(script.recording()).footprint


def call(script: Script, step: int | None = None) -> tuple[int, int]:
    """A call of a model with gradients: what it saves for backward, and its output."""
    script.phase(model.FORWARD, step)
    scrap = script.alloc(MIB, module("a"), module(""), TRAIN)
    saved = script.alloc(MIB, module("a"), module(""), TRAIN)
    script.free(scrap, stack=(module("a"), module(""), TRAIN))
    output = script.alloc(2 * MIB, module("head"), module(""), TRAIN)
    script.phase(model.LOSS)
    return saved, output


def test_a_validation_with_gradients_before_training_saves_activations_that_nothing_needs() -> None:
    script = Script()
    earlier = call(script, 1)
    later = call(script)
    script.free(*earlier, stack=(TRAIN,))  # `out = model(x)` lets go of the output before
    script.free(*later, stack=(TRAIN,))
    saved, output = call(script)
    script.free(output, stack=(TRAIN,))
    script.phase(model.BACKWARD)
    script.free(saved, stack=ENGINE)
    found = Attributed(script)
    assert [found.owner(event) for event in (*earlier, *later)] == [model.ACTIVATION] * 4
    assert (found.owner(saved), found.owner(output)) == (model.ACTIVATION, model.TEMPORARY)


def test_what_one_call_made_and_a_later_one_outlived_is_saved() -> None:
    script = Script()
    saved, output = call(script, 1)
    later, _ = call(script)
    script.free(output, stack=(TRAIN,))
    script.phase(model.BACKWARD)
    script.free(saved, later, stack=ENGINE)
    assert Attributed(script).owner(output) == model.ACTIVATION


def test_forward_passes_without_any_backward() -> None:
    script = Script()
    kept = [event for _ in range(3) for event in call(script, 1)]
    script.free(*kept, stack=(TRAIN,))
    found = Attributed(script)
    assert {found.owner(event) for event in kept} == {model.ACTIVATION}
    assert found.owner(1) == model.TEMPORARY  # the first event is a segment


def test_forward_passes_of_a_snapshot_without_any_backward() -> None:
    script = Script("snapshot")
    inside = (at("model.py", 5, "forward"), TRAIN)
    script.alloc(MIB, at("model.py", 2, "__init__"), TRAIN)
    scrap, saved = script.alloc(MIB, *inside), [script.alloc(MIB, *inside) for _ in range(4)]
    script.free(scrap, stack=inside)
    script.free(*saved, stack=(TRAIN,))
    script.alloc(MIB, *inside)
    found = Attributed(script)
    assert {found.owner(event) for event in saved} == {model.ACTIVATION}
    assert found.owner(scrap) == model.TEMPORARY


def test_inputs_made_between_two_calls_are_inputs() -> None:
    script = Script()
    script.phase(model.SETUP, 0)
    script.alloc(MIB, TRAIN, owner=model.INPUT, name="0")
    target = script.alloc(512, LOOP)
    _, output = call(script, 1)
    x, next_target = script.alloc(MIB, TRAIN, owner=model.INPUT, name="0"), script.alloc(512, LOOP)
    mask = script.alloc(MIB, at("/home/me/train.py", 20))
    softened = script.alloc(2 * MIB, TRAIN, owner=model.INPUT, name="1")  # what a loss was called with
    script.free(softened)
    call(script)
    script.free(output, target, x, mask, stack=(TRAIN,))
    script.phase(model.BACKWARD)
    script.free(next_target)
    found = Attributed(script)
    assert [found.owner(event) for event in (target, x, next_target)] == [model.INPUT] * 3
    assert found.owner(mask) == model.ACTIVATION
    assert found.owner(softened) == model.TEMPORARY


def test_what_is_made_between_an_encoder_and_its_decoder_is_no_loss() -> None:
    script = Script()
    call(script, 1)
    sampled = script.alloc(MIB, TRAIN)
    _, logits = call(script)
    loss = script.alloc(2 * MIB, TRAIN)
    script.phase(model.BACKWARD)
    script.alloc(512)
    found = Attributed(script)
    assert [found.is_logits_or_loss(event) for event in (sampled, logits, loss)] == [False, True, True]


def test_a_weights_gradient_is_no_part_of_the_loss_whatever_is_freed_after_it() -> None:
    script = Script()
    saved, logits = call(script, 1)
    loss = script.alloc(2 * MIB, TRAIN)
    script.phase(model.BACKWARD)
    weight, of_logits = script.alloc(24 * MIB, *ENGINE), script.alloc(4 * MIB, *ENGINE)
    script.free(loss, logits, weight, of_logits, saved, stack=ENGINE)
    found = Attributed(script)
    assert not found.is_logits_or_loss(weight)
    assert found.is_logits_or_loss(of_logits)


def test_compiled_code_has_no_modules_to_tell_activations_from_logits() -> None:
    compiled = (at("/tmp/generated.py", 5, "call"), at("/x/torch/_inductor/output_code.py", 8, "__call__"), TRAIN)
    script = Script()
    script.phase(model.FORWARD, 1)
    activation = script.alloc(8 * MIB + 65536, *compiled)
    logits = script.alloc(4 * MIB, *compiled)
    script.phase(model.LOSS)
    script.alloc(4 * MIB, TRAIN)
    script.phase(model.BACKWARD)
    script.alloc(512)
    found = Attributed(script)
    assert (found.is_logits_or_loss(activation), found.is_logits_or_loss(logits)) == (False, True)


def test_gradients_that_autograd_grad_returned_are_known_by_their_size() -> None:
    script = Script()
    script.alloc(3 * MIB, TRAIN, owner=model.PARAMETER, name="weight")
    call(script, 1)
    script.phase(model.BACKWARD)
    gradient, of_samples = script.alloc(3 * MIB, *ENGINE), script.alloc(96 * MIB, *ENGINE)
    script.phase(model.AFTER_BACKWARD)
    script.free(gradient, of_samples)
    found = Attributed(script)
    assert (found.owner(gradient), found.owner(of_samples)) == (model.GRADIENT, model.TEMPORARY)
    assert footprint(script).peak.grows_with_batch_bytes >= 96 * MIB


def test_without_labels_a_gradient_is_as_large_as_something_that_no_pass_made() -> None:
    script = Script("snapshot")
    forward = (at("model.py", 5, "forward"), TRAIN)
    script.alloc(3 * MIB, at("model.py", 2, "__init__"), TRAIN)
    script.alloc(5 * MIB, *forward)
    gradient, result, kept = (script.alloc(size * MIB, *ENGINE) for size in (3, 5, 7))
    script.free(result, stack=(TRAIN,))
    script.alloc(512, *forward)
    found = Attributed(script)
    assert found.owner(gradient) == model.GRADIENT
    assert found.owner(result) == model.TEMPORARY
    assert found.owner(kept) == model.UNKNOWN


def test_a_program_without_modules_saves_activations_too() -> None:
    script = Script()
    script.phase(model.SETUP, 0)
    x, hidden = script.alloc(MIB, TRAIN), script.alloc(MIB, TRAIN)
    script.phase(model.BACKWARD, 1)
    script.free(hidden, stack=ENGINE)
    script.phase(model.AFTER_BACKWARD)
    script.free(x, stack=(TRAIN,))
    found = Attributed(script)
    assert (found.owner(hidden), found.owner(x)) == (model.ACTIVATION, model.INPUT)


def test_a_label_of_a_part_says_nothing_of_the_whole_shape() -> None:
    script = Script()
    flat = script.alloc(
        4 * MIB, TRAIN, owner=model.PARAMETER, name="rnn.weight_ih_l0", dtype="float32", shape=(256, 1024)
    )
    found = Attributed(script).tensor(flat)
    assert found is not None
    assert (found.name, found.dtype, found.shape) == ("rnn.weight_ih_l0", "float32", None)


def test_what_is_kept_of_every_call_is_said() -> None:
    script = Script()
    script.phase(model.EVALUATION, 1)
    for _ in range(4):
        logits = script.alloc(MIB, module("head"), TRAIN)
        script.alloc(MIB, TRAIN)
        script.free(logits, stack=(TRAIN,))
    assert footprint(script).notes[0] == (
        "4.00 MiB of the peak were made by 4 calls of the model and kept from one to the next, most of it from "
        "/home/me/train.py:9: outputs in a list, or losses summed up with their graphs, grow with the number of calls."
    )


def test_what_one_call_makes_many_times_is_not_kept_from_call_to_call() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    for _ in range(4):
        script.alloc(MIB, module("a"), module(""), TRAIN)
    script.phase(model.BACKWARD)
    assert footprint(script).notes == ()


def test_what_is_unknown_is_said_with_its_line() -> None:
    script = Script()
    script.phase(model.SETUP, 0)
    script.alloc(8 * MIB, at("/home/me/data.py", 3, "load"))
    script.phase(model.FORWARD, 1)
    script.alloc(MIB, module(""), TRAIN)
    assert footprint(script).notes == (
        "89% of the peak (8.00 MiB) could not be attributed to an owner. Of this, 8.00 MiB at /home/me/data.py:3 was "
        "made, and kept.",
    )


def test_temporaries_of_foreach_are_said() -> None:
    step = (at("/x/torch/optim/adamw.py", 300, "_multi_tensor_adamw"), at("/x/torch/optim/adamw.py", 9, "step"), TRAIN)
    script = Script()
    script.phase(model.SETUP, 0)
    weight = script.alloc(3 * MIB, TRAIN, owner=model.PARAMETER, name="weight")
    script.phase(model.OPTIMIZER_STEP, 1)
    temporary = script.alloc(3 * MIB, *step)
    script.free(temporary, stack=step)
    script.phase(model.AFTER_STEP)
    script.free(weight)
    assert footprint(script).notes == (
        "3.00 MiB of the peak are temporaries of the optimizer's foreach implementation, which works on all parameters "
        "at once; fused=True or foreach=False, where the optimizer has them, take less.",
    )

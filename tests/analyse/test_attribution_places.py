"""Modules, lines, tensors, autocast's copies, logits and loss."""

from __future__ import annotations

from dryfit.recording import model
from dryfit.recording.model import ModuleOutput

from .attributed import Attributed
from .build import MIB, Script, at, module

SITE = "/venv/lib/python3.11/site-packages"
LINEAR = at(f"{SITE}/torch/nn/modules/linear.py", 125, "forward")
MODEL = at("/home/me/model.py", 7, "forward")
TRAIN = at("/home/me/train.py", 9)


def a_linear(script: Script, path: str, size: int = MIB) -> int:
    return script.alloc(size, LINEAR, module(path), MODEL, module(""), TRAIN)


def test_the_line_is_the_innermost_one_of_the_program() -> None:
    script = Script()
    assert Attributed(script).all.lines == (("", 0, ""),)
    own = a_linear(script, "fc")
    librarys = script.alloc(MIB, LINEAR, at(f"{SITE}/trl/kernels.py", 5, "run"), at(f"{SITE}/trl/trainer.py", 8, "go"))
    nobodys = script.alloc(MIB, LINEAR)
    found = Attributed(script)
    assert found.line(own) == ("/home/me/model.py", 7, "forward")
    assert found.line(librarys) == (f"{SITE}/trl/kernels.py", 5, "run")
    assert found.line(nobodys) == ("", 0, "")


def test_a_line_is_kept_once() -> None:
    script = Script()
    for number in range(5):
        script.alloc(MIB, at(f"{SITE}/torch/nn/functional.py", number), MODEL)
    assert Attributed(script).all.lines == (("", 0, ""), MODEL_LINE)


MODEL_LINE = (MODEL.file, MODEL.line, MODEL.name)


def test_lines_of_snapshots_whose_files_have_lost_their_folders() -> None:
    script = Script("snapshot")
    cell = at("/tmp/ipykernel_114/3105878423.py", 21, "<module>")
    shortened = (at("torch/nn/functional.py", 5), at("site-packages/peft/x.py", 5), at("cs336_basics/model.py", 39))
    events = [
        script.alloc(MIB, at("CUDACachingAllocator.cpp", 0, "c10::malloc"), *shortened),
        script.alloc(MIB, at("lib/python3.12/contextlib.py", 81, "inner"), at("Objects/call.c", 5), cell),
        script.alloc(MIB, at("torch/_tensor.py", 5), at("transformers/models/llama/modeling_llama.py", 4, "forward")),
        script.alloc(MIB, at("??", 0, "clone")),
    ]
    found = Attributed(script)
    assert [found.line(event)[:2] for event in events] == [
        ("cs336_basics/model.py", 39),
        ("/tmp/ipykernel_114/3105878423.py", 21),
        ("transformers/models/llama/modeling_llama.py", 4),
        ("", 0),
    ]


def test_the_module_is_the_innermost_one_called() -> None:
    script = Script()
    inner, outermost, outside = a_linear(script, "blocks.0.fc"), script.alloc(MIB, MODEL, module("")), script.alloc(MIB)
    found = Attributed(script)
    assert [found.module(event) for event in (inner, outermost, outside)] == ["blocks.0.fc", "", ""]


def test_what_is_labelled_belongs_to_the_module_of_its_name() -> None:
    script = Script()
    labelled = {
        model.PARAMETER: "blocks.0.fc.weight",
        model.BUFFER: "norm.running_mean",
        model.GRADIENT: "blocks.0.fc.weight",
        model.OPTIMIZER_STATE: "exp_avg of blocks.0.fc.weight",
        model.INPUT: "0.input_ids",
    }
    events = {
        owner: script.alloc(MIB, module("elsewhere"), TRAIN, owner=owner, name=name) for owner, name in labelled.items()
    }
    found = Attributed(script)
    assert {owner: found.module(event) for owner, event in events.items() if owner != model.INPUT} == {
        model.PARAMETER: "blocks.0.fc",
        model.BUFFER: "norm",
        model.GRADIENT: "blocks.0.fc",
        model.OPTIMIZER_STATE: "blocks.0.fc",
    }


def test_a_gradient_has_the_line_where_its_parameter_was_made() -> None:
    script = Script()
    script.alloc(MIB, at("/home/me/build.py", 3), owner=model.PARAMETER, name="fc.weight")
    script.phase(model.BACKWARD, 1)
    gradient = script.alloc(MIB, owner=model.GRADIENT, name="fc.weight")
    assert Attributed(script).line(gradient) == ("/home/me/build.py", 3, "main")


def test_backward_belongs_to_the_line_whose_saved_activation_is_freed_next() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    first, second = a_linear(script, "first"), a_linear(script, "second")
    script.phase(model.BACKWARD)
    of_second = script.alloc(MIB)
    script.free(second)
    of_first = script.alloc(MIB)
    script.free(of_second, first)
    last = script.alloc(MIB)
    script.free(of_first, last)
    found = Attributed(script)
    assert [found.module(event) for event in (of_second, of_first, last)] == ["second", "first", ""]
    assert found.line(of_first) == MODEL_LINE
    assert found.line(last) == ("", 0, "")


def test_a_line_of_the_program_that_runs_in_backward_stays() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    saved = a_linear(script, "fc")
    script.phase(model.BACKWARD)
    own = script.alloc(
        MIB, at("/home/me/kernel.py", 8, "backward"), at(f"{SITE}/torch/autograd/function.py", 2, "apply")
    )
    script.free(saved, own)
    found = Attributed(script)
    assert found.line(own) == ("/home/me/kernel.py", 8, "backward")
    assert found.module(own) == "fc"


def test_an_allocation_in_the_size_of_its_modules_output_has_its_type_and_shape() -> None:
    script = Script()
    script.modules.append(ModuleOutput("fc", "Linear", "bfloat16", (4, 128, 1024)))
    script.phase(model.FORWARD, 1)
    output, other = a_linear(script, "fc", 4 * 128 * 1024 * 2), a_linear(script, "fc", 4096)
    found = Attributed(script)
    assert (found.tensor(output).dtype, found.tensor(output).shape) == ("bfloat16", (4, 128, 1024))
    assert found.tensor(other) is None


def a_linear_under_autocast(script: Script, path: str, weight_bytes: int) -> tuple[int, int, int]:
    """As torch does it: the weight is copied first, then the input, then the output is made."""
    copy = a_linear(script, path, weight_bytes // 2)
    return copy, a_linear(script, path, weight_bytes // 2), a_linear(script, path, weight_bytes // 2)


def test_the_first_allocation_of_half_a_weights_size_under_autocast_is_its_copy() -> None:
    script = Script()
    script.alloc(8 * MIB, TRAIN, owner=model.PARAMETER, name="fc.weight", dtype="float32", shape=(1024, 2048))
    script.phase(model.FORWARD, 1, autocast=True)
    copy, cast_input, output = a_linear_under_autocast(script, "fc", 8 * MIB)
    elsewhere = a_linear(script, "other", 4 * MIB)
    script.phase(model.BACKWARD)
    script.free(copy, cast_input, output, elsewhere)
    found = Attributed(script)
    assert found.owner(copy) == model.AUTOCAST_COPY
    assert found.tensor(copy).name == "fc.weight"
    assert {found.owner(event) for event in (cast_input, output, elsewhere)} == {model.ACTIVATION}


def test_a_weight_is_copied_once_in_each_pass() -> None:
    script = Script()
    script.alloc(8 * MIB, TRAIN, owner=model.PARAMETER, name="fc.weight", dtype="float32")
    owners = []
    for step in (1, 2):
        script.phase(model.FORWARD, step, autocast=True)
        first = a_linear_under_autocast(script, "fc", 8 * MIB)
        again = a_linear(script, "fc", 4 * MIB)
        script.phase(model.BACKWARD)
        script.free(*first, again)
        owners.append((first[0], again))
    found = Attributed(script)
    assert [(found.owner(copy), found.owner(again)) for copy, again in owners] == [
        (model.AUTOCAST_COPY, model.ACTIVATION)
    ] * 2


def test_without_autocast_nothing_is_a_copy_and_neither_is_what_is_freed_at_once() -> None:
    script = Script()
    script.alloc(8 * MIB, TRAIN, owner=model.PARAMETER, name="fc.weight", dtype="float32")
    script.phase(model.FORWARD, 1)
    plain = a_linear(script, "fc", 4 * MIB)
    script.phase(model.FORWARD, 1, autocast=True)
    passing = a_linear(script, "fc", 4 * MIB)
    script.free(passing)
    other = a_linear(script, "fc", MIB)
    script.phase(model.BACKWARD)
    script.free(plain, other)
    found = Attributed(script)
    assert found.owner(plain) == model.ACTIVATION
    assert found.owner(passing) == model.TEMPORARY


def test_the_copy_of_a_weight_that_the_head_shares_with_the_embedding() -> None:
    script = Script()
    script.alloc(8 * MIB, TRAIN, owner=model.PARAMETER, name="tokens.weight", dtype="float32")
    script.modules += [ModuleOutput("tokens", "Embedding"), ModuleOutput("head", "Linear")]
    script.phase(model.FORWARD, 1, autocast=True)
    a_linear(script, "tokens", MIB)
    copy = a_linear(script, "head", 4 * MIB)
    a_linear(script, "head", 16 * MIB)
    script.phase(model.BACKWARD)
    script.free(copy)
    found = Attributed(script)
    assert found.owner(copy) == model.AUTOCAST_COPY
    assert found.tensor(copy).name == "tokens.weight"


def test_logits_and_loss_and_what_backward_makes_of_them() -> None:
    script = Script()
    loss_frames = (at(f"{SITE}/torch/nn/functional.py", 3400, "cross_entropy"), at("/home/me/model.py", 47), module(""))
    script.phase(model.FORWARD, 1, autocast=True)
    hidden, logits = a_linear(script, "fc", 3 * MIB), a_linear(script, "head", 16 * MIB)
    in_32_bits, log_softmax = script.alloc(32 * MIB, *loss_frames), script.alloc(32 * MIB, *loss_frames)
    script.free(in_32_bits)
    script.phase(model.BACKWARD)
    gradient_of_logits = script.alloc(32 * MIB)
    script.free(log_softmax, logits)
    of_hidden = script.alloc(3 * MIB)
    script.free(gradient_of_logits, hidden, of_hidden)
    found = Attributed(script)
    flagged = (logits, in_32_bits, log_softmax, gradient_of_logits)
    assert [found.is_logits_or_loss(event) for event in flagged] == [True] * 4
    assert [found.is_logits_or_loss(event) for event in (hidden, of_hidden)] == [False] * 2


def test_everything_between_the_model_and_backward_is_loss() -> None:
    script = Script()
    script.phase(model.FORWARD, 1)
    hidden, output = a_linear(script, "fc", 3 * MIB), a_linear(script, "head", MIB)
    script.phase(model.LOSS)
    difference = script.alloc(MIB, TRAIN)
    script.phase(model.BACKWARD)
    script.free(hidden, output, difference)
    found = Attributed(script)
    assert [found.is_logits_or_loss(event) for event in (hidden, output, difference)] == [False, True, True]

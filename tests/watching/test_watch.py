"""`dryfit.watch` on real loops of the host: what it finds, what it leaves as it was, and what it says."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from dryfit.findings import Finding
from dryfit.watching.watch import MemoryFindingWarning, Watch, watch

WIDTH = 64


class Loop:
    """A model, its optimizer, and batches; `step` trains on one and gives the loss and the output."""

    def __init__(self, **options: Any) -> None:
        parts = [part for _ in range(3) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
        self.model = torch.nn.Sequential(*parts)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.found: list[Finding] = []
        self.watch: Watch = watch(self.model, self.optimizer, on_finding=self.found.append, **options)

    def batches(self, count: int) -> Iterator[torch.Tensor]:
        for _ in range(count):
            yield torch.randn(16, WIDTH)

    def step(self, inputs: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.model(inputs)
        loss = functional.mse_loss(output, inputs)
        self.optimizer.zero_grad()
        loss.backward(**options)
        self.optimizer.step()
        return loss, output

    def codes(self) -> list[str]:
        assert not self.watch.failure, self.watch.failure
        return [each.code for each in self.found]


def line_of(function: Callable[..., Any], mark: str) -> int:
    first = function.__code__.co_firstlineno
    lines = Path(__file__).read_text().splitlines()
    return next(number for number in range(first, len(lines) + 1) if lines[number - 1].endswith(f"# {mark}"))


# --- leaks -----------------------------------------------------------------------------------------------------------


def test_a_summed_loss_is_named_with_its_line_and_said_to_cost_the_host() -> None:
    loop = Loop()
    total = 0.0
    with loop.watch:
        for inputs in loop.batches(8):
            loss, _ = loop.step(inputs)
            total = total + loss  # the sum
    assert loop.codes() == ["DF101"]
    [found] = loop.found
    assert found.place is not None
    assert found.place.line == line_of(test_a_summed_loss_is_named_with_its_line_and_said_to_cost_the_host, "the sum")
    assert found.evidence.holder == "total"
    assert found.evidence.memory == "host"
    assert found.claim.startswith("total keeps the graph of every step: ")
    assert "After backward such a graph takes no memory of the card worth speaking of" in found.claim
    assert found.advice.startswith("Keep the number alone: total += loss.item()")
    # Three linear layers and activations, the loss, and the sum: each has a node.
    assert found.evidence.numbers["graph_nodes_per_step"] >= 8


def test_a_list_of_outputs_is_named_though_its_tensors_are_detached() -> None:
    loop = Loop()
    outputs = []
    with loop.watch:
        for inputs in loop.batches(8):
            _, output = loop.step(inputs.repeat(16, 1))
            outputs.append({"output": output.detach()})  # the list
    assert loop.codes() == ["DF102"]
    [found] = loop.found
    assert found.evidence.holder == "outputs"
    assert found.evidence.bytes_per_step == 256 * WIDTH * 4
    assert "Detaching them does not free them." in found.claim


class Recorder:
    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def keep(self, module: Any, inputs: Any, output: torch.Tensor) -> None:
        self.seen.append(output.repeat(16, 1))


def test_a_hook_that_keeps_features_is_told_from_a_list() -> None:
    loop = Loop()
    recorder = Recorder()
    loop.model[2].register_forward_hook(recorder.keep)
    with loop.watch:
        for inputs in loop.batches(8):
            loop.step(inputs)
    assert loop.codes() == ["DF107"]
    assert loop.found[0].evidence.holder == "self.seen"


def test_a_retained_graph_that_is_kept_points_at_backward() -> None:
    loop = Loop()
    losses = []
    with loop.watch:
        for inputs in loop.batches(8):
            output = loop.model(inputs)
            loss = functional.mse_loss(output, inputs)
            loop.optimizer.zero_grad()
            loss.backward(retain_graph=True)  # the pass
            loop.optimizer.step()
            losses.append(loss)  # the losses
    assert loop.codes() == ["DF105"]
    [found] = loop.found
    assert found.place is not None and found.place.text.startswith("loss.backward(retain_graph=True)")
    assert [each.text for each in found.more_places] == ["losses.append(loss)  # the losses"]


def test_an_evaluation_that_sums_losses_with_gradients_on() -> None:
    loop = Loop()
    loop.model.eval()
    total = torch.zeros(())
    with loop.watch:
        for inputs in loop.batches(8):
            total += functional.mse_loss(loop.model(inputs), inputs)
    assert sorted(each.code for each in loop.watch.findings) == ["DF101", "DF201"]
    by_code = {each.code: each for each in loop.watch.findings}
    assert "No backward pass goes through it" in by_code["DF101"].claim
    assert by_code["DF201"].claim.startswith(
        "Sequential was called 8 times in a row in evaluation mode with gradients on"
    )
    assert by_code["DF201"].place is not None and "loop.model(inputs)" in by_code["DF201"].place.text


def test_an_optimizer_made_anew_while_a_list_keeps_the_old_ones() -> None:
    loop = Loop()
    kept = []
    with loop.watch:
        for inputs in loop.batches(4):
            optimizer = torch.optim.Adam(loop.model.parameters())
            kept.append(optimizer)
            optimizer.zero_grad()
            functional.mse_loss(loop.model(inputs), inputs).backward()
            optimizer.step()
    assert loop.codes() == ["DF110"]
    assert loop.watch.step == 4
    [found] = loop.found
    assert found.evidence.holder == "kept"
    assert found.place is not None and "torch.optim.Adam(" in found.place.text


def test_gradients_cleared_between_backward_and_the_step() -> None:
    loop = Loop()
    with loop.watch:
        for inputs in loop.batches(8):
            functional.mse_loss(loop.model(inputs), inputs).backward()
            loop.optimizer.zero_grad()  # too late
            loop.optimizer.step()
    assert loop.codes() == ["DF304"]
    assert loop.found[0].place is not None
    assert loop.found[0].place.line == line_of(test_gradients_cleared_between_backward_and_the_step, "too late")


def test_a_schedule_that_moves_with_each_micro_batch() -> None:
    loop = Loop()
    schedule = torch.optim.lr_scheduler.LinearLR(loop.optimizer, total_iters=100)
    with loop.watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the first move before the first step
        for _ in range(8):
            for inputs in loop.batches(4):
                functional.mse_loss(loop.model(inputs), inputs).backward()
                schedule.step()
            loop.optimizer.step()
            loop.optimizer.zero_grad()
    assert loop.codes() == ["DF303"]
    assert loop.found[0].claim.startswith("LinearLR moves 4 times for each step of its optimizer")


def test_a_model_called_while_an_exception_still_holds_its_frames() -> None:
    loop = Loop()

    def fails(inputs: torch.Tensor) -> None:
        wide = inputs.repeat(512, 1)
        raise ValueError(len(wide))

    with loop.watch:
        for inputs in loop.batches(2):
            try:
                fails(inputs)
            except ValueError:
                loop.step(inputs)
    assert loop.codes() == ["DF109"]
    assert (
        "is called while a ValueError is being handled, and that still has the variables of fails"
        in loop.found[0].claim
    )
    assert loop.found[0].advice.startswith("Leave the except block first")


def test_an_error_that_backward_raises_leaves_the_phase_at_backward() -> None:
    loop = Loop()
    with loop.watch, pytest.raises(RuntimeError, match="second time"):
        loss, _ = loop.step(torch.randn(4, WIDTH))
        try:
            loss.backward()
        finally:
            assert loop.watch.phase == "backward"


# --- what is no leak -------------------------------------------------------------------------------------------------


def sums_numbers(loop: Loop) -> None:
    losses = []
    for inputs in loop.batches(8):
        losses.append(loop.step(inputs)[0].item())


def keeps_the_last_outputs(loop: Loop) -> None:
    last: deque[torch.Tensor] = deque(maxlen=50)
    for inputs in loop.batches(8):
        last.append(loop.step(inputs.repeat(16, 1))[1])


def trims_a_list(loop: Loop) -> None:
    window = []
    for inputs in loop.batches(8):
        window.append(loop.step(inputs.repeat(16, 1))[1].detach())
        if len(window) > 30:
            window.pop(0)


def cuts_the_history_now_and_then(loop: Loop) -> None:
    state = torch.zeros(16, WIDTH)
    for number, inputs in enumerate(loop.batches(8)):
        state = torch.tanh(loop.model(inputs + state))
        if number % 20 == 19:
            state = state.detach()
        functional.mse_loss(loop.model(inputs), inputs).backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()


def has_batches_of_any_length(loop: Loop) -> None:
    for length in (3, 40, 7, 90, 130, 5, 200, 260, 8, 300):
        loop.step(torch.randn(length, WIDTH))


def averages_weights(loop: Loop) -> None:
    average = {name: value.clone() for name, value in loop.model.state_dict().items()}
    for inputs in loop.batches(8):
        loop.step(inputs)
        for name, value in loop.model.state_dict().items():
            average[name] = 0.9 * average[name] + 0.1 * value


def evaluates_without_gradients(loop: Loop) -> None:
    for inputs in loop.batches(4):
        loop.step(inputs)
    loop.model.eval()
    with torch.no_grad():
        total = sum(functional.mse_loss(loop.model(inputs), inputs).item() for inputs in loop.batches(8))
    assert total > 0


def trains_in_evaluation_mode_on_several_calls(loop: Loop) -> None:
    loop.model.eval()
    for _ in range(4):
        losses = [functional.mse_loss(loop.model(inputs), inputs) for inputs in loop.batches(6)]
        torch.stack(losses).sum().backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()


def retains_for_a_second_pass(loop: Loop) -> None:
    for inputs in loop.batches(8):
        output = loop.model(inputs)
        output.mean().backward(retain_graph=True)
        functional.mse_loss(output, inputs).backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()


def takes_gradients_of_gradients(loop: Loop) -> None:
    for inputs in loop.batches(8):
        inputs.requires_grad_()
        output = loop.model(inputs)
        [gradient] = torch.autograd.grad(output.sum(), inputs, create_graph=True)
        (functional.mse_loss(output, inputs) + gradient.pow(2).mean()).backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()


def steps_by_hand(loop: Loop) -> None:
    for inputs in loop.batches(8):
        functional.mse_loss(loop.model(inputs), inputs).backward()
        with torch.no_grad():
            for parameter in loop.model.parameters():
                assert parameter.grad is not None
                parameter -= 0.01 * parameter.grad
                parameter.grad = None


SOUND = [
    sums_numbers,
    keeps_the_last_outputs,
    trims_a_list,
    cuts_the_history_now_and_then,
    has_batches_of_any_length,
    averages_weights,
    evaluates_without_gradients,
    trains_in_evaluation_mode_on_several_calls,
    retains_for_a_second_pass,
    takes_gradients_of_gradients,
    steps_by_hand,
]


@pytest.mark.parametrize("program", SOUND, ids=lambda each: each.__name__)
def test_nothing_is_found_in_a_sound_loop(program: Callable[[Loop], None]) -> None:
    loop = Loop()
    with loop.watch:
        program(loop)
    assert loop.codes() == []
    assert loop.watch.findings == ()


# --- what stays as it was --------------------------------------------------------------------------------------------


def test_all_hooks_are_off_again_after_nested_watches_and_errors() -> None:
    before = (
        torch.nn.Module.__call__,
        torch.optim.Optimizer.__init__,
        torch.autograd.graph._engine_run_backward,
        torch.autograd._engine_run_backward,  # type: ignore[attr-defined]
    )
    outer, inner = Loop(), Loop()
    raised = ValueError("the program's own")
    with pytest.raises(ValueError) as caught, outer.watch, inner.watch:
        inner.step(torch.randn(4, WIDTH))
        raise raised
    assert caught.value is raised
    assert (
        torch.nn.Module.__call__,
        torch.optim.Optimizer.__init__,
        torch.autograd.graph._engine_run_backward,
        torch.autograd._engine_run_backward,  # type: ignore[attr-defined]
    ) == before
    assert not outer.codes() and not inner.codes()


def test_a_loop_gives_the_same_with_the_watch() -> None:
    results = []
    for is_watched in (False, True):
        torch.manual_seed(3)
        loop = Loop()
        if is_watched:
            with loop.watch:
                [loop.step(inputs) for inputs in loop.batches(7)]
        else:
            [loop.step(inputs) for inputs in loop.batches(7)]
        results.append(torch.cat([each.detach().flatten() for each in loop.model.parameters()]))
    assert torch.equal(*results)


def test_an_error_of_ours_is_told_once_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()

    def breaks(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("dryfit.watching.observer.take_census", breaks)
    told = r"dryfit.watch has failed and is off, and the program goes on without it: .*ZeroDivisionError: ours"
    with pytest.warns(RuntimeWarning, match=told) as warned, loop.watch:
        for inputs in loop.batches(8):
            loop.step(inputs)
    assert len(warned) == 1
    assert "ZeroDivisionError: ours" in loop.watch.failure
    assert torch.nn.Module.__call__.__module__ == "torch.nn.modules.module"


def test_a_finding_is_warned_of_once_at_the_programs_line() -> None:
    loop = Loop()
    total = 0.0
    with warnings.catch_warnings(record=True) as said, watch(loop.model, loop.optimizer) as watching:
        warnings.simplefilter("always")
        for inputs in loop.batches(24):
            total += loop.step(inputs)[0]  # warned of
    assert [each.category for each in said] == [MemoryFindingWarning]
    assert said[0].filename == __file__
    assert said[0].lineno == line_of(test_a_finding_is_warned_of_once_at_the_programs_line, "warned of")
    assert [each.code for each in watching.findings] == ["DF101"]


def test_loops_of_several_threads_are_watched_without_harm() -> None:
    loops = [Loop(), Loop()]

    def train(loop: Loop) -> None:
        for inputs in loop.batches(10):
            loop.step(inputs)

    with loops[0].watch, loops[1].watch:
        threads = [threading.Thread(target=train, args=(loop,)) for loop in loops]
        [each.start() for each in threads]
        [each.join() for each in threads]
    assert loops[0].codes() == loops[1].codes() == []


def test_a_compiled_model_is_counted_as_one_call_a_step() -> None:
    loop = Loop()
    before = torch.compile(loop.model, backend="eager", fullgraph=True)
    with loop.watch:
        within = torch.compile(loop.model, backend="eager", fullgraph=True)
        for inputs in loop.batches(6):
            loop.optimizer.zero_grad()
            (functional.mse_loss(before(inputs), inputs) + within(inputs).mean()).backward()
            loop.optimizer.step()
    assert loop.codes() == []
    assert loop.watch.step == 6


# --- what it says ----------------------------------------------------------------------------------------------------


def test_steps_are_counted_by_rounds_of_all_optimizers() -> None:
    loop = Loop()
    second = torch.optim.SGD(loop.model.parameters(), lr=0.1)
    with watch(loop.model, [loop.optimizer, second]) as watching:
        for inputs in loop.batches(5):
            loop.step(inputs)
            second.step()
    assert watching.step == 5
    assert [each.step for each in watching.steps] == [1, 2, 3, 4, 5]
    assert all(each.seconds > 0 and each.host_bytes > 0 for each in watching.steps)
    assert set(watching.steps[2].phases) == {
        "forward",
        "backward",
        "after backward",
        "optimizer step",
        "after the step",
    }


def test_the_text_says_what_each_number_means() -> None:
    loop = Loop()
    with loop.watch as watching:
        for inputs in loop.batches(3):
            loop.step(inputs)
    text = str(watching)
    assert text.startswith("dryfit: 3 steps watched, ")
    assert "  resident  " in text and "this process's memory in RAM, shared pages among it" in text
    # Three layers of 64 * 64 weights and 64 biases, of 4 bytes; Adam has two states of each, and a count.
    assert f"parameters          {3 * (64 * 64 + 64) * 4 / 1024:.2f} KiB  of the models given" in text
    assert "findings: none so far" in text
    assert max(map(len, text.splitlines())) <= 120


def test_an_out_of_memory_error_is_explained_and_goes_on_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop()
    error = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 3.00 GiB is "
        "free. Including non-PyTorch memory, this process has 20.64 GiB memory in use. Of the allocated memory "
        "20.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
    )
    with pytest.raises(torch.OutOfMemoryError) as caught, loop.watch:
        loop.step(torch.randn(4, WIDTH))
        loop.step(torch.randn(4, WIDTH))
        raise error
    assert caught.value is error
    said = capsys.readouterr().err
    assert "dryfit: memory ran out in step 2, after the step." in said
    assert "DF501: " in said
    assert "2 steps watched" in said or "1 step watched" in said


def test_a_watch_is_entered_once() -> None:
    loop = Loop()
    with (
        loop.watch,
        pytest.raises(RuntimeError, match=r"running already; dryfit.watch\(...\) makes one for each block"),
    ):
        loop.watch.__enter__()

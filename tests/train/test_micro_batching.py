"""`micro_batched` on the host: the gradient of the whole batch whatever runs out of memory, and nothing left behind."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.language import Gradients, batch_of, count_tokens, difference, language_model, loss_of, summed_loss_of
from tests.train.on_card import found_on_card
from tests.train.running_out import MESSAGE, FailsInBackward, runs_out
from torch import nn
from torch.nn.functional import mse_loss

from dryfit.errors import UsageError
from dryfit.train.micro_batching import MicroBatchWarning, micro_batched
from dryfit.train.warning_classes import AccumulationWarning, BatchNormWarning

EQUAL = 1e-6
EXAMPLES = Path(__file__).parents[2] / "examples"
WORKSPACES_BYTES = 16 << 20  # of cuBLAS, on an A100: 8 MiB and 128 KiB for each thread that calls it


class Net(nn.Module):
    """Linear layers, between which the backward pass can run out: then the last layer has its gradient already."""

    def __init__(self, norm: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(6, 8), norm or nn.Identity(), nn.Linear(8, 3)
        self.backward_limit = 1 << 30

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(inputs)).relu()
        return self.last(FailsInBackward.apply(hidden, len(inputs) > self.backward_limit))


def data(rows: int = 20, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return torch.randn(rows, 6), torch.randn(rows, 3)


def loss_of_pair(model: nn.Module, batch: Any) -> torch.Tensor:
    return mse_loss(model(batch[0]), batch[1])


def gradients(model: nn.Module) -> Gradients:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def whole(model: nn.Module, batch: Any, loss: Callable[..., torch.Tensor] = loss_of_pair) -> tuple[Gradients, float]:
    found = loss(model, batch)
    found.backward()
    return gradients(model), found.item()


def limited(model: nn.Module, limit: int, seen: list[int] | None = None) -> Callable[[Any], torch.Tensor]:
    def step(batch: Any) -> torch.Tensor:
        if seen is not None:
            seen.append(len(batch[0]))
        loss = loss_of_pair(model, batch)
        runs_out(len(batch[0]), limit)
        return loss

    return step


def test_a_batch_that_fits_goes_through_once_and_as_it_is() -> None:
    model, batch = Net(), data()
    seen = []
    train_on = micro_batched(lambda given: seen.append(given) or loss_of_pair(model, given), model)
    loss = train_on(batch)
    expected, value = whole(Net(), batch)
    assert seen == [batch] and seen[0] is batch
    assert all(map(torch.equal, gradients(model), expected))
    assert float(loss) == value and not loss.requires_grad
    assert train_on.micro_batch is None


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_pieces_give_the_gradient_and_the_loss_of_the_whole_batch(where: str) -> None:
    model, batch = Net(), data(21)
    seen: list[int] = []
    if where == "backward":
        model.backward_limit = 6
    train_on = micro_batched(limited(model, 6 if where == "forward" else 1 << 30, seen), model)
    with pytest.warns(MicroBatchWarning) as told:
        loss = train_on(batch)
    expected, value = whole(Net(), batch)
    assert difference(gradients(model), expected) <= EQUAL
    assert float(loss) == pytest.approx(value, rel=1e-6)
    assert seen == [21, 10, 5, 5, 5, 5, 1]
    assert train_on.micro_batch == 5
    assert [str(each.message) for each in told] == [
        "Memory ran out with 21 samples at once (2.00 GiB more were asked for). From now on at most 5 samples go "
        "through at a time, this batch in 5 pieces, with the gradient of the whole batch. Give start=5, or what "
        "`dryfit fit --output` saves, to begin with that."
    ]


def test_the_size_stays_for_the_next_batches_and_is_told_once() -> None:
    model, seen = Net(), []
    train_on = micro_batched(limited(model, 6, seen), model)
    with pytest.warns(MicroBatchWarning):
        train_on(data(12))
    model.zero_grad()
    seen.clear()
    train_on(data(13, seed=1))  # warnings are errors here
    assert seen == [6, 6, 1]
    assert difference(gradients(model), whole(Net(), data(13, seed=1))[0]) <= EQUAL
    seen.clear()
    train_on(data(4))
    assert seen == [4]
    assert train_on.micro_batch == 6


def test_a_start_spares_the_error_and_is_halved_where_it_does_not_fit() -> None:
    model, seen = Net(), []
    micro_batched(limited(model, 8, seen), model, start=8)(data(20))
    assert seen == [8, 8, 4]
    seen.clear()
    with pytest.warns(MicroBatchWarning, match="ran out with 8 samples at once .* at most 4 samples"):
        micro_batched(limited(model, 4, seen), model, start=8)(data(20))
    assert seen == [8, 4, 4, 4, 4, 4]


def test_wrong_weights_would_be_seen() -> None:
    """The mean of the pieces' means, and gradients of the failed attempt left in place: what this is not."""
    model, batch = Net(), data(21)
    expected = whole(Net(), batch)[0]
    for at in range(0, 21, 5):
        (loss_of_pair(model, [each[at : at + 5] for each in batch]) / 5).backward()
    assert difference(gradients(model), expected) > 0.01
    model = Net()
    model.backward_limit = 20
    with pytest.raises(torch.OutOfMemoryError):
        loss_of_pair(model, batch).backward()
    assert len(gradients(model)) == 2  # of the last layer, from an attempt that failed


def test_gradients_from_before_are_added_to_in_the_tensor_they_are_in() -> None:
    model, first, second = Net(), data(5), data(9, seed=1)
    expected, _ = whole(Net(), first)
    expected = [one + other for one, other in zip(expected, whole(Net(), second)[0], strict=True)]
    before, _ = whole(model, first)
    with pytest.warns(MicroBatchWarning):
        micro_batched(limited(model, 3), model)(second)
    assert difference(gradients(model), expected) <= EQUAL
    assert [id(each) for each in gradients(model)] == [id(each) for each in before]


def test_any_other_error_passes_and_leaves_the_gradients_of_before() -> None:
    model = Net()
    before = [each.clone() for each in whole(model, data(5))[0]]

    def step(batch: Any) -> torch.Tensor:
        if len(batch[0]) < 4:
            raise ValueError("a mistake in the step")
        return limited(model, 6)(batch)

    with pytest.raises(ValueError, match="a mistake in the step"):
        micro_batched(step, model, start=5)(data(8))
    assert all(map(torch.equal, gradients(model), before))


def test_with_one_sample_the_error_itself_is_raised_and_says_what_was_tried() -> None:
    model = Net()
    train_on = micro_batched(limited(model, 0), model)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        train_on(data(9))
    assert str(caught.value).startswith(MESSAGE)
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert said.endswith(
        "dryfit: memory ran out with a single sample at once (2.00 GiB more were asked for); it was tried with 9 "
        "at first, and halved from there. A smaller batch cannot help, and `dryfit plan` finds what does."
    )
    assert gradients(model) == []


def test_the_size_can_be_kept_and_the_error_let_through() -> None:
    model, seen = Net(), []
    with pytest.raises(torch.OutOfMemoryError) as caught:
        micro_batched(limited(model, 6, seen), model, start=8, halve=False)(data(20))
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert said.endswith(
        "dryfit: memory ran out with 8 samples at once (2.00 GiB more were asked for), and halve=False keeps their "
        "number."
    )
    assert seen == [8]


def test_the_error_that_is_raised_shows_the_lines_of_the_step() -> None:
    model = Net()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        micro_batched(limited(model, 0), model)(data(2))
    assert [entry.name for entry in caught.traceback][-2:] == ["step", "runs_out"]


def test_what_the_error_holds_is_freed_before_the_next_attempt() -> None:
    model, alive, at_start = Net(), [], []

    def step(batch: Any) -> torch.Tensor:
        at_start.append(sum(each() is not None for each in alive))
        activation = torch.zeros(1000)
        alive.append(weakref.ref(activation))
        try:
            runs_out(len(batch[0]), 2)
        except RuntimeError as error:
            kept = torch.zeros(10)
            alive.append(weakref.ref(kept))
            raise RuntimeError("CUDA error: out of memory") from error
        return loss_of_pair(model, batch)

    gc.disable()  # cycles are not to save the day by themselves
    try:
        with pytest.warns(MicroBatchWarning):
            micro_batched(step, model)(data(8))
    finally:
        gc.enable()
    assert at_start[:3] == [0, 0, 0]


def test_items_are_what_losses_count_by() -> None:
    batch = {name: torch.cat([batch_of(100)[name], batch_of(10)[name]]) for name in ("words", "labels")}
    expected = whole(language_model(), batch, loss_of)[0]
    model = language_model()
    loss = micro_batched(lambda piece: loss_of(model, piece), model, start=7, items=count_tokens)(batch)
    assert difference(gradients(model), expected) <= EQUAL
    assert float(loss) == pytest.approx(loss_of(model, batch).item(), rel=1e-6)

    by_samples = language_model()
    with pytest.warns(AccumulationWarning, match=r"count by their samples, and their labels other than -100 number"):
        micro_batched(lambda piece: loss_of(by_samples, piece), by_samples, start=7)(batch)
    assert difference(gradients(by_samples), expected) > 0.01


def test_sums_are_added() -> None:
    batch = batch_of(64)
    expected = whole(language_model(), batch, summed_loss_of)[0]
    model = language_model()
    micro_batched(lambda piece: summed_loss_of(model, piece), model, start=3, reduction="sum")(batch)
    assert difference(gradients(model), expected) <= EQUAL


def test_pieces_without_items_are_left_out() -> None:
    batch = batch_of(33)  # of 10 rows with 11 words each, the first three
    model = language_model()
    micro_batched(lambda piece: loss_of(model, piece), model, start=2, items=count_tokens)(batch)
    assert difference(gradients(model), whole(language_model(), batch, loss_of)[0]) <= EQUAL


def test_what_a_failed_attempt_moved_in_batch_norm_is_put_back() -> None:
    def attempt(limit: int, start: int | None) -> list[torch.Tensor]:
        model = Net(nn.BatchNorm1d(8))
        train_on = micro_batched(limited(model, limit), model, start=start)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train_on(data(8))
        (named,) = [each for each in caught if each.category is BatchNormWarning]
        assert str(named.message).startswith("BatchNorm in train mode at norm: it normalises each micro-batch")
        assert Path(named.filename).name == Path(__file__).name
        return [*model.norm.buffers(), *gradients(model)]

    assert all(map(torch.equal, attempt(limit=4, start=None), attempt(limit=4, start=4)))


def test_a_scaler_scales_each_piece() -> None:
    model, batch = Net(), data(8)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    micro_batched(limited(model, 8), model, start=3, scaler=scaler)(batch)
    optimizer = torch.optim.SGD(model.parameters())
    scaler.unscale_(optimizer)
    assert difference(gradients(model), whole(Net(), batch)[0]) <= EQUAL


def test_batches_of_every_kind_are_cut() -> None:
    from transformers import BatchEncoding

    model = Net()
    inputs, targets = data(8)
    expected = whole(Net(), (inputs, targets))[0]
    nested = [{"of": (inputs, [targets])}, torch.tensor(0.5), "a name"]
    encoded = BatchEncoding({"input_ids": inputs, "labels": targets})
    steps: list[tuple[Any, Callable[[Any], torch.Tensor]]] = [
        (nested, lambda piece: mse_loss(model(piece[0]["of"][0]), piece[0]["of"][1][0])),
        (encoded, lambda piece: mse_loss(model(piece["input_ids"]), piece["labels"])),
    ]
    for batch, step in steps:
        model.zero_grad()
        micro_batched(step, model, start=3)(batch)
        assert difference(gradients(model), expected) <= EQUAL


def test_a_batch_of_ones_own_is_cut_by_ones_own_function() -> None:
    model = Net()
    pairs = list(zip(*data(8), strict=True))

    def step(piece: Any) -> torch.Tensor:
        runs_out(len(piece), 3)
        return mse_loss(model(torch.stack([one for one, _ in piece])), torch.stack([other for _, other in piece]))

    def split(batch: Any, size: int) -> list[Any]:
        return [batch[at : at + size] for at in range(0, len(batch), size)]

    train_on = micro_batched(step, model, split=split)
    with pytest.warns(MicroBatchWarning):
        train_on(pairs)
    assert train_on.micro_batch == 2
    assert difference(gradients(model), whole(Net(), data(8))[0]) <= EQUAL
    with pytest.raises(UsageError, match=r"split\(batch, 2\) gave 1 pieces of 8 samples, and 4 were expected"):
        micro_batched(step, model, start=2, split=lambda batch, size: split(batch, size)[:1] if size == 2 else batch)(
            pairs
        )


def test_a_batch_that_cannot_be_cut_says_so_after_the_error() -> None:
    model = Net()

    def step(batch: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError(MESSAGE)

    with pytest.raises(UsageError, match="There is no tensor with a dimension in str") as caught:
        micro_batched(step, model)("a batch")
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)


def test_a_step_with_a_backward_of_its_own_is_refused() -> None:
    model = Net()

    def step(batch: Any) -> torch.Tensor:
        loss = loss_of_pair(model, batch)
        loss.backward()
        return loss

    with pytest.raises(UsageError, match=r"The step has run a backward pass of its own. Return the loss"):
        micro_batched(step, model)(data())
    with pytest.raises(UsageError, match="The loss of the step is float"):
        micro_batched(lambda batch: loss_of_pair(model, batch).item(), model)(data())  # type: ignore[arg-type]


def saved_fit(path: Path, *answers: tuple[str, int | None]) -> Path:
    values = [{"gpu": gpu, "card": {"name": gpu}, "row": {}, "largest": largest} for gpu, largest in answers]
    path.write_text(json.dumps({"schema_version": 1, "searched": "batch", "answers": values}))
    return path


def test_a_saved_search_gives_the_start(tmp_path: Path) -> None:
    model, seen = Net(), []
    train_on = micro_batched(limited(model, 9, seen), model, start=saved_fit(tmp_path / "fit.json", ("l4", 7)))
    train_on(data(20))
    assert seen == [7, 7, 6]


def test_a_search_that_does_not_give_one_is_refused(tmp_path: Path) -> None:
    def refusal(*answers: tuple[str, int | None]) -> str:
        with pytest.raises(UsageError) as refused:
            micro_batched(limited(Net(), 9), Net(), start=saved_fit(tmp_path / "fit.json", *answers))
        return str(refused.value)

    assert refusal(("l4", None)).endswith(
        "no batch fits on l4, so there is none to start with; `dryfit plan` says what would make one fit."
    )
    assert "has 2 answers for this card, so it is not known which batch is meant (l4: 7, t4: 3)." in refusal(
        ("l4", 7), ("t4", 3)
    )
    (tmp_path / "run.json").write_text('{"schema_version": 1, "verdict": "fits"}')
    with pytest.raises(UsageError, match=r"run.json is not a saved search of dryfit fit"):
        micro_batched(limited(Net(), 9), Net(), start=tmp_path / "run.json")
    with pytest.raises(UsageError, match="start=0: it is a number of samples, 1 or more"):
        micro_batched(limited(Net(), 9), Net(), start=0)


def test_what_fit_saves_is_what_is_read(tmp_path: Path) -> None:
    from dryfit.search.found import Answer, Fit
    from dryfit.train.predictions import largest_that_fits

    answer = Answer(gpu="l4", card={"name": "NVIDIA L4"}, largest=48, surely=40)
    found = Fit(
        program=["train.py"], searched="batch", lowest=1, highest=64, answers=(answer,), rehearsals=3, from_cache=0,
        wall_seconds=1.0,
    )  # fmt: skip
    found.save(tmp_path / "fit.json")
    assert largest_that_fits(tmp_path / "fit.json") == 40


def test_on_a_card_each_attempt_begins_with_what_the_first_one_began_with() -> None:
    found = found_on_card()["out_of_memory"]
    first, *others = found["held at the failed ones"]
    assert all(0 <= held - first <= WORKSPACES_BYTES for held in [*others, found["held then"]])
    assert found["caught within except"] >= 1 << 30  # what is held where the next attempt is made within `except`


def test_on_a_card_the_size_is_found_and_stays() -> None:
    found = found_on_card()["out_of_memory"]
    size = found["micro_batch"]
    assert found["sizes"][: 3 + 8 + 8] == [1 << 18, 1 << 17, 1 << 16, *16 * [size]]
    assert size == 1 << 15
    assert found["activations of it"] <= (2 << 30) < 4 * found["activations of it"]


def test_on_a_card_it_is_said_what_is_still_held_and_what_was_asked_for() -> None:
    found = found_on_card()["out_of_memory"]
    (told,) = found["told"]
    assert told.startswith(
        "Memory ran out with 262144 samples at once (1024.00 MiB more were asked for when tensors held 1.28 GiB). From "
        "now on at most 32768 samples go through at a time, this batch in 8 pieces"
    )
    assert told.endswith(
        " 256.00 MiB of what the attempt made are still held: something outside of the step keeps them, such as a "
        "list, a hook, or whoever has logged the error."
    )
    assert found["note"].startswith("CUDA out of memory. Tried to allocate 1024.00 MiB.")
    assert "it was tried with 4 at first, and halved from there." in found["note"]


def test_the_example_frees_what_a_rehearsals_frames_hold_too(tmp_path: Path) -> None:
    """A rehearsal takes its frames out of tracebacks, so that clearing those that are left is not enough."""
    words = ["run", "--gpu", "sm=80,sms=108,memory=4GiB", "--steps", "all", str(EXAMPLES / "micro_batched.py")]
    done = subprocess.run([sys.executable, "-m", "dryfit", *words], cwd=tmp_path, capture_output=True, text=True)
    assert "From now on at most 32768 samples go through at a time, this batch in 2 pieces" in done.stderr, done.stderr
    assert "batches of 65536, 32768 samples at a time; peak on cuda:0: 3.30 GiB allocated" in done.stderr
    assert "still held" not in done.stderr


def test_what_is_no_size_no_model_and_no_reduction_is_refused() -> None:
    def refusal(**given: Any) -> str:
        model = given.pop("model", Net())
        size = given.pop("set", None)
        with pytest.raises(UsageError) as refused:
            train_on = micro_batched(limited(Net(), 9), model, **given)
            train_on.micro_batch = size
            train_on(data(9))
        return str(refused.value)

    assert refusal(start=2.5) == "start=2.5: it is a number of samples, 1 or more."
    for size in (0, -1, "3"):
        assert refusal(set=size) == f"micro_batch={size!r}: it is a number of samples, 1 or more."
    assert refusal(reduction="avg") == "reduction='avg' is none of 'mean', 'sum'."
    assert refusal(scaler=True) == "scaler=True is no torch.amp.GradScaler."
    call = "The call is micro_batched(step, model), where model is"
    assert refusal(model=loss_of) == f"function is no torch.nn.Module. {call} a module, or several in a list."
    assert refusal(model=[]) == f"The list of models is empty. {call} what gets gradients."


def test_a_batch_without_samples_that_runs_out_is_not_tried_for_ever() -> None:
    seen: list[int] = []

    def step(batch: Any) -> torch.Tensor:
        seen.append(len(batch))
        raise torch.OutOfMemoryError(MESSAGE)

    with pytest.raises(torch.OutOfMemoryError):
        micro_batched(step, Net())(torch.zeros(0, 6))
    assert seen == [0]

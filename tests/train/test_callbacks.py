"""The callbacks for Hugging Face's and Lightning's Trainer: what they measure, report and warn of."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.results import PLAIN_RESULT
from torch import nn
from torch.utils.checkpoint import checkpoint

from dryfit.errors import UsageError
from dryfit.train import TransformersMemoryCallback, memory_report
from dryfit.train.memory_report import BACKWARD, EVALUATION, FORWARD, OPTIMIZER_STEP, MemoryGrowthWarning, MemoryReport
from dryfit.train.predictions import PredictedPeaks, predicted_peaks
from dryfit.train.training_mistakes import TrainingMistakeWarning, warn_of_missing_gradients, warn_of_mistakes
from dryfit.train.warning_classes import BatchNormWarning
from dryfit.units import format_bytes
from dryfit.watching.device_memory import Memory

MIB = 1 << 20
EXAMPLES = Path(__file__).parents[2] / "examples"
ON_THE_HOST = (
    "dryfit: {} ran without a CUDA or XPU device. PyTorch does not count memory of the host, so there are no peaks to "
    "report."
)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """A card that holds what a test says."""
    held = {"bytes": 0}
    here = torch.device("cuda", 0)
    monkeypatch.setattr(memory_report, "devices_in_use", lambda: [here])
    monkeypatch.setattr(
        memory_report, "memory_of", lambda _: Memory(allocated_bytes=held["bytes"], reserved_bytes=held["bytes"])
    )
    monkeypatch.setattr(memory_report, "name_of", lambda _: "NVIDIA L4")
    yield held


def after_steps(card: dict[str, int], *sizes: int) -> MemoryReport:
    report = MemoryReport(None)
    for size in sizes:
        card["bytes"] = size
        report.end_step()
    return report


def test_growth_from_step_to_step_is_warned_of_once(card: dict[str, int]) -> None:
    with pytest.warns(MemoryGrowthWarning) as warned:
        after_steps(card, *(MIB * (100 + 3 * step) for step in range(20)))
    (only,) = warned
    assert str(only.message) == (
        "Each of the last 10 steps left more allocated than the one before, from 100.00 MiB after step 1 to 127.00 MiB "
        "after step 10, about 3.00 MiB a step. Something is kept from step to step, such as a loss with its graph, or "
        "outputs in a list. `dryfit run --report` names who holds it, and the line."
    )


def test_what_is_no_growth_is_not_warned_of(card: dict[str, int]) -> None:
    after_steps(card, MIB, *[300 * MIB] * 30)  # the optimizer's states, once
    after_steps(card, *(MIB * (100 + step % 9 * 10) for step in range(40)))  # now and then
    after_steps(card, *(MIB * 100 + 4096 * step for step in range(40)))  # less than is worth a word


def test_the_table_has_the_predicted_beside_the_measured(card: dict[str, int]) -> None:
    predicted = PredictedPeaks(
        peak_allocated_bytes=800 * MIB,
        peak_reserved_bytes=900 * MIB,
        phase_peaks={"forward": 500 * MIB, "loss": 600 * MIB, "backward": 800 * MIB, "after backward": 10 * MIB},
    )
    report = MemoryReport(predicted)
    report.steps = 3
    for phase, size in ((FORWARD, 610), (BACKWARD, 900), (OPTIMIZER_STEP, 400), (EVALUATION, 200)):
        report.phases[phase] = Memory(allocated_bytes=size * MIB, reserved_bytes=990 * MIB)
    assert str(report).splitlines() == [
        "dryfit: memory of 3 steps on cuda:0, NVIDIA L4",
        "                          predicted     measured",
        "  forward                600.00 MiB   610.00 MiB",
        "  backward               800.00 MiB   900.00 MiB",
        "  optimizer step                  -   400.00 MiB",
        "  evaluation                      -   200.00 MiB",
        "  allocated              800.00 MiB   900.00 MiB",
        "  reserved               900.00 MiB   990.00 MiB",
        "Tensors held 12.5 % more at most than predicted. Was the rehearsal of the same batch, lengths of sequences, "
        "precision and versions, and of an evaluation too?",
    ]
    report.predicted = None
    assert str(report).splitlines()[1] == "  forward                610.00 MiB"


def test_a_result_of_dryfit_run_is_the_prediction_and_nothing_else_is(tmp_path: Path) -> None:
    dataclasses.replace(PLAIN_RESULT, phase_peaks={"forward": 5}).save(tmp_path / "run")
    assert predicted_peaks(tmp_path / "run") == PredictedPeaks(
        peak_allocated_bytes=4 * MIB, peak_reserved_bytes=20 * MIB, phase_peaks={"forward": 5}
    )
    (tmp_path / "other").write_text(json.dumps({"schema_version": 1, "answers": []}))
    (tmp_path / "newer").write_text(json.dumps({"schema_version": 2}))
    for found, said in (
        (tmp_path / "other", "other is not a saved result of dryfit run"),
        (tmp_path / "missing", "missing is not a saved result of dryfit run"),
        (tmp_path / "newer", "newer has schema version 2, and this dryfit knows up to 1"),
        ({"forward": 5}, "{'forward': 5} is not a saved result of dryfit run"),
    ):
        with pytest.raises(UsageError, match=said):
            MemoryReport(found)


def llama(**changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    config.update(changes)
    return LlamaForCausalLM(config)


def checkpointed(model: nn.Module, use_reentrant: bool) -> nn.Module:
    """As transformers leaves a model: 5 in each block, 4 in the module around them."""
    import functools

    blocks = [each for each in model.model.layers if hasattr(each, "gradient_checkpointing")]
    for module in blocks or [model.model]:
        module.gradient_checkpointing = True
        module._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=use_reentrant)
    return model


def test_mistakes_are_named_before_training() -> None:
    warn_of_mistakes(checkpointed(llama(), use_reentrant=False), accumulation_steps=4)
    warn_of_mistakes(llama(use_cache=True), accumulation_steps=4)
    with pytest.warns(BatchNormWarning, match="BatchNorm in train mode at 1: .* 4 times per optimizer step"):
        warn_of_mistakes(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), accumulation_steps=4)
    warn_of_mistakes(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), accumulation_steps=1)
    with pytest.warns(TrainingMistakeWarning, match="use_cache is on in LlamaForCausalLM while its blocks are checkpo"):
        warn_of_mistakes(checkpointed(llama(use_cache=True), use_reentrant=False), accumulation_steps=1)
    with pytest.warns(
        TrainingMistakeWarning, match=r"Reentrant checkpointing at model(.layers.0, model.layers.1)?: a "
    ):
        warn_of_mistakes(checkpointed(llama(), use_reentrant=True), accumulation_steps=1)


def test_gradients_that_reentrant_checkpointing_left_out_are_named() -> None:
    def first_step(use_reentrant: bool) -> nn.Module:
        model = checkpointed(llama(), use_reentrant=use_reentrant).train()
        model.model.embed_tokens.requires_grad_(False)
        tokens = torch.zeros(1, 4, dtype=torch.long)
        model(input_ids=tokens, labels=tokens).loss.backward()
        return model

    warn_of_missing_gradients(first_step(use_reentrant=False))
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        model = first_step(use_reentrant=True)
    with pytest.warns(TrainingMistakeWarning, match=r"^18 of 20 trainable tensors got no gradient in the first step: "):
        warn_of_missing_gradients(model)


def trainer_of(folder: Path, callback: Any, **settings: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": torch.zeros(4, dtype=torch.long), "labels": torch.zeros(4, dtype=torch.long)}] * 16
    return Trainer(
        model=None if "model_init" in settings else llama(),
        args=TrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=3,
            eval_strategy="steps", eval_steps=2, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=data,
        eval_dataset=data,
        callbacks=[callback],
        **settings,
    )  # fmt: skip


on_transformers = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.mark.stacks
@on_transformers
def test_transformers_on_the_host_says_that_there_is_nothing_to_report(tmp_path: Path) -> None:
    told: list[str] = []
    callback = TransformersMemoryCallback(tell=told.append)
    trainer = trainer_of(tmp_path, callback)
    trainer.evaluate()
    assert callback.report._block is None and not callback.peaks
    trainer.train()
    assert told == [ON_THE_HOST.format("3 steps")]
    assert {FORWARD, BACKWARD, OPTIMIZER_STEP, EVALUATION} <= callback.peaks.keys()
    trainer.evaluate()
    assert not trainer.model._forward_hooks and not trainer.model._forward_pre_hooks
    assert callback.report._block is None


@pytest.mark.stacks
@on_transformers
def test_a_second_training_is_measured_though_an_error_ended_the_first(tmp_path: Path) -> None:
    callback = TransformersMemoryCallback(tell=lambda _: None)
    trainer = trainer_of(tmp_path, callback, model_init=lambda: llama())  # which makes another model for each training

    def failing(*_: Any) -> Any:
        raise ZeroDivisionError

    trainer.training_step, own = failing, trainer.training_step
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    trainer.training_step = own
    trainer.train()
    assert {FORWARD, BACKWARD, OPTIMIZER_STEP, EVALUATION} <= callback.peaks.keys()
    assert callback.report._block is None


@pytest.mark.stacks
@on_transformers
def test_transformers_growth_and_mistakes_are_warned_of_in_a_training(tmp_path: Path, card: dict[str, int]) -> None:
    def model() -> nn.Module:
        made = checkpointed(llama(use_cache=True), use_reentrant=False)
        made.register_forward_hook(lambda *_: card.update(bytes=card["bytes"] + 3 * MIB))
        return made

    trainer = trainer_of(tmp_path, TransformersMemoryCallback(tell=lambda _: None), model_init=model)
    trainer.args.max_steps = 12
    with (
        pytest.warns(MemoryGrowthWarning, match="Each of the last 10 steps left more allocated than the one before"),
        pytest.warns(TrainingMistakeWarning, match="use_cache is on in LlamaForCausalLM"),
    ):
        trainer.train()


class Fitted:
    """What Lightning trains: a layer that holds 3 MiB more after each step, with a BatchNorm, and may fail."""

    def __new__(cls, card: dict[str, int], *, fails: bool = False) -> Any:
        from lightning.pytorch import LightningModule

        class Module(LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

            def training_step(self, batch: torch.Tensor, at: int) -> torch.Tensor:
                if fails:
                    raise ZeroDivisionError
                card["bytes"] += 3 * MIB
                return self.layers(batch).square().sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        return Module()


@pytest.mark.stacks
@pytest.mark.filterwarnings("ignore:.*num_workers.*", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:GPU available", "ignore:The number of training batches", "ignore:`isinstance")
def test_lightning_growth_and_mistakes_are_warned_of_and_an_error_ends_the_phase(card: dict[str, int]) -> None:
    pytest.importorskip("lightning")
    from lightning.pytorch import Trainer

    from dryfit.train import LightningMemoryCallback

    callback = LightningMemoryCallback(tell=lambda _: None)

    def fit(model: Any) -> None:
        off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        trainer = Trainer(
            max_epochs=1, accelerator="cpu", accumulate_grad_batches=2,
            callbacks=[callback], **dict.fromkeys(off, False),
        )  # fmt: skip
        trainer.fit(model, torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=2))

    with (
        pytest.warns(MemoryGrowthWarning, match="Each of the last 10 steps left more allocated than the one before"),
        pytest.warns(BatchNormWarning, match="BatchNorm in train mode at layers.1: "),
    ):
        fit(Fitted(card))
    with pytest.warns(BatchNormWarning), pytest.raises(ZeroDivisionError):
        fit(Fitted(card, fails=True))
    assert callback.report._block is None


@pytest.mark.stacks
@pytest.mark.parametrize("name", ["trainer", "lightning"])
def test_the_examples_measure_what_their_rehearsal_finds(name: str, tmp_path: Path) -> None:
    pytest.importorskip({"trainer": "transformers"}.get(name, name))
    words = ["run", "--gpu", "l4", "--steps", "all", "--output", "found.json", str(EXAMPLES / f"{name}_callback.py")]
    done = subprocess.run([sys.executable, "-m", "dryfit", *words], cwd=tmp_path, capture_output=True, text=True)
    assert "dryfit: memory of 8 steps on cuda:0, NVIDIA L4" in done.stderr, done.stderr
    measured = dict(re.findall(r"^  (\w[\w ]*?) {2,}([\d.]+ \w+)$", done.stderr, re.MULTILINE))
    found = predicted_peaks(tmp_path / "found.json")
    assert list(measured) == ["forward", "backward", "optimizer step", "evaluation", "allocated", "reserved"]
    for phase in ("forward", "backward", "evaluation"):
        assert measured[phase] == format_bytes(found.phase_peaks[phase]), phase
    assert measured["allocated"] == format_bytes(found.peak_allocated_bytes)
    assert measured["reserved"] == format_bytes(found.peak_reserved_bytes)

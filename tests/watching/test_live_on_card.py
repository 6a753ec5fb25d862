"""`dryfit.watch` on loops of a virtual card, each in a process of its own: peaks, the screen, memory that runs out."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import json, sys
import dryfit
dryfit.virtual("rtx-4090", memory_bytes=int(sys.argv[1]))
import torch
from dryfit.watching.watch import watch

MIB = 1 << 20
HOOKED = lambda: (torch.nn.Module.__call__, torch.optim.Optimizer.__init__, torch.autograd.graph._engine_run_backward)
BEFORE = HOOKED()

def made():
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(4)]).cuda()  # 4 MiB each
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def short(findings):
    parts = [(each.code, each.evidence, each.place) for each in findings]
    return [[code, evidence.holder, evidence.memory, place and place.text] for code, evidence, place in parts]
"""


def run(body: str, tmp_path: Path, *, memory_bytes: int = 8 << 30, code: int = 0) -> tuple[Any, str, str]:
    """What the program's last line is as JSON, all that it printed, and its stderr."""
    program = tmp_path / "train.py"
    program.write_text(HEAD + textwrap.dedent(body))
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(program), str(memory_bytes)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else None, done.stdout, done.stderr


def test_peaks_of_each_phase_and_the_screen(tmp_path: Path) -> None:
    body = """
        def main():
            model, optimizer = made()
            with watch(model, optimizer) as outer, watch(peaks=False) as inner:
                for _ in range(8):
                    inputs = torch.empty(8192, 1024, device="cuda")  # 32 MiB, as the output of each layer
                    model(inputs).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            assert HOOKED() == BEFORE and not outer.failure and not inner.failure
            print(outer)
            phases = {name: peak["cuda:0"].allocated_bytes for name, peak in outer.steps[4].phases.items()}
            print(json.dumps([outer.step, inner.step, phases, outer.steps[4].peak("cuda:0").allocated_bytes,
                              inner.steps[4].phases, inner.steps[4].left["cuda:0"].allocated_bytes]))

        main()
    """
    (steps, of_inner, phases, whole, no_phases, left), text, _ = run(body, tmp_path)
    assert steps == of_inner == 8
    mib = {name: size / (1 << 20) for name, size in phases.items()}
    # 16 MiB of weights, the inputs, an output of each of four layers; and 12 MiB of gradients before the last.
    assert 16 + 5 * 32 <= mib["forward"] < 16 + 5 * 32 + 20
    assert mib["backward"] >= mib["forward"] - 1
    assert mib["optimizer step"] < 16 + 16 + 2 * 32 + 20
    assert whole == max(phases.values())
    assert no_phases == {} and 16 <= left / (1 << 20) < 16 + 2 * 32 + 20
    assert "cuda:0, NVIDIA GeForce RTX 4090\n" in text
    assert "  parameters          16.00 MiB  of the models given\n" in text
    assert f"  peak allocated     {whole / (1 << 20):.2f} MiB  the most so far, in step " in text
    assert "of 8.00 GiB, all processes counted" in text
    assert "findings: none so far" in text


def test_memory_that_runs_out_is_saved_explained_and_raised_unchanged(tmp_path: Path) -> None:
    body = """
        def main():
            model, optimizer = made()
            seen = []
            raised = None
            step = torch.autograd.graph._engine_run_backward
            kept = []
            try:
                with watch(model, optimizer, snapshot="out.pickle") as watching:
                    for _ in range(400):
                        inputs = torch.empty(2048, 1024, device="cuda")
                        output = model(inputs)
                        output.sum().backward()
                        optimizer.step()
                        optimizer.zero_grad()
                        kept.append(output.detach())
                        try:
                            torch.empty(0 if len(kept) < 12 else 1 << 34, device="cuda")
                        except torch.OutOfMemoryError as error:
                            raised = error
                            raise
            except torch.OutOfMemoryError as error:
                seen.append(error)
            assert seen == [raised] and seen[0].args == raised.args and seen[0].__context__ is None
            assert HOOKED() == BEFORE and not torch._C._cuda_isHistoryEnabled()
            print(json.dumps([str(raised), short(watching.findings), watching.step]))

        main()
    """
    (text, found, steps), _, said = run(body, tmp_path, memory_bytes=1 << 30)
    assert text.startswith("CUDA out of memory. Tried to allocate 64.00 GiB.")
    assert found == [["DF102", "kept", "device", "kept.append(output.detach())"]]
    assert steps == 12
    assert "dryfit: memory ran out in step 12, after the step.\nDF501: " in said
    assert "`dryfit explain out.pickle` says who held what." in said
    assert "  DF102 train.py:" in said
    done = subprocess.run(
        [sys.executable, "-m", "dryfit", "explain", "out.pickle"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "64.00 GiB" in done.stdout and "kept" not in done.stderr, done.stdout + done.stderr


def test_a_backward_pass_that_runs_out_is_said_to_be_backward(tmp_path: Path) -> None:
    body = """
        def main():
            model, optimizer = made()
            torch.cuda.set_per_process_memory_fraction(280 / 1024)
            with watch(model, optimizer):
                for rows in (1024, 1024, 8192):
                    output = model(torch.empty(rows, 1024, device="cuda"))
                    output.pow(2).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()

        main()
    """
    # In 280 MiB there is room for 16 MiB of weights, a workspace, and the six tensors of 32 MiB before backward.
    _, _, said = run(body, tmp_path, memory_bytes=1 << 30, code=1)
    assert "dryfit: memory ran out in step 3, backward.\n" in said
    assert "in step 3, " in said.split("peak allocated")[1].splitlines()[0]
    assert said.rstrip().splitlines()[-1].startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate")


def test_growth_that_nobody_holds_and_a_cache_emptied_at_each_step(tmp_path: Path) -> None:
    body = """
        import ctypes

        def main():
            model, optimizer = made()
            with watch(model, optimizer, on_finding=lambda _: None) as hidden:
                for _ in range(16):
                    model(torch.empty(256, 1024, device="cuda")).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    # Known to the allocator, and to no Python object.
                    torch.cuda.caching_allocator_alloc(2 * MIB)
            with watch(model, optimizer, on_finding=lambda _: None) as emptied:
                for _ in range(8):
                    model(torch.empty(256, 1024, device="cuda")).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    torch.cuda.empty_cache()
            [growth] = hidden.findings
            assert not hidden.failure and not emptied.failure
            print(json.dumps([short(hidden.findings), growth.evidence.bytes_per_step, short(emptied.findings)]))

        main()
    """
    (hidden, grows, emptied), _, _ = run(body, tmp_path)
    assert hidden == [["DF114", "", "device", None]]
    assert grows == 2 << 20
    assert emptied == [["DF403", "", "device", "torch.cuda.empty_cache()"]]


@pytest.mark.parametrize("kind", ["lightning", "transformers"])
def test_the_loops_of_training_stacks(tmp_path: Path, kind: str) -> None:
    pytest.importorskip(kind)
    body = {
        "lightning": """
            import lightning
            class Module(lightning.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.net, self.outputs = torch.nn.Linear(256, 256), []
                def training_step(self, batch, number):
                    output = self.net(batch[0])
                    self.outputs.append(output)
                    return (output - batch[0]).pow(2).mean()
                def configure_optimizers(self):
                    return torch.optim.AdamW(self.parameters())
            data = torch.utils.data.TensorDataset(torch.randn(192, 256))
            model, holder = Module(), "self.outputs"
            trainer = lightning.Trainer(max_steps=12, accelerator="gpu", devices=1, logger=False, barebones=True)
            with watch(model, on_finding=lambda _: None) as watching:
                trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16))
        """,
        "transformers": """
            from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
            sizes = dict(vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=1)
            model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2))
            class Keeping(Trainer):
                total = 0
                def compute_loss(self, *args, **kwargs):
                    loss = super().compute_loss(*args, **kwargs)
                    self.total = self.total + (loss[0] if isinstance(loss, tuple) else loss)
                    return loss
            data = [{"input_ids": torch.ones(8).long(), "labels": torch.ones(8).long()}] * 48
            given = dict(max_steps=12, per_device_train_batch_size=4, report_to=[], save_strategy="no")
            trainer, holder = Keeping(model, TrainingArguments("out", **given), train_dataset=data), "self.total"
            with watch(model, on_finding=lambda _: None) as watching:
                trainer.train()
        """,
    }[kind]
    end = """
        print()
        print(json.dumps([watching.step, watching.failure, holder, short(watching.findings)]))
    """
    (steps, failure, holder, found), _, _ = run(textwrap.dedent(body) + textwrap.dedent(end), tmp_path)
    assert (steps, failure) == (12, "")
    [[code, name, _, _]] = found
    assert (code, name) == ("DF102" if kind == "lightning" else "DF101", holder)

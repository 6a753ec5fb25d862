"""Whole rehearsals with `--longest`: what is rehearsed, what it takes, and that nothing else of the program changes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dryfit
from dryfit.rehearse.result import Result

if TYPE_CHECKING:
    from conftest import Rehearse

CARD = "sm=80,sms=108,memory=40GiB"
MODEL = """
    import random, sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, IterableDataset

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(1000, 128)
            self.blocks = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 512), nn.Linear(512, 128))
            self.head = nn.Linear(128, 1000)

        def forward(self, ids):
            return self.head(self.blocks(self.embedding(ids)))

    def pad(rows):
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        return {"input_ids": nn.utils.rnn.pad_sequence(ids, batch_first=True)}

    def train(loader):
        torch.manual_seed(0), random.seed(0)
        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for batch in loader:
            ids = batch["input_ids"].cuda()
            nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            print("random", random.random(), torch.rand(1).item(), file=sys.stderr)
            print("shape", *ids.shape, file=sys.stderr)

    def rows(longest=500):
        chance = random.Random(1)
        found = [{"input_ids": [1] * chance.randint(20, 100)} for _ in range(300)]
        found[77]["input_ids"] = [1] * longest
        return found
"""
PADDED = """
    if __name__ == "__main__":
        data = rows() if sys.argv[1] == "differing" else [{"input_ids": [1] * 500}] * 300
        train(DataLoader(data, batch_size=8, shuffle=True, collate_fn=pad, num_workers=int(sys.argv[2])))
"""


def program(*parts: str) -> str:
    return "".join(textwrap.dedent(part) for part in parts)


def shapes(stderr: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, found.split())) for found in re.findall(r"^shape (.*)$", stderr, re.MULTILINE)]


def test_the_longest_is_rehearsed_and_takes_what_it_always_takes(rehearse: Rehearse) -> None:
    longest = rehearse(program(MODEL, PADDED), "differing", "0", options=("--longest",))
    assert longest.code == 0
    assert [shape[1] == 500 for shape in shapes(longest.stderr)] == [False, True, True, False, True, True]
    [batches] = longest.result["batches"]
    assert (batches["lengths"]["max"], batches["looked_at"], batches["steps"]) == (500, 300, [2, 3, 5, 6])
    assert batches["given"] == {"input_ids": [8, 500]}
    assert batches["longest_peak_bytes"] == longest.result["peak_allocated_bytes"]
    assert batches["ordinary_peak_bytes"] < batches["longest_peak_bytes"] / 2
    assert longest.result["ending"]["how"] == "steady"
    assert "in all 300 samples; the longest, input_ids 8 x 500, was rehearsed in steps 2, 3, 5 and 6:" in longest.stdout

    always = rehearse(program(MODEL, PADDED), "alike", "0", options=("--longest",))
    assert set(shapes(always.stderr)) == {(8, 500)}
    # Of what tensors ask for; blocks that shorter batches have left may be larger than that, by up to 1 MiB each.
    requested = [each.result["footprint"]["peak"]["requested_bytes"] for each in (longest, always)]
    assert requested[0] == requested[1]
    assert 0 <= longest.result["peak_allocated_bytes"] - always.result["peak_allocated_bytes"] < 0.05 * requested[0]
    assert "All 300 samples of list are alike in size, and so are its batches: --longest had nothing to do." in (
        always.stdout
    )


def test_the_program_draws_the_same_numbers_and_without_it_a_note_says_that_batches_differ(rehearse: Rehearse) -> None:
    options = ("--steps", "6")
    without = rehearse(program(MODEL, PADDED), "differing", "0", options=options)
    given = rehearse(program(MODEL, PADDED), "differing", "2", options=(*options, "--longest"))
    drawn = [re.findall(r"^random .*$", each.stderr, re.MULTILINE) for each in (without, given)]
    assert len(drawn[0]) == 6 and drawn[0] == drawn[1]
    assert shapes(given.stderr)[1] == (8, 500)
    assert without.result["batches"] == []
    assert re.search(r"of list differ in shape: of \d batches the smallest was input_ids 8 x \d+, the", without.stdout)
    assert "--longest rehearses the longest that the loader can give." in without.stdout
    assert given.result["peak_allocated_bytes"] > 2 * without.result["peak_allocated_bytes"]


def test_a_stream_ends_after_as_many_batches_as_it_has(rehearse: Rehearse) -> None:
    stream = """
        class Stream(IterableDataset):
            def __iter__(self):
                yield from rows()[:96]

        if __name__ == "__main__":
            train(DataLoader(Stream(), batch_size=8, collate_fn=pad))
    """
    done = rehearse(program(MODEL, stream), options=("--longest=max:20", "--steps", "all"))
    assert done.code == 0 and len(shapes(done.stderr)) == 12
    assert [shape[1] == 500 for shape in shapes(done.stderr)] == [False, True, True] * 3 + [True, True, True]
    assert (
        "in the first 12 batches; the longest, input_ids 8 x 500, was rehearsed in 9 steps from 2 to 12" in done.stdout
    )


def test_the_trainer_of_transformers_trains_and_evaluates_with_the_longest(rehearse: Rehearse) -> None:
    trainer = """
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

        def labelled(rows):
            ids = pad(rows)["input_ids"]
            return {"input_ids": ids, "labels": ids.clone()}

        config = GPT2Config(n_layer=2, n_embd=64, n_head=2, n_positions=512, vocab_size=1000)
        arguments = TrainingArguments(
            "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=1, report_to=[],
            eval_strategy="steps", eval_steps=3,
        )
        Trainer(
            GPT2LMHeadModel(config), arguments, train_dataset=rows(500), eval_dataset=rows(400)[:80],
            data_collator=labelled,
        ).train()
    """
    done = rehearse(program(MODEL, trainer), options=("--longest", "--quiet"))
    assert done.code == 0
    training, evaluation = done.result["batches"]
    assert (training["given"]["input_ids"], training["evaluates"]) == ([4, 500], False)
    assert (evaluation["given"]["input_ids"], evaluation["evaluates"]) == ([8, 400], True)
    assert training["steps"] == list(range(1, done.result["steps"] + 1))
    assert 0 < evaluation["longest_peak_bytes"] < training["longest_peak_bytes"] == done.result["peak_allocated_bytes"]
    assert "input_ids 8 x 400, was evaluated with in step" in done.stdout


def test_a_program_without_a_loader_is_told_so(rehearse: Rehearse) -> None:
    plain = """
        train([{"input_ids": torch.ones(4, 30, dtype=torch.long)}] * 6)
    """
    done = rehearse(program(MODEL, plain), options=("--longest",))
    assert done.result["batches"] == []
    assert "The program took no batch from a DataLoader of PyTorch's, so --longest had nothing to do." in done.stdout


def test_an_error_names_what_can_be_written(rehearse: Rehearse) -> None:
    done = rehearse("print('never run')", options=("--longest=p200",))
    assert done.code == 2 and "never run" not in done.stderr
    assert done.stderr == (
        "dryfit: --longest=p200 is no percentile: it is above 0 and at most 100; write nothing, or =max, =p99 (of 100 "
        "batches), =p99:500 or =max:500.\n"
    )


def test_a_search_looks_for_what_fits_with_the_longest(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    search = """
        if __name__ == "__main__":
            train(DataLoader(rows(), batch_size=int(sys.argv[1]), shuffle=True, collate_fn=pad))
    """
    Path("train.py").write_text(program(MODEL, search))

    def peaks(**options: Any) -> dict[int, int]:
        found = dryfit.fit(["train.py", "{batch}"], gpu=CARD, vary={"batch": "8,16"}, **options)
        assert not found.from_cache  # the other's are not of the same question
        return {trial.value: trial.peak_allocated_bytes for trial in found.answers[0].trials}

    with_longest, without = peaks(longest=True), peaks()
    assert with_longest.keys() == without.keys() == {8, 16}
    assert all(with_longest[value] > 2 * without[value] for value in without)


def test_a_saved_result_has_its_batches(rehearse: Rehearse, project: Path) -> None:
    result = dryfit.run(
        _written(project, program(MODEL, PADDED)), gpu=CARD, longest="p99:20", steps=3, quiet=True, figures_only=True
    )
    result.save(project / "result.json")
    assert Result.load(project / "result.json").batches == result.batches
    assert [(each.percentile, each.looked_at, each.of) for each in result.batches] == [(99.0, 20, "batches")]


def _written(folder: Path, text: str) -> list[str]:
    (folder / "train.py").write_text(text)
    return [str(folder / "train.py"), "differing", "0"]

"""Whole programs whose sizes depend on values: their figures are those of the sizes stated."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from tests.rehearse.conftest import Rehearse, Rehearsed

from dryfit.rehearse.inside.values import numbers

MIB = 1 << 20

MASKED = """
    import torch

    model = torch.nn.Linear(256, 1024, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(4096, 256, device="cuda")
        targets = torch.randint(1024, (4096,), device="cuda")
        mask = torch.randn(4096, 256, device="cuda")[:, 0] > 0
        kept = model(x)[mask]
        torch.nn.functional.cross_entropy(kept, targets[mask]).backward()
        optimizer.step()
        optimizer.zero_grad()
"""

SAMPLER = """
    import torch

    cell, head = torch.nn.GRUCell(64, 256).cuda(), torch.nn.Linear(256, 1000).cuda()
    embedding = torch.nn.Embedding(1000, 64).cuda()
    parameters = [*cell.parameters(), *head.parameters(), *embedding.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    scaler = torch.amp.GradScaler()
    for step in range(3):
        state = torch.zeros(8, 256, device="cuda")
        token = torch.ones(8, dtype=torch.int64, device="cuda")
        done = torch.zeros(8, dtype=torch.bool, device="cuda")
        scores = []
        while not done.all():
            state = cell(embedding(token), state)
            scores.append(head(state).log_softmax(-1))
            token = scores[-1].exp().multinomial(1).squeeze(1)
            done = done | (token == 2)
        loss = -torch.stack(scores).mean()
        if loss.isnan().any() or not torch.isfinite(loss):
            raise SystemExit("not a number")
        if loss.item() == 0:
            break
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    print("turns", len(scores), "steps", step + 1, "scale", scaler.get_scale())
"""

MATCHED = """
    import torch

    def linear_sum_assignment(cost):  # as scipy's, for it is not what is tested
        assert bool((cost == cost).all()), "costs that are not numbers have no assignment"
        return list(range(cost.shape[1])), list(range(cost.shape[1]))

    model = torch.nn.Linear(64, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        boxes = model(torch.randn(2, 5000, 64, device="cuda"))
        targets = [torch.rand(7, 4, device="cuda"), torch.rand(3, 4, device="cuda")]
        cost = torch.cdist(boxes.flatten(0, 1), torch.cat(targets), p=1).view(2, 5000, -1).cpu()
        loss = 0
        for each, (costs, wanted) in enumerate(zip(cost.split([7, 3], -1), targets)):
            rows, columns = linear_sum_assignment(costs[each])
            matched = boxes[each][torch.as_tensor(rows)]
            loss = loss + (matched - wanted[torch.as_tensor(columns, device="cuda")]).abs().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("matched", len(rows))
"""

DETECTOR = """
    import sys
    import torch, torchvision

    build = getattr(torchvision.models.detection, sys.argv[1])
    model = build(weights=None, weights_backbone=None, num_classes=5).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    boxes = torch.tensor([[10.0, 10, 100, 100], [50, 50, 200, 220]], device="cuda")
    target = {"boxes": boxes, "labels": torch.tensor([1, 2], device="cuda")}
    target["masks"] = torch.ones(2, 240, 320, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        sum(model([torch.rand(3, 240, 320, device="cuda")], [target]).values()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def sizes_of(done: Rehearsed) -> dict[str, list[str]]:
    """What was stated of each size, by what was asked."""
    found: dict[str, list[str]] = {}
    for unknown in done.result["unknowns"]:
        if unknown["kind"] == "value" and unknown["decides_size"]:
            found.setdefault(unknown["what"], []).append(unknown["answer"])
    return found


def test_a_masked_loss_takes_what_the_kept_rows_take(rehearse: Rehearse) -> None:
    runs = {share: rehearse(MASKED, options=("--assume", f"nonzero={share}")) for share in (0.75, 0.875)}
    runs[1] = rehearse(MASKED)
    peaks = {share: done.result["peak_allocated_bytes"] for share, done in runs.items()}
    # Four tensors of the kept rows at the peak, in the backward pass: their logits, which `kept` holds, what the loss
    # saved of them, its gradient and theirs. All rows have 4096 x 1024 x 4 bytes.
    eighth = 4 * 4096 * 1024 * 4 // 8
    assert peaks[1] - peaks[0.875] == pytest.approx(eighth, rel=0.01)
    assert peaks[0.875] - peaks[0.75] == pytest.approx(eighth, rel=0.01)
    assert sizes_of(runs[0.75])["nonzero"][0] == "3,072 of 4,096 elements are kept (--assume nonzero=0.75)"
    assert "all 4,096 elements are kept, the most there can be" in sizes_of(runs[1])["nonzero"]
    listed = (
        "nonzero at train.py:10 (3 times): all 4,096 elements are kept, the most there can be; can change the bytes; "
        "set it with --assume train.py:10=0.5: kept = model(x)[mask]"
    )
    assert listed in runs[1].stdout


def test_a_place_that_was_never_asked_is_a_note(rehearse: Rehearse) -> None:
    done = rehearse(MASKED, options=("--assume", "train.py:3=0.5,train.py:11=worst"))
    assert done.code == 0
    assert [note for note in done.result["notes"] if note.startswith("--assume")] == [
        "--assume train.py:3=0.5 changed nothing: no unknown value was asked for at that line. Where some were, is "
        "listed among what is not known.",
        "--assume train.py:11=worst changed nothing: nonzero is asked there, which takes a share from 0 to 1.",
    ]


def test_a_sampler_that_waits_for_the_end_of_its_texts_ends(rehearse: Rehearse) -> None:
    runs = {turns: rehearse(SAMPLER, options=("--assume", f"turns={turns}")) for turns in (128, 256, 384)}
    for turns, done in runs.items():
        assert f"turns {turns} steps 3 scale 65536.0" in done.stderr
        assert sizes_of(done) == {"the end of a loop": [f"True after {turns} turns (--assume turns={turns})"]}
    peaks = [done.result["peak_allocated_bytes"] for done in runs.values()]
    # What a turn saves is the same in each. A thousand scores of 8 texts are saved, and have a gradient, at least.
    assert peaks[2] - peaks[1] == pytest.approx(peaks[1] - peaks[0], rel=0.02)
    assert peaks[1] - peaks[0] > 128 * 2 * 8 * 1000 * 4


def test_detr_matches_on_the_host(rehearse: Rehearse) -> None:
    done = rehearse(MATCHED)
    assert "matched 3" in done.stderr
    assert sizes_of(done) == {}
    copy = next(each for each in done.result["unknowns"] if each["what"].startswith("copy of float32[2, 5000, 10]"))
    assert (copy["answer"], copy["source"][:6]) == ("1.0", "cost =")


@pytest.mark.stacks
def test_a_detector_keeps_as_many_proposals_as_its_own_limits_allow(rehearse: Rehearse) -> None:
    done = rehearse(DETECTOR, "fasterrcnn_resnet50_fpn")
    stated = sizes_of(done)
    # Of an image of 800 x 1066, 2,000 anchors of each of the first four levels, and all of the fifth: 3 x 13 x 17.
    assert stated["nms"] == ["all 8,663 boxes are kept, the most there can be"]
    # At most 512 of those kept are trained on: a quarter of 2,000 drawn as positive and the rest as negative may be the
    # same. The features of 512 are 25 MiB; a detector that kept all 8,663 would take 16 times as much.
    rows = [int(of.replace(",", "")) for of in re.findall(r"all ([\d,]+) elements", " ".join(stated["nonzero"]))]
    assert any(384 <= each <= 512 for each in rows)
    assert 1024 * MIB < done.result["peak_allocated_bytes"] < 4096 * MIB


@pytest.mark.stacks
def test_what_the_list_says_to_write_does_what_it_says(rehearse: Rehearse) -> None:
    """The masks of a quarter of the boxes, of which torchvision draws no more as positive."""

    def heads(done: Rehearsed) -> Any:
        return next(each for each in done.result["unknowns"] if "roi_heads.py" in (each["through"] or ""))

    every = rehearse(DETECTOR, "maskrcnn_resnet50_fpn")
    asked = heads(every)
    assert asked["to_change"].startswith("--assume roi_heads.py:")
    place = asked["to_change"].removeprefix("--assume ").partition("=")[0]
    quarter = rehearse(DETECTOR, "maskrcnn_resnet50_fpn", options=("--assume", f"{place}=0.25"))
    assert f"(--assume {place}=0.25)" in heads(quarter)["answer"]
    assert quarter.result["peak_allocated_bytes"] < every.result["peak_allocated_bytes"]


@pytest.mark.parametrize(
    ("dtype", "value", "answer"), [(torch.uint8, 300, 255), (torch.int8, -200, -128), (torch.int64, 3.0, 3)]
)
def test_an_assumed_number_is_one_of_its_type(dtype: torch.dtype, value: float, answer: int) -> None:
    assert numbers._as(dtype, value) == answer

"""A recording under other orders of addresses: to the byte what a rehearsal in that order takes."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.errors import DryfitError
from dryfit.recording.model import Recording
from dryfit.rehearse import address_orders, ties
from dryfit.rehearse.address_orders import Played, doubt, with_address_orders
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.launch import rehearse
from dryfit.rehearse.result import Ending, OrderPeaks, OutOfMemory, Result
from dryfit.rehearse.retrace import AllocatorProcess, allocator_process
from dryfit.rehearse.total import TAKEN, Part
from dryfit.report.text import print_result, verdict_line
from dryfit.virtual_card import installed_torch
from dryfit.virtual_card.settings import ADDRESS_ORDERS, settings_of

from ..results import PLAIN_RESULT

MIB, GIB = 1 << 20, 1 << 30
EXAMPLES, PROGRAMS = Path(__file__).parents[2] / "examples", Path(__file__).parent / "programs"
CARD = "sm=86,sms=28,memory=12622168064"

CONVOLUTIONS = """
    import torch, torchvision
    model = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        model(torch.randn(8, 3, 96, 96).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
STREAMS = """
    import torch
    side = torch.cuda.Stream()
    weight = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(weight.parameters())
    for step in range(4):
        made = [torch.empty(3 + step * n << 20, dtype=torch.uint8, device="cuda") for n in range(1, 6)]
        with torch.cuda.stream(side):
            other = [torch.empty(5 * n << 20, dtype=torch.uint8, device="cuda") for n in range(1, 4)]
            for tensor in made:
                tensor.record_stream(side)
        del made
        weight(torch.randn(4096, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        del other
"""
CAUGHT = """
    import torch
    weight = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(weight.parameters())
    for step in range(3):
        held = [torch.empty(600 << 20, dtype=torch.uint8, device="cuda") for _ in range(12)]
        try:
            held.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            del held
        weight(torch.randn(4096, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
RETRIED = """
    import torch
    weight = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(weight.parameters())
    for step in range(3):
        for mebibytes in (700, 900, 1100, 1300, 1500, 1700, 1900, 2100, 2300):
            torch.empty(mebibytes << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache() if step == 1 else None
        weight(torch.randn(4096, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
UNCAUGHT = """
    import torch
    held = [torch.empty(n * 100 << 20, dtype=torch.uint8, device="cuda") for n in range(1, 100)]
"""
CASES = {
    "gpt2": [str(EXAMPLES / "gpt2.py"), "--batch", "2", "--length", "256"],
    "language": [str(PROGRAMS / "of_language.py"), "distilgpt2", "15", "--steps", "3"],
    "convolutions": CONVOLUTIONS,
    "streams": STREAMS,
    "expandable": [str(EXAMPLES / "gpt2.py"), "--batch", "2", "--length", "256"],
    "caught": CAUGHT,
    "retried": RETRIED,
    "uncaught": UNCAUGHT,
}


@pytest.fixture(scope="module")
def process() -> Iterator[AllocatorProcess]:
    with allocator_process() as started:
        yield started


@pytest.mark.parametrize("case", CASES)
def test_played_again_it_is_the_rehearsal_to_the_byte_in_its_own_order_and_in_another(
    case: str, process: AllocatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "expandable":
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    program = CASES[case]
    if isinstance(program, str):
        (tmp_path / "train.py").write_text(textwrap.dedent(program))
        program = [str(tmp_path / "train.py")]
    found: dict[str, Result] = {
        order: rehearse(program, gpu=CARD, steps=3, quiet=True, address_order=order) for order in ("linux", "up")
    }
    assert {result.ending.how for result in found.values()} <= {"finished", "steps", "out of memory"}
    for order, result in found.items():
        assert result.recording is not None
        card = find_card(CARD)
        settings = settings_of(card, address_order=order)
        played = address_orders.play_recording(process, result.recording, result, card, settings)
        assert played.why_not == ""
        assert set(played.orders) == set(ADDRESS_ORDERS)
        for other, of_other in found.items():
            assert played.orders[other] == OrderPeaks(
                peak_allocated_bytes=of_other.peak_allocated_bytes, peak_reserved_bytes=of_other.peak_reserved_bytes
            )
        if not ties.go_by_address(installed_torch().version):
            assert len(set(played.orders.values())) == 1
            assert result.peaks_by_address_order == {}

"""Running out of memory is PyTorch's own error, at the card's real limit, and a program may catch it."""

from __future__ import annotations

import re
from typing import Any

GROWS = """
    import torch
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = 1024
    while True:
        model(torch.randn(batch, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        batch *= 4
"""


def test_an_uncaught_error_does_not_fit(rehearse: Any) -> None:
    done = rehearse(GROWS, gpu="sm=80,sms=108,memory=2GiB", options=("--steps", "all"))
    assert done.code == 1
    assert done.result["verdict"] == "does not fit"
    oom = done.result["out_of_memory"]
    assert (oom["step"], oom["phase"], oom["caught"], oom["count"]) == (5, "forward", False, 1)
    assert oom["requested_bytes"] == 1 << 30
    assert re.match(
        r"CUDA out of memory\. Tried to allocate 1024\.00 MiB\. GPU 0 has a total capacity of 2\.00 GiB", oom["message"]
    )
    assert done.result["ending"]["how"] == "out of memory"
    assert done.result["ending"]["sentence"].startswith("train.py ran out of memory (")
    assert done.result["peak_reserved_bytes"] <= done.result["usable_bytes"]


def test_the_verdict_line_says_where_and_how_much(rehearse: Any) -> None:
    done = rehearse(GROWS, gpu="sm=80,sms=108,memory=2GiB", json_output=False)
    first = done.stdout.splitlines()[0]
    assert re.search(
        r"^DOES NOT FIT on .*: out of memory in step 5, forward: 1\.00 GiB asked for, [\d.]+ MiB free$", first
    )
    assert "PyTorch's own error: CUDA out of memory." in done.stdout


def test_a_program_that_halves_its_batch_works_as_on_a_real_card(rehearse: Any, examples: Any) -> None:
    done = rehearse(examples / "halve_on_oom.py", gpu="sm=80,sms=108,memory=4GiB", options=("--steps", "all"))
    assert done.code == 0, done.stderr
    batches = [int(found) for found in re.findall(r"trying batch (\d+)", done.stderr)]
    assert batches == [65536, 32768, 16384][: len(batches)]
    assert f"batch {batches[-1]} fits" in done.stderr
    assert done.result["verdict"] == "fits"
    assert done.result["out_of_memory"]["caught"] is True
    assert done.result["out_of_memory"]["count"] == len(batches)
    assert "out-of-memory errors and caught them" in " ".join(done.result["notes"])


def test_a_program_that_gives_up_in_its_own_words_does_not_fit(rehearse: Any) -> None:
    program = """
        import sys, torch
        try:
            torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
        except RuntimeError as error:
            print("giving up")
            sys.exit(1)
    """
    done = rehearse(program)
    assert done.code == 1
    assert (
        done.result["ending"]["sentence"] == "train.py ended with status 1 after an out-of-memory error in the setup."
    )


def test_within_the_margin_it_is_too_close_to_call(rehearse: Any) -> None:
    program = """
        import torch
        free, total = torch.cuda.mem_get_info()
        torch.empty(free - (20 << 20), dtype=torch.uint8, device="cuda")
    """
    done = rehearse(program, gpu="rtx-4090")
    assert done.code == 3
    assert done.result["verdict"] == "unknown"
    text = rehearse(program, gpu="rtx-4090", json_output=False).stdout
    assert text.startswith("TOO CLOSE TO CALL on NVIDIA GeForce RTX 4090: needs ")

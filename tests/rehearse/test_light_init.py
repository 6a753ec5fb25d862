"""Big initial weights on the host stay zeros: nothing else that a program can see changes, and no byte on the card."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dryfit.rehearse.launch import rehearse as rehearse_here

EXAMPLES = Path(__file__).parents[2] / "examples"

# After each way to fill a weight: the states of the generators, whether there is a number other than 0 in it, and
# whether there should be one.
EVERY_WAY = """
    import hashlib
    import torch
    from torch import nn

    own = torch.Generator().manual_seed(3)
    torch.manual_seed(7)

    def say(way, tensor, expected):
        states = b"".join(bytes(g.get_state().tolist()) for g in (torch.default_generator, own))
        found = "drawn" if tensor.count_nonzero() else "zeros"
        print(way, "|", hashlib.sha256(states).hexdigest(), "|", found, "|", expected, flush=True)

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for rest in (0, 5):
            weight = nn.Parameter(torch.empty((2 << 20) // dtype.itemsize + rest, dtype=dtype))
            for way, expected, fill in (
                ("nothing", "drawn", lambda: weight),
                ("normal", "zeros", lambda: nn.init.normal_(weight, std=0.02)),
                ("normal around one", "drawn", lambda: nn.init.normal_(weight, 1.0, 0.02)),
                ("uniform", "zeros", lambda: nn.init.uniform_(weight, -1, 1)),
                ("uniform above zero", "drawn", lambda: nn.init.uniform_(weight, 0.5, 1.0)),
                (".data", "zeros", lambda: weight.data.normal_(0, 0.1)),
                ("a generator", "zeros", lambda: weight.data.uniform_(-0.1, to=2, generator=own)),
                ("a keyword", "zeros", lambda: weight.data.uniform_(**{"from": -1})),
                ("part of it", "drawn", lambda: weight.data[:1000].normal_()),
            ):
                weight.data.fill_(3.0)
                fill()
                say(f"{dtype} and {rest}: {way}", weight, expected)
    square = nn.Parameter(torch.empty(1024, 1024))
    first, second, third = (nn.Parameter(torch.empty(1 << 20)) for _ in range(3))
    image = nn.Conv2d(256, 256, 3).to(memory_format=torch.channels_last)
    attention = nn.MultiheadAttention(1024, 8)
    for way, expected, tensor in (
        ("linear", "zeros", nn.Linear(1024, 1024).weight),
        ("a small linear", "drawn", nn.Linear(256, 256).weight),
        ("a bias", "drawn", nn.Linear(1024, 1024).bias),
        ("an embedding", "zeros", nn.Embedding(50000, 64, padding_idx=0).weight),
        ("attention", "zeros", attention.in_proj_weight),
        ("truncated", "zeros", nn.init.trunc_normal_(first, std=0.02)),
        ("truncated where numbers are", "drawn", nn.init.trunc_normal_(second)),
        ("truncated around one", "drawn", nn.init.trunc_normal_(third, 1.0, 0.02)),
        ("orthogonal", "drawn", nn.init.orthogonal_(square)),
        ("channels last", "drawn", nn.init.kaiming_normal_(image.weight)),
        ("a buffer", "drawn", nn.init.normal_(torch.empty(1 << 20))),
        ("data", "drawn", torch.empty(1 << 20).normal_()),
        ("shared memory", "drawn", nn.init.normal_(nn.Parameter(torch.empty(1 << 20)).share_memory_())),
    ):
        say(way, tensor, expected)
    del square, image, attention, tensor
    for _ in range(3):
        say("where a weight was", torch.empty(1 << 20).normal_(), "drawn")
    for wrong in (
        lambda: first.normal_(),
        lambda: nn.init.normal_(first, std=-1.0),
        lambda: first.data.uniform_(1, -1),
        lambda: first.data.normal_(generator=torch.Generator("cuda")),
        lambda: nn.init.trunc_normal_(first, none_such=1),
    ):
        try:
            wrong()
        except (RuntimeError, TypeError) as error:
            print(type(error).__name__, error)
    print("next:", torch.rand(1).item(), torch.randperm(5).tolist())
    torch.ones(1, device="cuda")
"""


def test_nothing_but_the_zeros_is_seen(rehearse: Any) -> None:
    light = rehearse(EVERY_WAY).stderr.splitlines()
    exact = rehearse(EVERY_WAY, options=("--exact-weights",)).stderr.splitlines()
    filled = [line.split(" | ") for line in light if " | " in line]
    assert len(filled) == 88
    assert [way for way, _, found, expected in filled if found != expected] == []
    assert all(line.split(" | ")[2] == "drawn" for line in exact if " | " in line)
    assert [line.replace(" | zeros | ", " | drawn | ") for line in light] == exact
    assert sum("Error" in line for line in light) == 5


def test_big_weights_take_no_memory_of_this_machine(rehearse: Any) -> None:
    program = """
        import resource
        import torch

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        model = torch.nn.Linear(20_000, 10_000)  # 763 MiB
        print("MiB:", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        model.cuda()
    """
    done = rehearse(program)
    assert int(done.stderr.split("MiB:")[1].split()[0]) < 100
    assert done.result["peak_allocated_bytes"] >= 800_000_000


@pytest.mark.parametrize(
    ("example", "needs"), [("gpt2.py", "torch"), ("resnet152.py", "torchvision"), ("hf_trainer.py", "transformers")]
)
def test_no_byte_on_the_card_changes(example: str, needs: str) -> None:
    pytest.importorskip(needs)

    def figures(*, exact_weights: bool) -> tuple[object, ...]:
        program = [str(EXAMPLES / example)]
        result = rehearse_here(
            program, gpu="a100-80gb", quiet=True, steps=3, figures_only=True, exact_weights=exact_weights
        )
        assert result.steps == 3
        return result.peak_allocated_bytes, result.peak_reserved_bytes, result.phase_peaks

    with ThreadPoolExecutor(2) as threads:
        light, exact = threads.map(lambda exact: figures(exact_weights=exact), (False, True))
    assert light == exact


def test_timm_draws_no_weights_either(rehearse: Any) -> None:
    pytest.importorskip("timm")
    program = """
        import torch
        from timm.layers import trunc_normal_, trunc_normal_tf_

        weight, data = torch.nn.Parameter(torch.empty(1024, 1024)), torch.empty(1024, 1024)
        for fill in (trunc_normal_, trunc_normal_tf_):
            for tensor in (weight, data):
                torch.manual_seed(0)
                tensor.data.fill_(1)
                fill(tensor)
                print(fill.__name__, "drawn" if tensor.count_nonzero() else "zeros", torch.rand(1).item())
        torch.ones(1, device="cuda")
    """
    said = [line.split() for line in rehearse(program).stderr.splitlines() if line.startswith("trunc")]
    assert [words[:2] for words in said] == [
        [name, what] for name in ("trunc_normal_", "trunc_normal_tf_") for what in ("zeros", "drawn")
    ]
    assert len({words[2] for words in said}) == 1

"""One layer or loss, forward and backward ten times, as a library of fused kernels measures what it would replace.

    python kernel_step.py cross-entropy --rows 16384 --width 4096

Gradients of the leaves stay from call to call; but for `cross-entropy` and `linear-cross-entropy`, backward keeps the
graph (`retain_graph=True`). A second head or norm lies beside the first: the measuring program made one for each of the
two libraries that it compares.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Call = Callable[[], None]


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(dtype)


class GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


def cross_entropy(rows: int, width: int) -> Call:
    logits = torch.randn(rows, width, requires_grad=True, device="cuda")
    target = torch.randint(width, (rows,), device="cuda")
    loss = nn.CrossEntropyLoss()
    return lambda: loss(logits, target).backward()


def linear_cross_entropy(rows: int, width: int) -> Call:
    head, other = (nn.Linear(4096, width, bias=False, dtype=torch.bfloat16).to("cuda") for _ in range(2))
    x = torch.randn(rows, 4096, requires_grad=True, dtype=torch.bfloat16, device="cuda")
    target = torch.randint(width, (rows,), device="cuda")
    loss = nn.CrossEntropyLoss()

    def call(_made_for_the_other_library: nn.Module = other) -> None:
        loss(head(x), target).backward()

    return call


def kl_div(rows: int, width: int) -> Call:
    logarithms = torch.randn(rows, width, requires_grad=True, device="cuda").log_softmax(-1)
    target = torch.randn(rows, width, device="cuda").softmax(-1)
    loss = nn.KLDivLoss(reduction="batchmean")

    def call() -> None:
        y = loss(logarithms, target)
        y.backward(retain_graph=True)

    return call


def norm(kind: Callable[[int], nn.Module], rows: int, width: int, dtype: torch.dtype) -> Call:
    layer, other = (kind(width).to("cuda") for _ in range(2))
    x = torch.randn(rows, width, dtype=dtype, device="cuda")
    gradient = torch.randn_like(x)
    x.requires_grad_(True)

    def call(_made_for_the_other_library: nn.Module = other) -> None:
        y = layer(x)
        y.backward(gradient, retain_graph=True)

    return call


def gated(activation: Callable[[Tensor], Tensor], batch: int, length: int) -> Call:
    x = torch.randn(batch, length, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    layer = GatedMLP(4096, 11_008, activation).to("cuda").to(torch.bfloat16)

    def call() -> None:
        y = layer(x)
        y.backward(torch.randn_like(y), retain_graph=True)

    return call


KERNELS: dict[str, Callable[[int, int], Call]] = {
    "cross-entropy": cross_entropy,
    "linear-cross-entropy": linear_cross_entropy,
    "kl-div": kl_div,
    "rms-norm": lambda rows, width: norm(RMSNorm, rows, width, torch.bfloat16),
    "layer-norm": lambda rows, width: norm(nn.LayerNorm, rows, width, torch.float32),
    "geglu": lambda batch, length: gated(nn.GELU("tanh"), batch, length),
    "swiglu": lambda batch, length: gated(F.silu, batch, length),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kernel", choices=KERNELS)
    parser.add_argument("--rows", type=int, required=True, help="of geglu and swiglu: sequences")
    parser.add_argument("--width", type=int, required=True, help="of geglu and swiglu: their length")
    arguments = parser.parse_args()
    call = KERNELS[arguments.kernel](arguments.rows, arguments.width)
    for _ in range(10):
        call()


if __name__ == "__main__":
    main()

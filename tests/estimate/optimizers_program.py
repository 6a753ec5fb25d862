"""One rehearsed program with every optimizer: each trains alone and prints which it is.

The tensors are below 1 MiB each, so that the allocator has no remainders; two dtypes lie side by side in some models.
All take one step, but for two optimizers side by side: their second is the first with the whole state.
"""

from __future__ import annotations

import bitsandbytes
import torch
from torch import nn
from torch.optim import SGD, Adafactor, Adagrad, Adam, AdamW, Muon, Optimizer, RMSprop

SHAPES = [(100, 333), (333,), (65, 127), (5000,), (30, 70, 3, 3), (12,), (333, 100), (400, 300)]
AUTOCAST_SHAPES = [(100, 64), (100,), (100,), (100,), (72, 100)]


class Model(nn.Module):
    def __init__(self, *dtypes: torch.dtype) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.zeros(shape, device="cuda", dtype=dtype)) for dtype in dtypes for shape in SHAPES
        )

    def forward(self) -> torch.Tensor:
        return sum((weight.float().sum() for weight in self.weights), start=torch.zeros((), device="cuda"))


class Lion(Optimizer):
    """As its authors give it in PyTorch, without the decay."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1e-4})

    @torch.no_grad()
    def step(self):
        for weight in self.param_groups[0]["params"]:
            state = self.state[weight]
            if not state:
                state["exp_avg"] = torch.zeros_like(weight)
            self.update(weight, state["exp_avg"])

    def update(self, weight, exp_avg):
        update = exp_avg.clone().mul_(0.9).add(weight.grad, alpha=0.1).sign_()
        weight.add_(update, alpha=-1e-4)
        exp_avg.mul_(0.99).add_(weight.grad, alpha=0.01)


class Masters:
    """An AdamW on a float32 copy of 16-bit parameters."""

    def __init__(self, params):
        self.params = list(params)
        self.masters = [weight.detach().float() for weight in self.params]
        self.inner = AdamW(self.masters, foreach=True)

    def step(self):
        for master, weight in zip(self.masters, self.params, strict=True):
            master.grad = weight.grad.float()
        self.inner.step()
        for master, weight in zip(self.masters, self.params, strict=True):
            master.grad = None
            weight.data.copy_(master)


class MuonAndAdamW:
    def __init__(self, params):
        params = list(params)
        self.inner = [Muon([p for p in params if p.ndim == 2]), AdamW([p for p in params if p.ndim != 2])]

    def step(self):
        for optimizer in self.inner:
            optimizer.step()


LOOP, FOREACH, FUSED = {"foreach": False}, {"foreach": True}, {"fused": True}
WAYS = {"foreach": FOREACH, "for-loop": LOOP, "fused": FUSED}
OPTIMIZERS = {
    **{f"momentum {name}": lambda p, way=way: SGD(p, momentum=0.9, **way) for name, way in WAYS.items()},
    **{f"adamw {name}": lambda p, way=way: AdamW(p, **way) for name, way in WAYS.items()},
    **{f"adagrad {name}": lambda p, way=way: Adagrad(p, **way) for name, way in WAYS.items()},
    "adafactor foreach": lambda p: Adafactor(p, **FOREACH),
    "rmsprop for-loop": lambda p: RMSprop(p, **LOOP),
    "sgd": SGD,
    "momentum": lambda p: SGD(p, momentum=0.9),
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adafactor": Adafactor,
    "adamw-fused": lambda p: AdamW(p, fused=True),
    "muon": MuonAndAdamW,
    "lion": Lion,
    "adam-8bit": bitsandbytes.optim.Adam8bit,
    "adamw-8bit": bitsandbytes.optim.AdamW8bit,
    "adamw-32bit": bitsandbytes.optim.AdamW,
    "lion-8bit": bitsandbytes.optim.Lion8bit,
    "paged-adamw-8bit": bitsandbytes.optim.PagedAdamW8bit,
    "paged-adamw-32bit": bitsandbytes.optim.PagedAdamW,
    "paged-lion-8bit": bitsandbytes.optim.PagedLion8bit,
}
IN_16_BITS = ("adamw", "adafactor", "muon", "lion", "adamw-8bit", "adamw-32bit")
IN_BOTH = ("adamw", "adamw for-loop", "adagrad", "rmsprop", "adafactor", "adafactor foreach", "muon")


def train(name: str, model: Model, make) -> None:
    optimizer = make(model.parameters())
    for _ in range(2 if isinstance(optimizer, MuonAndAdamW) else 1):
        model().backward()
        optimizer.step()
        model.zero_grad()
        print(f"TRAINED {name}", flush=True)


def autocast() -> None:
    """A step of a small network under autocast, for the copies of its weights."""
    net = nn.Sequential(nn.Linear(64, 100), nn.LayerNorm(100), nn.Linear(100, 72, bias=False)).cuda()
    optimizer = SGD(net.parameters())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(torch.zeros(8, 64, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    print("TRAINED autocast", flush=True)


MODELS = {
    "float32": (Model(torch.float32), OPTIMIZERS),
    "bfloat16": (Model(torch.bfloat16), IN_16_BITS),
    "both": (Model(torch.bfloat16, torch.float32), IN_BOTH),
}
for dtype, (model, names) in MODELS.items():
    for name in names:
        train(f"{dtype} {name}", model, OPTIMIZERS[name])
train("bfloat16 master weights", MODELS["bfloat16"][0], Masters)
autocast()

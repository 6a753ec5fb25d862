"""torch.compile, and a Triton kernel of the program's own."""

import torch
import torch._dynamo
import triton
import triton.language as tl
from torch._inductor.codecache import PyCodeCache

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
compiled, optimizer = torch.compile(model), torch.optim.AdamW(model.parameters())
for _ in range(3):
    compiled(torch.randn(512, 256, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@triton.jit
def copy(source, target, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, at < count), at < count)


source, target = torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")
copy[(1,)](source, target, 16, BLOCK=16)
found = {
    "frames": dict(torch._dynamo.utils.counters["frames"]),
    "modules_made_by_inductor": len(PyCodeCache.modules),
    "source": source.tolist()[0],
    "target": target.tolist()[0],  # line of target
}

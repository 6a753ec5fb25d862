"""Expert parallel: each rank has some of the experts. `dryfit run --world 4 examples/distributed/expert_parallel.py`.

Every expert chooses as many tokens of each rank, so the parts that ranks exchange are even.
"""

import os

import torch
from torch import distributed, nn
from torch.distributed.nn.functional import all_to_all_single

WIDTH, EXPERTS, TOKENS, BLOCKS = 512, 8, 2048, 2

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")


def exchanged(parts: torch.Tensor) -> torch.Tensor:
    return all_to_all_single(torch.empty_like(parts), parts)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(EXPERTS // distributed.get_world_size())
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(hidden).softmax(-1).topk(TOKENS // EXPERTS, dim=0)  # of each expert, its tokens
        sent = hidden[chosen.T.flatten()]
        # Here by expert and token; there by rank, expert of that rank, and token.
        came = exchanged(sent).view(distributed.get_world_size(), len(self.experts), -1, WIDTH)
        done = torch.stack([expert(came[:, at]) for at, expert in enumerate(self.experts)], dim=1)
        back = exchanged(done.view_as(sent)) * weights.T.flatten().unsqueeze(1)
        return hidden.index_add(0, chosen.T.flatten(), back)


model = nn.Sequential(*[Experts() for _ in range(BLOCKS)]).cuda()
print("the model takes", sum(each.nbytes for each in model.parameters()), "bytes")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(TOKENS, WIDTH, device="cuda")).square().mean().backward()
    for block in model:  # the experts have seen the tokens of all ranks
        distributed.all_reduce(block.router.weight.grad, distributed.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

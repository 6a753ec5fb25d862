"""Ends in one of the ways in which processes have died of "terminate called without an active exception"."""

import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

kind = sys.argv[1]
if __name__ == "__main__":
    if kind == "backward":
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(50)]).cuda()
        for _ in range(20):
            model(torch.randn(4, 64, device="cuda")).sum().backward()
    if kind == "loader":  # left in the middle, with workers and the thread that pins alive
        data = TensorDataset(torch.randn(40960, 8), torch.randint(2, (40960,)))
        model = torch.nn.Linear(8, 2).cuda()
        batches = iter(DataLoader(data, 16, num_workers=2, pin_memory=True, persistent_workers=True))
        for _ in range(20):
            x, y = next(batches)
            assert x.is_pinned()
            torch.nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda()).backward()
    if kind == "nccl":
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
        for _ in range(5):
            model(torch.randn(4, 64, device="cuda")).sum().backward()
    if kind == "spawn":
        torch.ones(1, device="cuda")
        context = torch.multiprocessing.get_context("spawn")
        child = context.Process(target=torch.ones, args=(1,), kwargs={"device": "cuda"})
        child.start()
        child.join()
        assert child.exitcode == 0, child.exitcode
    if kind == "fork":
        torch.ones(1, device="cuda")
        child = os.fork()
        if not child:
            try:
                torch.ones(1, device="cuda")
            except RuntimeError as error:
                os._exit(7 if "re-initialize CUDA in forked subprocess" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

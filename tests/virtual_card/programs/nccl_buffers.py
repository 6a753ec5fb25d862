"""What NCCL takes of the card, and when: one rank alone of a world of as many as the first word says."""

import ctypes
import json
import sys

import torch
import torch.distributed as dist

from dryfit.virtual_card import calls

world = int(sys.argv[1])
torch.cuda.set_device(0)
payload = torch.zeros(world, 1, device="cuda")


def free() -> int:
    return torch.cuda.mem_get_info()[0]


def nccl() -> list[int]:
    (use,) = calls.devices_in_use()
    return [use.nccl_low_bytes, use.nccl_expected_bytes, use.nccl_high_bytes]


said = {"before": free(), "used_before": calls.used_bytes()}
if "full" in sys.argv:  # all but 50 MiB are PyTorch's
    held = torch.empty(free() - (50 << 20), dtype=torch.uint8, device="cuda")
dist.init_process_group(
    "nccl", store=dist.HashStore(), rank=0, world_size=world, device_id=torch.device("cuda:0")
)  # with a device the communicator is made at once
said["made"] = free()
for _ in range(2):
    dist.all_reduce(payload)
said["reduced"], said["range_reduced"] = free(), nccl()
dist.all_to_all_single(torch.empty_like(payload), payload)
said["exchanged"] = free()
said["range_exchanged"] = [after - before for after, before in zip(nccl(), said["range_reduced"], strict=True)]
dist.all_reduce(payload, group=dist.new_group(list(range(world))))
said["second"] = free()
said["used"] = calls.used_bytes()
info, handle = (ctypes.c_ulonglong * 3)(), ctypes.c_void_p()
nvml = ctypes.CDLL(None)
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
nvml.nvmlDeviceGetMemoryInfo(handle, info)
said["nvidia-smi"] = info[2]
said["communicators"] = [(each.ranks, each.nodes, each.collectives, each.local_peers, each.remote_peers)
                         for each in calls.communicators()]  # fmt: skip
said["range"] = nccl()
said["unfaithful"] = calls.unfaithful_calls()
print(json.dumps(said))

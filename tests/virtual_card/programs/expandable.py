"""Grows and shrinks an expandable segment, to the card's end."""

import json

import torch

from dryfit.virtual_card import calls

MIB, GIB = 1 << 20, 1 << 30


def mapped() -> int:
    return sum(segment["total_size"] for segment in torch.cuda.memory_snapshot())


said = {}
first = torch.empty(12 * MIB, dtype=torch.uint8, device="cuda")
second = torch.empty(120 * MIB, dtype=torch.uint8, device="cuda")
said["grown"] = [mapped(), calls.used_bytes(), torch.cuda.mem_get_info()[0]]
said["segments"] = [(s["is_expandable"], s["device"]) for s in torch.cuda.memory_snapshot()]
second[:8] = 0
value = torch.tensor([11, 22, 33], device="cuda")
said["value"] = value.tolist()
del second
torch.cuda.empty_cache()
said["shrunk"] = [mapped(), calls.used_bytes(), torch.cuda.mem_get_info()[0]]
try:
    torch.empty(9 * GIB, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    said["message"] = str(error)
said["fits"] = torch.empty(7 * GIB, dtype=torch.uint8, device="cuda").numel()
said["device_of_mapped"] = first.device.index
print(json.dumps(said))

"""Allocates up to the card's end and beyond, and says what torch saw."""

import json

import torch

from dryfit.virtual_card import calls

MIB, GIB = 1 << 20, 1 << 30
said = {"at_start": torch.cuda.mem_get_info()}

small = torch.empty(1, device="cuda")
said["after_a_small_tensor"] = torch.cuda.mem_get_info()
said["driver_used"] = calls.used_bytes()
odd = torch.empty(21 * MIB + 1, dtype=torch.uint8, device="cuda")
said["after_an_odd_tensor"] = torch.cuda.mem_get_info()
said["reserved"] = torch.cuda.memory_reserved()

del small, odd
torch.cuda.empty_cache()
said["after_empty_cache"] = torch.cuda.mem_get_info()
said["driver_peak"] = calls.peak_used_bytes()
calls.reset_peak_used()
said["driver_peak_after_reset"] = calls.peak_used_bytes()

blocks = []
try:
    while True:
        blocks.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    said["full_after"] = len(blocks)
    said["message"] = str(error)
    said["free_when_full"] = torch.cuda.mem_get_info()[0]
del blocks
torch.cuda.empty_cache()
said["fits_again"] = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda").numel()
torch.cuda.empty_cache()

torch.cuda.set_per_process_memory_fraction(0.25)
try:
    torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    said["fraction_message"] = str(error)
said["ooms"] = torch.cuda.memory_stats()["num_ooms"]
print(json.dumps(said))

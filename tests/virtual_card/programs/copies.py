"""Sends values to the card and reads them back; runs small things on the way."""

import ctypes
import json
import resource

import torch

from dryfit.virtual_card import calls

MIB = 1 << 20


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


torch.cuda.init()
said = {}
values = torch.arange(MIB // 4, dtype=torch.int32)
said["mebibyte_is_real"] = torch.equal(values.cuda().cpu(), values)
said["more_is_zeros"] = int(torch.arange(1, MIB, dtype=torch.int32).cuda().cpu().count_nonzero())
said["one_number"] = torch.tensor(1234.5, device="cuda").item()
said["on_the_card"] = torch.tensor([1, 2, 3], device="cuda").clone().tolist()
said["pinned"] = values.pin_memory().cuda(non_blocking=True).cpu()[-1].item()
said["is_pinned"] = [values.pin_memory().is_pinned(), values.is_pinned()]
filled = torch.tensor([5, 5], dtype=torch.uint8, device="cuda")
ctypes.CDLL(None).cudaMemset(ctypes.c_void_p(filled.data_ptr()), 9, ctypes.c_size_t(1))
said["filled"] = filled.tolist()

before = peak_mib()
huge = torch.zeros(4 << 30, dtype=torch.uint8, device="cuda")
host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
host.copy_(huge[: 1 << 30])
huge[: 1 << 30].copy_(host)
said["host_mib_for_huge"] = peak_mib() - before

mask = torch.zeros(100, dtype=torch.bool, device="cuda")
calls.answer(7)
said["answered"] = list(torch.nonzero(mask).shape)
calls.answer(9)
calls.forget()
said["forgotten"] = list(torch.nonzero(mask).shape)
said["is_device"] = [calls.is_device(huge.data_ptr()), calls.is_device(host.data_ptr())]
print(json.dumps(said))

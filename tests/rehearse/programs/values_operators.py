"""Small operators with true answers, sizes included."""

import torch

x = torch.arange(10, device="cuda")
mask = x > 6
found = {
    "sum": x.sum().item(),
    "masked": x[mask].tolist(),
    "nonzero": mask.nonzero().tolist(),
    "masked_select": x.masked_select(mask).tolist(),
    "where": torch.where(mask)[0].tolist(),
}
x[mask] = 0
found |= {
    "assigned": x.tolist(),
    "unique": torch.unique(x).tolist(),
    "unique_inverse": [each.tolist() for each in torch.unique(x, return_inverse=True, return_counts=True)],
    "unique_consecutive": torch.unique_consecutive(torch.tensor([1, 1, 2, 2, 1], device="cuda")).tolist(),
    "bincount": torch.bincount(x).tolist(),
    "repeat_interleave": torch.repeat_interleave(x).tolist(),
    "equal": [torch.equal(x, x.clone()), torch.equal(x, x + 1)],
    "histc": torch.histc(torch.tensor([1.0, 2.0, 1.0], device="cuda"), 4, 0, 3).tolist(),
    "mean": torch.tensor([1.5, 2.5], device="cuda").mean().item(),
    "sort": torch.tensor([3, 1, 2], device="cuda").sort().indices.tolist(),
    "topk": torch.tensor([3.0, 1.0, 2.0], device="cuda").topk(2).indices.tolist(),
    "argmax": torch.tensor([3.0, 7.0, 2.0], device="cuda").argmax().item(),
    "masked_scatter": x.masked_scatter(mask, torch.tensor([7, 8, 9], device="cuda")).tolist(),
    "cumsum": x.cumsum(0).tolist(),
    "isin": torch.isin(x, x[:2]).tolist(),
    "isin_number": torch.isin(2, x).item(),
    "number_first": (2 ** x[:5]).tolist(),
    "remainder": torch.remainder(7, x[1:5]).tolist(),
    "shift": (1 << x[:4]).tolist(),
    "multinomial": torch.tensor([0.0, 1.0, 0.0], device="cuda").multinomial(1).item(),
    "full": torch.full((2,), 3.5, device="cuda").tolist(),
    "from_host": torch.tensor([[1, 2], [3, 4]]).cuda().T.contiguous().tolist(),
    "part_of_known": None,
    "cast": torch.tensor([1.7], device="cuda").to(torch.int32).item(),
}
part = torch.zeros(4, device="cuda")
part[1:3] = 5
found["part_of_known"] = part.tolist()

with torch.inference_mode():
    found["inference_mode"] = (torch.arange(3, device="cuda") * 2).tolist()
found["vmap"] = torch.vmap(lambda each: each + 1)(x[:3]).tolist()
with torch.device("cuda"):
    found["device_mode"] = (torch.arange(3) * 2.5).tolist()

# The program's own random numbers, and the state of CUDA's generator, are as they would be.
torch.manual_seed(0)
before = torch.get_rng_state()
drawn = torch.randn(64, device="cuda"), torch.randperm(8, device="cuda"), torch.nn.Dropout()(part)
found |= {
    "cpu_generator_untouched": torch.equal(before, torch.get_rng_state()),
    "cuda_offset": torch.cuda.default_generators[0].get_offset(),
    "randn_spread": drawn[0].std().item(),
    "randperm": sorted(drawn[1].tolist()),
}

# A number beside a tensor has no say in the type of the result, on the card as on the host.
found["types"] = []
for device in "cuda", "cpu":
    types = []
    for shape in (), (3,):
        for dtype in torch.bfloat16, torch.float64, torch.int32, torch.bool:
            tensor = torch.ones(shape, dtype=dtype, device=device)
            types += [str((tensor * number).dtype) for number in (2, 2.5, True)]
            types += [str(torch.where(tensor != 0, 2.5, tensor).dtype), str((1.5 - tensor.float()).dtype)]
    found["types"].append(types)
found["cpu_digits"] = (torch.full((4,), 3.0, dtype=torch.bfloat16) * 0.1).tolist()

indices = torch.tensor([[0, 1, 1], [2, 0, 0]], device="cuda")
sparse = torch.sparse_coo_tensor(indices, torch.ones(3, device="cuda"), (3, 3), check_invariants=False)
found["sparse_entries"] = sparse.coalesce()._nnz()
statistics = torch.nn.BatchNorm1d(4).cuda()
statistics(torch.empty(1 << 18, 4, device="cuda"))
found["batches"] = statistics.num_batches_tracked.item()

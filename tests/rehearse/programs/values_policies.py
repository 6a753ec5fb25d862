"""Reads of what no small operator wrote: each gets the stated answer, and is listed with its line."""

import torch

big = torch.empty(1 << 20, device="cuda")


def read():
    loss = (big * 2).mean()
    return {
        "item": loss.item(),  # line of item
        "finite": bool(torch.isfinite(loss)),
        "logarithm": loss.log().item(),
        "int": torch.empty(3, dtype=torch.int64, device="cuda").sum().item(),
        "bool": bool((big > 0).all()),
        "list": torch.empty(100, device="cuda").tolist()[:2],
        "kept": big[big > 0].shape[0],  # line of kept
        "nonzero": list((big.reshape(1024, 1024) > 0).nonzero().shape),
        "unique": torch.empty(300, device="cuda").unique().shape[0],
        "repeated": torch.repeat_interleave(torch.empty(5, dtype=torch.int64, device="cuda")).tolist(),
        "topk": big.reshape(-1, 8)[:4].topk(2).indices.tolist(),
        "argmax": big[:8].argmax().item(),
        "max_of_columns": big.reshape(-1, 8)[:4].max(0).indices.tolist(),
        "drawn": big.reshape(-1, 1024)[:2].softmax(-1).multinomial(1).flatten().tolist(),
        "sorted": big[:5].sort().indices.tolist(),
    }


found = read()

masked = torch.zeros(100, 4, device="cuda")
masked[torch.empty(100, dtype=torch.bool, device="cuda")] = torch.ones(7, 4, device="cuda")  # as many as there are

source = torch.ones(6, device="cuda", requires_grad=True)
masked.masked_scatter(torch.empty(100, 4, dtype=torch.bool, device="cuda"), source).sum().backward()
found["masked_scatter_gradient"] = list(source.grad.shape)

# What an unknown value was written into is unknown from then on; a part written into something unknown does not help.
counter = torch.zeros(4, device="cuda")
found["known_before"] = counter.tolist()
counter.add_(big[:4])
found["unknown_after"] = counter.tolist()  # line of unknown_after
pieces = torch.empty(4, device="cuda")
pieces[:2] = 3
found["partly_written"] = pieces.tolist()
pieces.fill_(3)
found["written"] = pieces.tolist()

# A large copy to the host, as of a checkpoint, is not a question.
big.cpu()

# While a graph is captured a read is the error it is on a card.
graph, static = torch.cuda.CUDAGraph(), torch.ones(3, device="cuda")
with torch.cuda.graph(graph):
    doubled = static * 2
    try:
        doubled.sum().item()
    except RuntimeError as error:
        found["capturing"] = str(error)

# The gradient of a sparse embedding: as many rows as tokens, or as rows there are.
embedding = torch.nn.Embedding(100, 4, sparse=True).cuda()
embedding(torch.empty(16, 32, dtype=torch.int64, device="cuda")).sum().backward()
found["sparse_rows"] = embedding.weight.grad.coalesce()._nnz()

# What is largest of a gradient has no stand-in of its own, and is as finite as any other number.
weight = torch.ones(1 << 20, device="cuda", requires_grad=True)
weight.register_hook(lambda gradient: found.update(finite_gradient=bool(torch.isfinite(gradient.amax()))))
(weight * big).sum().backward()

# What torch asks for to print a tensor decides the text alone.
str(big)  # line of printed

# Batch normalisation writes its running statistics, without its schema saying so.
normalisation = torch.nn.BatchNorm1d(4).cuda()
normalisation(torch.empty(1 << 18, 4, device="cuda"))
found["running_mean"] = normalisation.running_mean.tolist()

"""Training steps of a kind, and the calls without a faithful answer that they made."""

import json
import sys

import torch
import torch.nn.attention

from dryfit.virtual_card import calls

kind = sys.argv[1]
if kind == "mlp":
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        x, y = torch.randn(32, 64).cuda(), torch.randint(8, (32,)).cuda()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
elif kind == "convolution":
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).cuda()
    model(torch.randn(2, 3, 16, 16, device="cuda")).sum().backward()
elif kind == "attention":
    q, k, v = (torch.randn(2, 8, 256, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(3))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
elif kind == "fft":
    torch.fft.fft(torch.randn(64, device="cuda"))
elif kind == "lstm":
    module = torch.nn.LSTM(32, 64, num_layers=2, bidirectional=True, batch_first=True).cuda()
    module(torch.randn(4, 10, 32, device="cuda"))[0].sum().backward()
elif kind == "graph":
    x, graph, stream = torch.ones(1 << 20, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    before = torch.cuda.memory_reserved()
    said = {"before": torch.cuda.is_current_stream_capturing()}
    with torch.cuda.graph(graph, stream=stream):
        said["inside"] = torch.cuda.is_current_stream_capturing()
        y = x * 2 + 1
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            said["forked"] = torch.cuda.is_current_stream_capturing()
            z = y * 2
        torch.cuda.current_stream().wait_stream(other)
    said["after"] = torch.cuda.is_current_stream_capturing()
    graph.replay()
    torch.cuda.synchronize()
    pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    said["private_pool"] = tuple(graph.pool()) in pools
    said["grew"] = torch.cuda.memory_reserved() > before
    broken = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(broken):
            y.sum().item()
    except RuntimeError as error:
        said["item_inside"] = str(error).splitlines()[0]
    print(json.dumps(said))
    sys.exit()
print(json.dumps(calls.unfaithful_calls()))

"""The loop of the programs beside this one, and measures as a person writes them: entry.py NAME --by-hand a,b."""

import argparse
import contextlib
import functools

import torch
from torch.utils.checkpoint import checkpoint


class Arguments(argparse.Namespace):
    def has(self, name):
        return name in self.measures

    @staticmethod
    def tokens(vocabulary, size, length):
        return torch.randint(vocabulary, (size, length), device="cuda")


def arguments(batch):
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?")
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--by-hand", default="")
    given = parser.parse_args(namespace=Arguments())
    given.measures = dict(each.partition(":")[::2] for each in given.by_hand.split(",") if each)
    return given


def train(given, model, blocks, loss_of, inputs, adam=False, steps=500):
    write_checkpointing(given, blocks)
    optimizer = make_optimizer(given, model, torch.optim.Adam if adam else torch.optim.AdamW)
    pieces = int(given.measures.get("micro-batch", 1))
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(pieces):
            data = inputs(given.batch // pieces)
            with regions(given):
                loss = loss_of(data)
            if pieces > 1:
                (loss / pieces).backward()
            else:
                loss.backward()
        optimizer.step()


def write_checkpointing(given, blocks):
    chosen = []
    if given.has("checkpoint-blocks"):
        chosen = blocks
    elif given.has("checkpoint-every-second"):
        chosen = list(blocks)[::2]
    for block in chosen:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def make_optimizer(given, model, kind):
    parameters = [each for each in model.parameters() if each.requires_grad]
    return kind(parameters, lr=1e-4, **({"fused": True} if given.has("fused-optimizer") else {}))


@contextlib.contextmanager
def regions(given):
    with contextlib.ExitStack() as stack:
        if given.has("bf16-autocast"):
            stack.enter_context(torch.autocast("cuda", dtype=torch.bfloat16))
        if given.has("offload-activations"):
            stack.enter_context(torch.autograd.graph.save_on_cpu(pin_memory=True))
        yield

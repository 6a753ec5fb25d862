"""The loop of the programs beside this one, and measures as a person writes them: entry.py NAME --by-hand a,b:option.

expandable-segments is nothing to write here: PYTORCH_CUDA_ALLOC_CONF is set in the shell, before the program starts.
"""

import argparse
import contextlib
import functools

import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


class Arguments(argparse.Namespace):
    """The program's own arguments, and `measures`: those to write by hand, each with its option."""

    def has(self, *names):
        return any(name in self.measures for name in names)

    @property
    def dtype(self):
        return torch.bfloat16 if self.has("bf16-weights") else torch.float32


def arguments(**defaults):
    """Those of a program by name, with their defaults: arguments(batch=4, layers=48)."""
    parser = argparse.ArgumentParser()
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--by-hand", default="")
    given = parser.parse_args(namespace=Arguments())
    given.measures = {name: option for name, _, option in (each.partition(":") for each in given.by_hand.split(","))}
    return given


def train(given, model, loss_of, inputs, blocks=(), kind=torch.optim.AdamW):
    """Train a model: `inputs(size)` makes a batch, `blocks` are those that are repeated in it."""
    if given.has("freeze-blocks"):
        freeze_first_half(model, list(blocks))
    checkpoint_blocks(given, model, blocks)
    optimizer = make_optimizer(given, model, kind)
    if given.has("micro-batch"):
        count = int(given.measures["micro-batch"].removesuffix(":placed"))
        train_in_micro_batches(given, loss_of, inputs, optimizer, count)
        return
    for _ in range(500):
        optimizer.zero_grad()
        data = inputs(given.batch)
        with regions(given):
            loss = loss_of(data)
        loss.backward()
        optimizer.step()


def train_in_micro_batches(given, loss_of, inputs, optimizer, count):
    for _ in range(500):
        optimizer.zero_grad()
        for _ in range(count):
            data = inputs(given.batch // count)
            with regions(given):
                loss = loss_of(data)
            (loss / count).backward()
        optimizer.step()


@contextlib.contextmanager
def regions(given):
    """Where the forward pass and the loss are computed."""
    with contextlib.ExitStack() as stack:
        if given.has("bf16-autocast"):
            stack.enter_context(torch.autocast("cuda", dtype=torch.bfloat16))
        if given.has("offload-activations"):
            stack.enter_context(torch.autograd.graph.save_on_cpu(pin_memory=True))
        yield


# --- checkpointing ------------------------------------------------------------------------------------------------

aten = torch.ops.aten
kept = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
]
keep = functools.partial(create_selective_checkpoint_contexts, kept)


def checkpoint_blocks(given, model, blocks):
    settings = {"use_reentrant": False}
    if given.has("checkpoint-selective"):
        settings["context_fn"] = keep
    elif given.has("checkpoint-every-second"):
        blocks = blocks[::2]
    elif not given.has("checkpoint-blocks"):
        return
    if hasattr(model, "gradient_checkpointing_enable"):
        every_second = {"every_n_layers": 2} if given.has("checkpoint-every-second") else {}
        model.gradient_checkpointing_enable(settings, **every_second)
        return
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, **settings)


# --- what is trained ----------------------------------------------------------------------------------------------


def freeze_first_half(model, blocks):
    first_trained = next(blocks[len(blocks) // 2].parameters())
    for parameter in model.parameters():  # embeddings come first, then the blocks
        if parameter is first_trained:
            break
        parameter.requires_grad_(False)


# --- optimizers ---------------------------------------------------------------------------------------------------


def make_optimizer(given, model, kind):
    parameters = [each for each in model.parameters() if each.requires_grad]
    if given.has("fused-optimizer"):
        return kind(parameters, lr=1e-4, fused=True)
    if given.has("offload-optimizer"):
        from optimizer_on_host import OffloadedAdam, OffloadedAdamW

        on_host = {torch.optim.Adam: OffloadedAdam, torch.optim.AdamW: OffloadedAdamW}[kind]
        return on_host(parameters, lr=1e-4, fused=True)
    if given.has("adamw-8bit", "paged-adamw-8bit"):
        import bitsandbytes as bnb

        paged = "Paged" if given.has("paged-adamw-8bit") else ""
        return getattr(bnb.optim, f"{paged}{kind.__name__}8bit")(parameters, lr=1e-4)
    if given.has("torchao-adamw-8bit"):
        import torchao.optim

        return getattr(torchao.optim, f"{kind.__name__}8bit")(parameters, lr=1e-4)
    if given.has("adafactor"):
        return torch.optim.Adafactor(parameters, lr=1e-4, weight_decay=0.01 if kind is torch.optim.AdamW else 0.0)
    return kind(parameters, lr=1e-4)

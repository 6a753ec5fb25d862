"""What the arithmetic leaves out, in words."""

from __future__ import annotations

from dryfit.estimate.model import Model


def left_out(model: Model, *, amp: bool) -> tuple[str, ...]:
    """Name what comes on top of the terms, most telling first."""
    found = [
        "activations saved for backward, which grow with the batch and mostly are the larger part",
        "the logits, the loss and what their backward holds (of language models: batch x tokens x vocabulary)",
        "inputs, temporaries of forward and backward, and the workspaces of cuBLAS and cuDNN",
        "what PyTorch's allocator caches or cannot split off: reserved memory is more than allocated",
        "the CUDA context (0.2 to 0.6 GiB), NCCL, and other processes on the card",
    ]
    if not model.buffers:
        found.append("buffers, such as position tables" + (" and batch norms" if not model.shapes_known else ""))
    if amp:
        found.append("casts that autocast makes of anything but weights")
    return tuple(found)

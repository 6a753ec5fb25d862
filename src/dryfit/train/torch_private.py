"""The private names of torch that this room uses; checked on 2.14."""

from __future__ import annotations

import torch


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place, as autograd counts; 0 for inference tensors, of which nothing counts it.

    PyTorch's notes on autograd mechanics name `_version`, for debugging.
    """
    return 0 if tensor.is_inference() else tensor._version

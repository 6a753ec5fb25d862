"""The arithmetic alone: parameters, gradients, optimizer state and the step's temporaries, each on its own line.

>>> from dryfit.estimate import estimate
>>> estimate("7B", dtype="bf16", optimizer="adamw-fused").at_least_bytes == 7_000_000_000 * (2 + 2 + 2 + 2)
True

A lower bound by design: what needs a run (activations, the logits and the loss, the allocator's cache) is named in
words, and `dryfit run` knows it. No torch is loaded unless a model has to be built.
"""

from dryfit.estimate.arithmetic import Estimate, OnCard, Term, estimate
from dryfit.estimate.model import Model, Tensor
from dryfit.estimate.optimizers import OPTIMIZERS
from dryfit.estimate.rule import Rule

__all__ = ["OPTIMIZERS", "Estimate", "Model", "OnCard", "Rule", "Tensor", "Term", "estimate"]

"""PyTorch's functions by what they do to a graph."""

from __future__ import annotations

import re

# Arithmetic and moves: what comes out has the graph of what went in.
_KEEPS_GRAPH = """
    abs add bfloat16 clone contiguous cpu cuda div div_ double exp flatten float half log mean mul mul_ nanmean neg pow
    reshape scale sqrt squeeze sub sum to type unsqueeze view
"""
KEEPS_GRAPH = frozenset(_KEEPS_GRAPH.split())
# Attributes of a tensor that have no graph.
WITHOUT_GRAPH = frozenset({"data", "shape", "device", "dtype", "grad_fn", "ndim"})
# Methods and functions of torch whose result has no graph: numbers, indices, comparisons, moves to numpy.
_PLAIN = """
    all any arange argmax argmin argsort as_tensor bool byte ceil detach detach_ dim empty eq eye floor from_numpy full
    full_like ge gt int isfinite isinf isnan item le long lt ne no_grad nonzero numel numpy one_hot ones ones_like rand
    rand_like randint randn randn_like randperm round shape sign size tensor tolist zeros zeros_like
"""
PLAIN = frozenset(_PLAIN.split())
PLAIN_BUILTINS = {"float", "int", "len", "str", "bool", "round", "repr", "range"}
# (values, indices): what is taken from the second place is an index.
WITH_INDICES = {"max", "min", "topk", "sort", "median", "mode", "kthvalue"}
OUTPUT_NAME = re.compile(r"loss|logit|out|feat|hidden|embed|prob|score", re.IGNORECASE)
# Functions of a tensor that are differentiable.
_DIFFERENTIABLE_NAMES = """
    amax amin binary_cross_entropy binary_cross_entropy_with_logits bmm cat chunk clamp cosine_embedding_loss
    cosine_similarity cross_entropy ctc_loss einsum expand flatten gather gelu hinge_embedding_loss huber_loss
    index_select interpolate kl_div l1_loss log_softmax logsigmoid logsumexp masked_select matmul max min mm mse_loss
    nll_loss norm normalize pad permute relu repeat sigmoid smooth_l1_loss softmax sort split stack t tanh topk
    transpose triplet_margin_loss where
"""
DIFFERENTIABLE = KEEPS_GRAPH | frozenset(_DIFFERENTIABLE_NAMES.split())

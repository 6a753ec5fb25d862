"""Sizes that depend on values computed on the card: what each comes to is printed, for any setting of `--assume`."""

import torch

big = torch.empty(1 << 20, device="cuda")
labels = torch.empty(1000, dtype=torch.int64, device="cuda")


def routed(tokens, per_token, experts):
    """As Hugging Face's Mixtral does it: how many tokens each expert gets."""
    chosen = torch.empty(tokens, experts, device="cuda").topk(per_token, dim=-1).indices
    mask = torch.nn.functional.one_hot(chosen, num_classes=experts).permute(2, 1, 0)
    counts = [0] * experts
    for (expert,) in (mask.sum(dim=(-1, -2)) > 0).nonzero():
        _, rows = torch.where(mask[expert])
        counts[expert] = rows.shape[0]
    return counts


def split(tokens, per_token, experts):
    """As DeepSeek's own inference code does it: counts that the host reads."""
    chosen = torch.empty(tokens, experts, device="cuda").topk(per_token, dim=-1).indices
    return torch.bincount(chosen.flatten(), minlength=experts).tolist()


def sampled(most):
    """A loop that ends with the last text."""
    done = torch.zeros(4, dtype=torch.bool, device="cuda")
    length = 0
    while not done.all() and length < most:  # line of the loop
        token = torch.empty(4, 512, device="cuda").softmax(-1).multinomial(1).flatten()
        done |= token == 0
        length += 1
    return length


def broken_out(most):
    """The same, as many write it."""
    done = torch.zeros(4, dtype=torch.bool, device="cuda")
    length = 0
    for _ in range(most):
        length += 1
        done |= torch.empty(4, 512, device="cuda").argmax(-1) == 0
        if done.all():
            break
    return length


found = {
    "kept": big[big > 0].shape[0],  # line of kept
    "where": torch.where(big > 1)[0].shape[0],
    "masked_select": big.masked_select(big > 2).shape[0],
    "assigned": torch.zeros(100, device="cuda").masked_scatter(big[:100] > 0, big).shape[0],
    "unique": labels.unique().shape[0],
    "unique_counts": labels.unique(return_counts=True)[1].sum().item(),
    "repeated": torch.repeat_interleave(labels[:10]).shape[0],
    "float": (big * 2).mean().item(),
    "int": labels.sum().item(),
    "bool": (big > 0).all().item(),  # line of the bool
    "list": labels[:2].tolist(),
    "few": routed(128, 2, 8),
    "many": routed(4096, 8, 256),  # a mask of 64 MiB
    "uneven": routed(100, 2, 8),
    "split": split(128, 2, 8),
    "loop": sampled(5000),
    "loop_of_a_known_length": sampled(100),
    "broken_out": broken_out(5000),
}

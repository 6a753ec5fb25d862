import torch.utils.checkpoint as cp
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def said(block, x, settings):
    x = checkpoint(block, x, use_reentrant=False)
    x = cp.checkpoint(block, x, use_reentrant=True)
    x = cp.checkpoint(block, x, **settings)
    return checkpoint_sequential(block, 2, x, use_reentrant=False)


def for_old_versions(block, x):
    try:
        return checkpoint(block, x, use_reentrant=False)
    except TypeError:
        return checkpoint(block, x)


def another(self, path):
    return self.checkpoint(path)

import torch.utils.checkpoint
import torch.utils.checkpoint as cp
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def whole_name(block, x):
    return torch.utils.checkpoint.checkpoint(block, x)  # <- DF401


def by_alias(block, x):
    return cp.checkpoint(block, x, preserve_rng_state=False)  # <- DF401


class Net:
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x) if self.training else block(x)  # <- DF401
        return checkpoint_sequential(self.tail, 2, x)  # <- DF401

"""`fsdp_loop` over four cards with its blocks checkpointed, written by hand."""

import fsdp_loop
from checkpoint_by_hand import Checkpointed


def main():
    fsdp_loop.Model = Checkpointed
    fsdp_loop.main("host", "4")

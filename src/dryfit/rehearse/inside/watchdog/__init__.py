"""NCCL's watchdog, where time does not pass.

From torch 2.8 on a collective keeps its tensors until somebody waits for its work. Where nobody does (DDP waits for
futures, a program drops what `async_op=True` returns) it keeps them until the card has finished it, the watchdog thread
has looked, which it does every 100 ms, and the process has called its next collective. A virtual card finishes at once,
and a whole step is over before the watchdog looks: what is kept then is a matter of chance, and more than a card whose
steps take longer keeps.

So a rehearsal waits for the watchdog where a step's time would have passed: when a backward pass is over, and when an
optimizer has stepped. It does not wait anywhere inside them. A card may be between two looks there, and what a backward
pass piles up in works that nobody waits for is its peak; the rehearsal shows the highest it can be.
"""

from __future__ import annotations

from dryfit.rehearse.inside.watchdog import torch_private


def let_it_look() -> None:
    """Wait, some 0.1 s, until NCCL's watchdog has seen that what this process has called is finished."""
    torch_private.wait_for_watchdog()

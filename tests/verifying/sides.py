"""Runs and rows of no program in particular."""

from __future__ import annotations

from dryfit.verifying.comparison import RAN, Figures, Side
from dryfit.verifying.real_card import RealCard
from dryfit.verifying.row import Row

MIB = 1 << 20
PHASES = ("forward", "backward", "optimizer step")

CARD = RealCard(
    name="NVIDIA L4",
    sm=89,
    sm_count=58,
    max_threads_per_sm=1536,
    l2_bytes=48 * MIB,
    total_bytes=22563 * MIB,
    used_before_bytes=3 * MIB,
    driver="550.54.15",
    cuda="12.4",
)


def figures(step: int, phase: str, allocated: int, reserved: int, total: int | None = None) -> Figures:
    """Figures given in MiB."""
    return Figures(
        step=step,
        phase=phase,
        allocated_bytes=allocated * MIB,
        reserved_bytes=reserved * MIB,
        total_bytes=None if total is None else total * MIB,
    )


def side(*of: Figures, outcome: str = RAN, error_type: str | None = None, processes: int = 1) -> Side:
    """A run with these figures."""
    steps = max((each.step for each in of), default=0)
    return Side(outcome=outcome, error_type=error_type, steps=steps, processes=processes, seconds=1.0, figures=of)


def trained(steps: int, more: int = 0, outside: int | None = 300) -> Side:
    """A run of so many steps; `more` MiB are allocated in the backward pass of the second step alone."""
    of = [figures(0, "setup", 100, 120, None if outside is None else 120 + outside)]
    for step in range(1, steps + 1):
        for number, phase in enumerate(PHASES, start=1):
            extra = more if (step, phase) == (2, "backward") else 0
            reserved = 300 + extra
            of.append(figures(step, phase, 200 + number + extra, reserved, None if outside is None else 300 + outside))
    return side(*of)


def row(real: Side, virtual: Side, card: RealCard = CARD) -> Row:
    """A row of these two."""
    return Row(
        card=card,
        twin="l4",
        versions={"dryfit": "0.1.0", "torch": "2.6.0+cu124", "cuda": "12.4"},
        allocator_settings={"backend": "native"},
        program=["train.py", "--batch", "8"],
        source_sha256="0" * 64,
        real=real,
        virtual=virtual,
        virtual_total_range={"low": 500 * MIB, "expected": 600 * MIB, "high": 700 * MIB},
    )

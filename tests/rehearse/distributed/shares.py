"""Rehearsals of the examples, each run once for all tests of a module, and the arithmetic of shards."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import dryfit
from dryfit.findings import Finding

EXAMPLES = Path(__file__).parents[3] / "examples" / "distributed"
CARD = "sm=80,sms=108,memory=80GiB"

Shape = tuple[int, ...]

# `nn.TransformerEncoderLayer` and the rest of the examples' transformer, each a unit of FSDP.
VOCABULARY, WIDTH, INNER, BLOCKS = 1000, 512, 2048, 6
BLOCK: Sequence[Shape] = (
    (3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,), (INNER, WIDTH), (INNER,), (WIDTH, INNER), (WIDTH,),
    (WIDTH,), (WIDTH,), (WIDTH,), (WIDTH,),
)  # fmt: skip
ROOT: Sequence[Shape] = ((VOCABULARY, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
UNITS = (ROOT, *[BLOCK] * BLOCKS)
FP32, BF16 = 4, 2


@functools.cache
def played(program: str | Path, *words: str, world: int, ranks: str = "0", gpu: str = CARD) -> dryfit.Result:
    """`dryfit run --world WORLD --ranks RANKS PROGRAM WORDS`; a program's name is an example's."""
    result = dryfit.run([str(EXAMPLES / program), *words], world=world, ranks=ranks, gpu=gpu, quiet=True)
    assert result.verdict == "fits", result.ending.sentence
    return result


def held(result: dryfit.Result, phase: str) -> dict[str, int]:
    """What each owner holds at the highest moment of a phase of the last step, in bytes."""
    assert result.footprint is not None
    of_phase = next(each for each in result.footprint.steps[-1].phases if each.phase == phase)
    return {each.owner: each.size_bytes for each in of_phase.owners}


def most(result: dryfit.Result) -> dict[str, int]:
    """The parameters, gradients and states, each when it is largest, in bytes."""
    assert result.footprint is not None and result.footprint.recipe is not None
    return {part.owner: part.size_bytes for part in result.footprint.recipe.parts}


def found(result: dryfit.Result, code: str) -> Finding:
    return next(finding for finding in result.findings if finding.code == code)


def rounded(size_bytes: int) -> int:
    """As PyTorch's allocator rounds: 0 takes nothing."""
    return -(-size_bytes // 512) * 512


def each_rounded(sizes: Iterable[int]) -> int:
    return sum(map(rounded, sizes))


def elements(shapes: Iterable[Shape]) -> int:
    return sum(map(math.prod, shapes))


def chunk(shape: Shape, ranks: int) -> int:
    """Elements of FSDP2's padded shard: an equal number of rows for each rank, rounded up."""
    return -(-shape[0] // ranks) * math.prod(shape[1:])


def own(shape: Shape, ranks: int, rank: int) -> int:
    """Elements of FSDP2's shard: the last ranks have what is left, which may be nothing."""
    rows = -(-shape[0] // ranks)
    return max(0, min(rows, shape[0] - rank * rows)) * math.prod(shape[1:])

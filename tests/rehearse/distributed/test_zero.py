"""ZeroRedundancyOptimizer gives whole parameters to ranks, the largest first, each to the rank that has least."""

from __future__ import annotations

from tests.rehearse.distributed.shares import each_rounded, held, played

WIDTH, RANKS = 2048, 4
PARAMETERS = [each for _ in range(8) for each in (WIDTH * WIDTH, WIDTH)] + [8 * WIDTH * WIDTH, 8 * WIDTH]
WEIGHTS_BYTES = sum(PARAMETERS) * 4
CUBLAS_BYTES = 2 * 8320 * 1024  # a workspace of each thread that multiplies: the program's, and autograd's


def shares() -> list[list[int]]:
    """The elements of the parameters of each rank."""
    of_ranks: list[list[int]] = [[] for _ in range(RANKS)]
    for parameter in sorted(PARAMETERS, reverse=True):
        min(of_ranks, key=sum).append(parameter)
    return of_ranks


def test_states_are_those_of_whole_parameters() -> None:
    result = played("zero.py", "head", world=RANKS, ranks="all")
    # Two states of each parameter, and a root of one of them for all at once, on top of the model, its gradients and
    # DDP's buckets of them.
    of_ranks = [each_rounded(each * 4 for each in share) for share in shares()]
    expected = [3 * WEIGHTS_BYTES + 3 * share + CUBLAS_BYTES for share in of_ranks]
    assert [each.peak_allocated_bytes for each in result.ranks] == expected
    assert len(set(expected)) == 3  # the head's rank, two with three layers, and one with two and all biases
    assert result.world is not None and result.world.rank == expected.index(max(expected)) == 0
    assert held(result, "optimizer step")["optimizer state"] == 2 * of_ranks[0]

    passed = result.communication
    assert passed["broadcast"].calls == len(PARAMETERS)
    assert passed["broadcast"].sent_bytes == passed["all-reduce"].payload_bytes == WEIGHTS_BYTES
    assert passed["all-reduce"].sent_bytes == WEIGHTS_BYTES * 2 * (RANKS - 1) // RANKS

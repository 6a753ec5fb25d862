"""When what the ranks share out is worth saying, and in which words; rehearsals of it are in `distributed`."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from tests.results import MIB, PLAIN_RESULT

from dryfit.analyse.across_ranks import AcrossRanks
from dryfit.analyse.footprint import OwnerBytes, Peak
from dryfit.findings import Finding
from dryfit.rehearse import findings_of_ranks
from dryfit.rehearse.result import Communication, Result
from dryfit.rehearse.world import World

NOTHING = AcrossRanks(
    is_sharded=True,
    cast_bytes=0,
    whole_gradient_bytes=0,
    shards_of_them_bytes=0,
    bucket_bytes=0,
    beside_buckets_bytes=0,
    views_buckets=False,
    backward_passes=1,
)
WHOLE = {"whole_gradient_bytes": 8 * MIB, "shards_of_them_bytes": 2 * MIB}
SENT = {"reduce-scatter": Communication(calls=1, payload_bytes=8 * MIB, sent_bytes=6 * MIB)}


def rank(*, size: int = 4, states_bytes: int = MIB, batch_bytes: int = 99 * MIB, rest_bytes: int = 0) -> Result:
    """A rank of a world whose peak is of its states, of its batch, and of what is neither."""
    peak = Peak(
        event=0,
        step=2,
        phase="backward",
        allocated_bytes=states_bytes + batch_bytes + rest_bytes,
        active_bytes=0,
        requested_bytes=0,
        reserved_bytes=0,
        owners=(OwnerBytes(owner="parameter", size_bytes=states_bytes, blocks=1),),
        fixed_bytes=states_bytes + rest_bytes,
        grows_with_batch_bytes=batch_bytes,
        logits_and_loss_bytes=0,
    )
    unread: Any = SimpleNamespace(peak=peak)
    return dataclasses.replace(
        PLAIN_RESULT,
        peak_allocated_bytes=peak.allocated_bytes,
        steps=2,
        world=World(size=size),
        communication=SENT,
        footprint=unread,
        analysis=unread,
    )


def found(monkeypatch: pytest.MonkeyPatch, result: Result, **seen: Any) -> list[Finding]:
    monkeypatch.setattr(findings_of_ranks, "across_ranks", lambda _: dataclasses.replace(NOTHING, **seen))
    return findings_of_ranks.with_findings_of_ranks(result).findings


def test_whole_gradients_are_said_with_what_reducing_them_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    many = rank(states_bytes=60 * MIB, batch_bytes=40 * MIB)
    (finding,) = found(monkeypatch, many, **WHOLE, backward_passes=3)
    assert finding.claim.startswith("3 micro-batches add up their gradients before these are reduced: at the peak 8.00")
    assert finding.advice.endswith("takes 6.00 MiB less there, and sends 12.00 MiB more in each step.")
    (finding,) = found(monkeypatch, many, **WHOLE)  # a step of one pass, which never reduces
    assert finding.claim.startswith("Backward passes add up their gradients before")
    assert finding.advice.endswith("takes 6.00 MiB less there.")
    assert not found(monkeypatch, many, **WHOLE, is_sharded=False)
    assert not found(monkeypatch, rank(states_bytes=900 * MIB, batch_bytes=40 * MIB), **WHOLE)  # less than 1 % of it
    alone = dataclasses.replace(many, communication={})
    assert not found(monkeypatch, alone, **WHOLE)


def test_what_sharding_saves_is_said_where_it_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = found(monkeypatch, rank(), cast_bytes=50 * MIB)
    assert finding.claim == (
        "Parameters, gradients and optimizer states are 1.0% of the peak, 1.00 MiB of 100.00 MiB. To shard them over 4 "
        "ranks saves at most 3.00 MiB. More ranks can save these 1.00 MiB at most. FSDP's own buffers take 0 B. Copies "
        "of activations that its mixed precision makes, as around batch norms, take 50.00 MiB."
    )
    assert finding.advice.startswith("99% of the peak are made anew of each batch: checkpoint activations")
    (finding,) = found(monkeypatch, rank(size=1))
    assert "To shard them" not in finding.claim
    # Of 20 ranks the shards are 1 % each, and what they save is 19 %.
    assert not found(monkeypatch, rank(size=20))
    assert not found(monkeypatch, rank(batch_bytes=40 * MIB, rest_bytes=59 * MIB))
    assert not found(monkeypatch, rank(), is_sharded=False)
    assert not found(monkeypatch, rank(states_bytes=0))


def test_before_the_first_step_has_ended_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a rank that failed in its forward pass: each of these is said once a step has ended."""
    many = rank(states_bytes=60 * MIB, batch_bytes=40 * MIB)
    beside = {"bucket_bytes": 8 * MIB, "beside_buckets_bytes": 8 * MIB}
    for result, seen in ((rank(), {}), (many, WHOLE), (many, beside)):
        assert found(monkeypatch, result, **seen)
        assert not found(monkeypatch, dataclasses.replace(result, steps=0), **seen)

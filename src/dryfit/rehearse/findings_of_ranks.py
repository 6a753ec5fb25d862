"""What a rank's memory says of how the ranks share the work: findings of distributed programs."""

from __future__ import annotations

import dataclasses

from dryfit.analyse.across_ranks import AcrossRanks, across_ranks
from dryfit.findings import Evidence, Finding
from dryfit.recording.model import COMMUNICATION, GRADIENT, OPTIMIZER_STATE, PARAMETER
from dryfit.rehearse.result import Result
from dryfit.units import format_bytes

_STATES = (PARAMETER, GRADIENT, OPTIMIZER_STATE)
# Below this part of the peak that sharding can save, more ranks are no answer. Our own choice.
_LITTLE = 0.10
# From this part of the peak on, what is made of the batch is what the memory goes to. Our own choice.
_MOST = 0.5
# What is less of the peak than this decides nothing. Our own choice.
_TOO_LITTLE_TO_SAY = 0.01


def with_findings_of_ranks(result: Result) -> Result:
    """The result of a rank, with what its memory says of how the ranks share the work; of any other program as it is.

    Needs the analysis of the recording. Nothing is found where all of it costs nothing at the peak, or where no step
    has ended: the peak of a part of one is not that of training.
    """
    if result.analysis is None or not result.communication or not result.steps:
        return result
    seen = across_ranks(result.analysis)
    found = [*_whole_gradients(seen, result), *_beside_buckets(seen, result), *_saves_little(seen, result)]
    worth_saying = [
        each
        for each in found
        if each.code == "DF408" or (each.evidence.size_bytes or 0) >= _TOO_LITTLE_TO_SAY * result.peak_allocated_bytes
    ]
    return dataclasses.replace(result, findings=[*result.findings, *worth_saying])


def _whole_gradients(seen: AcrossRanks, result: Result) -> list[Finding]:
    more_bytes = seen.whole_gradient_bytes - seen.shards_of_them_bytes
    if not seen.is_sharded or more_bytes <= 0:
        return []
    sent_bytes = _sent_more_bytes("reduce-scatter", seen, result)
    return [
        Finding(
            code="DF406",
            claim=f"{_micro_batches(seen)} their gradients before these are reduced: at the peak "
            f"{format_bytes(seen.whole_gradient_bytes)} of gradients are kept whole, of which this rank's shards are "
            f"{format_bytes(seen.shards_of_them_bytes)}.",
            advice=f"To reduce them with each micro-batch, without no_sync, takes {format_bytes(more_bytes)} less there"
            f"{f', and sends {format_bytes(sent_bytes)} more in each step' if sent_bytes else ''}.",
            evidence=Evidence(
                size_bytes=more_bytes,
                numbers={
                    "whole_gradient_bytes": seen.whole_gradient_bytes,
                    "shards_of_them_bytes": seen.shards_of_them_bytes,
                    "backward_passes": seen.backward_passes,
                    "sent_more_bytes": sent_bytes,
                },
            ),
        )
    ]


def _beside_buckets(seen: AcrossRanks, result: Result) -> list[Finding]:
    if not seen.bucket_bytes or not seen.beside_buckets_bytes:
        return []
    beside, buckets = format_bytes(seen.beside_buckets_bytes), format_bytes(seen.bucket_bytes)
    sent_bytes = _sent_more_bytes("all-reduce", seen, result) if seen.views_buckets else 0
    if seen.views_buckets:
        claim = (
            f"{_micro_batches(seen)} their gradients under no_sync: at the peak {beside} of them lie beside DDP's "
            f"buckets of {buckets}, and become views of these with the last micro-batch alone."
        )
        more = f", which sends {format_bytes(sent_bytes)} more in each step" if sent_bytes else ""
        advice = (
            "optimizer.zero_grad(set_to_none=False) has them stay views of the buckets; so has reducing with each "
            f"micro-batch, without no_sync{more}."
        )
    else:
        claim = f"At the peak {beside} of gradients lie beside DDP's buckets of {buckets}, which hold all of them too."
        advice = "DistributedDataParallel(..., gradient_as_bucket_view=True) makes them views of the buckets."
        if seen.backward_passes > 1:
            advice += " Under no_sync they are that only with optimizer.zero_grad(set_to_none=False)."
    return [
        Finding(
            code="DF407",
            claim=claim,
            advice=advice,
            evidence=Evidence(
                size_bytes=seen.beside_buckets_bytes,
                numbers={
                    "bucket_bytes": seen.bucket_bytes,
                    "backward_passes": seen.backward_passes,
                    "sent_more_bytes": sent_bytes,
                },
            ),
        )
    ]


def _saves_little(seen: AcrossRanks, result: Result) -> list[Finding]:
    if not seen.is_sharded or result.footprint is None:
        return []
    peak, ranks = result.footprint.peak, result.world.size if result.world is not None else len(result.processes)
    of_owner = {each.owner: each.size_bytes for each in peak.owners}
    states_bytes = sum(of_owner.get(owner, 0) for owner in _STATES)
    if not states_bytes:  # as where all of them are on the host
        return []
    whole_bytes = states_bytes * ranks
    without_bytes = peak.allocated_bytes - states_bytes + whole_bytes
    if whole_bytes > _LITTLE * without_bytes or peak.grows_with_batch_bytes < _MOST * peak.allocated_bytes:
        return []
    states = format_bytes(states_bytes)
    saved = (
        f" To shard them over {ranks} ranks saves at most {format_bytes(whole_bytes - states_bytes)}."
        if ranks > 1
        else ""
    )
    buffers_bytes = of_owner.get(COMMUNICATION, 0)
    copied = (
        f" Copies of activations that its mixed precision makes, as around batch norms, take "
        f"{format_bytes(seen.cast_bytes)}."
        if seen.cast_bytes >= _TOO_LITTLE_TO_SAY * peak.allocated_bytes
        else ""
    )
    return [
        Finding(
            code="DF408",
            claim=f"Parameters, gradients and optimizer states are {states_bytes / peak.allocated_bytes:.1%} of the "
            f"peak, {states} of {format_bytes(peak.allocated_bytes)}.{saved} More ranks can save these {states} at "
            f"most. FSDP's own buffers take {format_bytes(buffers_bytes)}.{copied}",
            advice=f"{peak.grows_with_batch_bytes / peak.allocated_bytes:.0%} of the peak are made anew of each "
            "batch: checkpoint activations, or make the batch, the crop or the sequence smaller.",
            evidence=Evidence(
                size_bytes=states_bytes,
                numbers={
                    "peak_bytes": peak.allocated_bytes,
                    "states_bytes": states_bytes,
                    "whole_states_bytes": whole_bytes,
                    "buffer_bytes": buffers_bytes,
                    "cast_bytes": seen.cast_bytes,
                    "grows_with_batch_bytes": peak.grows_with_batch_bytes,
                },
            ),
        )
    ]


def _micro_batches(seen: AcrossRanks) -> str:
    return f"{seen.backward_passes} micro-batches add up" if seen.backward_passes > 1 else "Backward passes add up"


def _sent_more_bytes(kind: str, seen: AcrossRanks, result: Result) -> int:
    """What each step would send more if every backward pass did what the last one does now."""
    sent = result.communication.get(kind)
    return sent.sent_bytes * (seen.backward_passes - 1) if sent is not None else 0

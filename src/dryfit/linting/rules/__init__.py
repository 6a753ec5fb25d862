"""The rules: one file each, one function that gives the findings of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow
from dryfit.linting.rules import (
    df101_loss_kept_with_graph,
    df102_outputs_collected,
    df105_graph_retained,
    df111_dataset_on_device,
    df112_autocast_around_the_loop,
    df113_create_graph_cycle,
    df201_evaluation_with_graph,
    df202_predictions_on_device,
    df301_loss_not_divided,
    df302_clip_before_unscale,
    df303_scheduler_per_micro_batch,
    df304_zero_grad_after_backward,
    df305_no_sync_around_backward_only,
    df401_reentrant_checkpoint,
    df402_cache_with_checkpointing,
    df403_empty_cache_in_loop,
    df404_data_parallel,
    df405_device_in_worker,
)

Check = Callable[[Flow], Iterator[Finding]]

CHECKS: dict[str, Check] = {
    "DF101": df101_loss_kept_with_graph.check,
    "DF102": df102_outputs_collected.check,
    "DF105": df105_graph_retained.check,
    "DF111": df111_dataset_on_device.check,
    "DF112": df112_autocast_around_the_loop.check,
    "DF113": df113_create_graph_cycle.check,
    "DF201": df201_evaluation_with_graph.check,
    "DF202": df202_predictions_on_device.check,
    "DF301": df301_loss_not_divided.check,
    "DF302": df302_clip_before_unscale.check,
    "DF303": df303_scheduler_per_micro_batch.check,
    "DF304": df304_zero_grad_after_backward.check,
    "DF305": df305_no_sync_around_backward_only.check,
    "DF401": df401_reentrant_checkpoint.check,
    "DF402": df402_cache_with_checkpointing.check,
    "DF403": df403_empty_cache_in_loop.check,
    "DF404": df404_data_parallel.check,
    "DF405": df405_device_in_worker.check,
}

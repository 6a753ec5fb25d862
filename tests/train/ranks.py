"""What each of several real processes does in `test_accumulation_ranks`; it saves figures that the test compares."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from tests.train.language import (
    Batch,
    Gradients,
    Steps,
    batch_of,
    count_tokens,
    difference,
    gradients_of,
    joined,
    language_model,
    loss_of,
    summed_loss_of,
    whole_gradients,
)
from tests.train.processes import FSDP2_RUNS_ON_THE_HOST
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from dryfit.errors import DryfitError, UsageError
from dryfit.train.accumulation import accumulate
from dryfit.train.equivalence import check_equivalence

CLIP = 0.05


def start(rank: int, world: int, folder: str, case_names: tuple[str, ...]) -> None:
    """The process of one rank: run the cases in order, and save what they give."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    found = {}
    for name in case_names:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found[name] = {**CASES, **ON_FOUR_RANKS}[name](rank, world)
        found[name]["warnings"] = [str(each.message) for each in warned if "dryfit" in type(each.message).__module__]
    torch.save(found, Path(folder) / f"rank{rank}")
    torch.distributed.destroy_process_group()


def tokens_of(rank: int) -> tuple[int, ...]:
    """Unequal on each rank and between ranks; with 3 steps the last window is short."""
    return ((100, 10, 37, 64, 1), (3, 77, 110, 20, 50), (60, 60, 5, 9, 90), (2, 1, 4, 3, 2))[rank]


def batches_on(rank: int, count: int = 5) -> list[Batch]:
    tokens = tokens_of(rank)
    return [batch_of(tokens[at % 5], seed=10 * rank + at) for at in range(count)]


def in_ddp(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def in_fsdp2(model: nn.Module) -> nn.Module:
    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    fully_shard(model[1], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def in_fsdp1(model: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))


def in_fsdp2_and_tensor_parallel(rank: int, _: int) -> dict[str, Any]:
    """Two ranks hold parts of each layer, and two such pairs train on batches of their own."""
    mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    found: dict[str, Any] = {"off": []}
    for reduction, loss in (("mean", loss_of), ("sum", summed_loss_of)):
        model = language_model()
        parallelize_module(model, mesh["tp"], {"1": ColwiseParallel(output_layouts=Replicate())})
        fully_shard(model, mesh=mesh["dp"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        taken = Steps(optimizer)
        items = count_tokens if reduction == "mean" else None
        windows = accumulate(batches_on(rank // 2, 3), model, optimizer, steps=3, items=items, reduction=reduction)
        for window in windows:
            for batch in window:
                window.backward(loss(model, batch))
            window.step()
        alone = language_model()
        loss(alone, joined(batches_on(0, 3) + batches_on(1, 3))).backward()
        found["off"].append(difference(whole(taken.gradients[0]), gradients_of(alone)))
    return {**found, "described": windows.describe()}


def whole(gradients: Gradients) -> Gradients:
    return [each.full_tensor() if hasattr(each, "full_tensor") else each for each in gradients]


def train(
    wrap: Callable[[nn.Module], nn.Module], batches: list[Batch], **rest: Any
) -> tuple[list[Gradients], Any, list[int]]:
    model = wrap(language_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    fsdp1 = isinstance(model, FullyShardedDataParallel)
    taken = (
        Steps(optimizer, partial(FullyShardedDataParallel.summon_full_params, model, with_grads=True))
        if fsdp1
        else Steps(optimizer)
    )
    sizes = []
    windows = accumulate(batches, model, optimizer, steps=3, items=count_tokens, **rest)
    for window in windows:
        sizes.append(len(window))
        for batch in window:
            window.backward(loss_of(model, batch))
        window.step()
    return [whole(each) for each in taken.gradients], windows, sizes


def expected(world: int, first: int, size: int, clip_norm: float | None = CLIP) -> Gradients:
    used = [batch for rank in range(world) for batch in batches_on(rank, 10)[first : first + size]]
    return whole_gradients(used, clip_norm)


def unequal_tokens(wrap: Callable[[nn.Module], nn.Module], **rest: Any) -> Callable[[int, int], dict[str, Any]]:
    def case(rank: int, world: int) -> dict[str, Any]:
        gradients, windows, sizes = train(wrap, batches_on(rank), clip_norm=CLIP, **rest)
        off = [difference(gradients[0], expected(world, 0, 3)), difference(gradients[1], expected(world, 3, 2))]
        return {"sizes": sizes, "off": off, "described": windows.describe()}

    return case


def unequal_counts(rank: int, world: int) -> dict[str, Any]:
    gradients, _, sizes = train(in_ddp, batches_on(rank, 7 if rank == 0 else 5))
    off = [difference(one, expected(world, 3 * at, sizes[at], None)) for at, one in enumerate(gradients)]
    return {"sizes": sizes, "off": off}


def unequal_counts_carried(rank: int, world: int) -> dict[str, Any]:
    _, windows, sizes = train(in_ddp, batches_on(rank, 7 if rank == 0 else 5), last="carry")
    return {"sizes": sizes, "carried": windows.carried}


def a_loader_that_fails(rank: int, _: int) -> dict[str, Any]:
    def loader() -> Iterator[Batch]:
        yield from batches_on(rank, 4)
        if rank == 1:
            raise OSError("the disk is gone")
        yield from batches_on(rank, 4)

    try:
        train(in_ddp, loader())  # type: ignore[arg-type]
    except (DryfitError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def no_sync_by_hand(rank: int, _: int) -> dict[str, Any]:
    """b4.4: rank 0 sees 1 and rank 1 sees 2, so one backward's gradient is that, or 1.5 where exchanged."""

    def gradient(around_forward: bool, around_backward: bool) -> float:
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False))

        def held(wanted: bool) -> AbstractContextManager[Any]:
            return model.no_sync() if wanted else nullcontext()

        with held(around_forward):
            loss = model(torch.tensor([[rank + 1.0]])).sum()
        with held(around_backward):
            loss.backward()
        return float(model.module.weight.grad)

    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    windows = accumulate(
        [torch.tensor([[rank + 1.0]])] * 2, model, torch.optim.SGD(model.parameters()), steps=2, reduction="sum"
    )
    ours = []
    for window in windows:
        for inputs in window:
            window.backward(model(inputs).sum())
            ours.append(float(model.module.weight.grad))
        window.step()
    return {
        "forward only": gradient(True, False),
        "backward only": gradient(False, True),
        "neither": gradient(False, False),
        "both": gradient(True, True),
        "ours": ours,
    }


def bf16_summed_in_fp32(rank: int, world: int) -> dict[str, Any]:
    def gradients(model: nn.Module, batches: list[Batch], fp32: bool) -> Gradients:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        taken = Steps(optimizer)
        for window in accumulate(batches, model, optimizer, steps=24, fp32_gradients=fp32, clip_norm=1e9):
            for batch in window:
                window.backward(loss_of(model, batch).float())
            window.step()
        return taken.gradients[0]

    def batches(rank: int) -> list[Batch]:
        return [batch_of(50, seed=100 * rank + at) for at in range(24)]

    exact: list[torch.Tensor] = []
    for of_rank in range(world):
        for batch in batches(of_rank):
            model = language_model().bfloat16()
            (loss_of(model, batch).float() / (24 * world)).backward()
            own = [each.double() for each in gradients_of(model)]
            exact = [one + other for one, other in zip(exact, own, strict=True)] if exact else own
    rounded = [each.bfloat16() for each in exact]

    def unused(model: nn.Module) -> nn.Module:
        model.register_parameter("unused", nn.Parameter(torch.zeros(3, dtype=torch.bfloat16)))
        return DistributedDataParallel(model)

    return {
        "fp32": difference(gradients(unused(language_model().bfloat16()), batches(rank), True), rounded),
        "bf16": difference(gradients(in_ddp(language_model().bfloat16()), batches(rank), False), rounded),
    }


def refused(rank: int, _: int) -> dict[str, Any]:
    def say(model: nn.Module, **rest: Any) -> str:
        try:
            next(iter(accumulate(batches_on(rank), model, torch.optim.SGD(model.parameters()), steps=2, **rest)))
        except UsageError as error:
            return str(error)
        return ""

    low = language_model().bfloat16()
    fully_shard(low, mp_policy=MixedPrecisionPolicy())
    return {
        "fp32 in FSDP": say(low, fp32_gradients=True),
        "scaler in FSDP1": say(in_fsdp1(language_model()), scaler=torch.amp.GradScaler("cpu")),
        "static graph": say(DistributedDataParallel(language_model(), static_graph=True), sync="last"),
        "effective": say(in_ddp(language_model()), effective=64),
    }


def not_wrapped(rank: int, world: int) -> dict[str, Any]:
    gradients, *_ = train(lambda model: model, batches_on(rank))
    return {"off": [difference(gradients[0], whole_gradients(batches_on(rank)[:3]))]}


def averaged_by_hand(rank: int, world: int) -> dict[str, Any]:
    model = language_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    taken = Steps(optimizer)
    group = torch.distributed.group.WORLD
    for window in accumulate(batches_on(rank), model, optimizer, steps=3, items=count_tokens, group=group):
        for batch in window:
            window.backward(loss_of(model, batch))
        for parameter in model.parameters():
            torch.distributed.all_reduce(parameter.grad)
            parameter.grad /= world
        window.step()
    return {"off": [difference(taken.gradients[0], expected(world, 0, 3, None))]}


def equivalence(rank: int, _: int) -> dict[str, Any]:
    batch = joined(batches_on(rank, 3 + rank))  # a DDP model is checked by each rank alone
    found = {"DDP": check_equivalence(in_ddp(language_model()), loss_of, batch, 10, items=count_tokens).equal}
    for name, wrap in (("FSDP1", in_fsdp1), ("FSDP2", in_fsdp2)):
        try:
            check_equivalence(wrap(language_model()), loss_of, batch, 10)
        except UsageError as error:
            found[name] = str(error)  # type: ignore[assignment]
    return found


ON_FOUR_RANKS = {"FSDP2, tensor parallel": in_fsdp2_and_tensor_parallel} if FSDP2_RUNS_ON_THE_HOST else {}
CASES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "DDP": unequal_tokens(in_ddp),
    "DDP, static graph": unequal_tokens(partial(DistributedDataParallel, static_graph=True)),
    "DDP, bucket views": unequal_tokens(partial(DistributedDataParallel, gradient_as_bucket_view=True)),
    "DDP, every": unequal_tokens(in_ddp, sync="every"),
    "FSDP1": unequal_tokens(in_fsdp1),
    "FSDP1, last": unequal_tokens(in_fsdp1, sync="last"),
    "unequal counts": unequal_counts,
    "unequal counts, carried": unequal_counts_carried,
    "a loader that fails": a_loader_that_fails,
    "no_sync by hand": no_sync_by_hand,
    "bf16": bf16_summed_in_fp32,
    "refused": refused,
    "not wrapped": not_wrapped,
    "averaged by hand": averaged_by_hand,
    "equivalence": equivalence,
}
if FSDP2_RUNS_ON_THE_HOST:
    CASES |= {"FSDP2": unequal_tokens(in_fsdp2), "FSDP2, last": unequal_tokens(in_fsdp2, sync="last")}

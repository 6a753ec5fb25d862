"""The text of a watch: one screen that says what is held, and what each number means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from dryfit.findings import Finding
from dryfit.places import as_seen_from_here
from dryfit.recording import model as phases
from dryfit.units import format_bytes
from dryfit.watching.device_memory import Memory, devices_in_use, memory_of, name_of
from dryfit.watching.host_memory import resident_bytes
from dryfit.watching.step_peaks import StepMeter

_NAME, _SIZE = 18, 11


def of(
    *,
    steps: int,
    meter: StepMeter | None,
    findings: Sequence[Finding],
    models: Sequence[Any],
    optimizers: Sequence[Any],
) -> str:
    """The whole text."""
    lines = [_first_line(steps, meter)]
    for device in devices_in_use():
        memory = memory_of(device)
        if memory.reserved_bytes:
            lines += ["", *_device(device, memory, meter)]
    lines += ["", "host", _row("resident", resident_bytes(), "this process's memory in RAM, shared pages among it")]
    lines += _held(models, optimizers)
    lines += ["", *_findings(findings)]
    return "\n".join(lines)


def _first_line(steps: int, meter: StepMeter | None) -> str:
    seconds = [each.seconds for each in meter.steps] if meter is not None else []
    each = f", {sum(seconds) / len(seconds):.3g} s each of late" if seconds else ""
    return f"dryfit: {steps} step{'' if steps == 1 else 's'} watched{each}"


def _device(device: torch.device, memory: Memory, meter: StepMeter | None) -> list[str]:
    unused = memory.reserved_bytes - memory.allocated_bytes
    lines = [
        f"{device}, {name_of(device)}",
        _row("allocated", memory.allocated_bytes, "what tensors hold now"),
        _row("reserved", memory.reserved_bytes, "what PyTorch has from the driver; nvidia-smi shows this and more"),
        _row("unused", unused, "reserved, and no tensor's: kept for the next ones"),
    ]
    largest = _largest_free(device)
    if largest is not None:
        lines.append(
            _row("largest free", largest, "in one piece of the unused: a larger tensor needs more from the driver")
        )
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        lines.append(_row("free on the card", free, f"of {format_bytes(total)}, all processes counted"))
    highest = meter.highest.get(str(device)) if meter is not None else None
    if meter is None or highest is None:
        return lines
    step, phase, peak = highest
    lines.append(_row("peak allocated", peak.allocated_bytes, f"the most so far, in step {step}, {phase}"))
    for name in phases.PHASES:
        known = meter.by_phase.get(name, {}).get(str(device))
        if known is not None:
            lines.append(_row(f"  {name}", known.allocated_bytes, f"{format_bytes(known.reserved_bytes)} reserved"))
    return lines


def _largest_free(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    return max(
        (
            int(block["size"])
            for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            if segment["device"] == device.index
            for block in segment["blocks"]
            if block["state"] == "inactive"
        ),
        default=0,
    )


def _held(models: Sequence[Any], optimizers: Sequence[Any]) -> list[str]:
    """What the models and optimizers that were given hold, wherever it lies."""
    parameters = {id(each): each for model in models for each in model.parameters()}
    buffers = {id(each): each for model in models for each in model.buffers()}
    gradients = [each.grad for each in parameters.values() if each.grad is not None]
    states = [
        value
        for optimizer in optimizers
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    rows = (
        ("parameters", parameters.values(), "of the models given"),
        ("gradients", gradients, "now; none after zero_grad"),
        ("buffers", buffers.values(), "statistics of norms and the like"),
        ("optimizer states", states, "of the optimizers given; none before the first step"),
    )
    if not models and not optimizers:
        return []
    return ["", "the models and optimizers", *(_row(name, _bytes_of(tensors), note) for name, tensors, note in rows)]


def _bytes_of(tensors: Iterable[Any]) -> int:
    return sum(int(each.nbytes) for each in tensors if each.layout == torch.strided)


def _findings(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return ["findings: none so far"]
    lines = [f"findings: {len(findings)}"]
    for finding in findings:
        place = finding.place
        where = f" {as_seen_from_here(place.file)}:{place.line}" if place is not None else ""
        lines += [f"  {finding.code}{where}: {finding.claim}", f"    {finding.advice}"]
    return lines


def _row(name: str, size_bytes: int, note: str) -> str:
    return f"  {name:<{_NAME}}{format_bytes(size_bytes):>{_SIZE}}  {note}"

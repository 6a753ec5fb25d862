"""Which allocations are 16-bit copies of weights that autocast made and keeps until it is left."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from dryfit.analyse.owners import ACTIVATION, AUTOCAST_COPY, PARAMETER, TEMPORARY, Evidence
from dryfit.recording import model
from dryfit.recording.model import Label, ModuleOutput

_MAY_BE_COPIES = (ACTIVATION, TEMPORARY)


def mark_autocast_copies(
    owners: array[int],
    module_of: array[int],
    modules: Sequence[str],
    outputs: Mapping[str, ModuleOutput],
    evidence: Evidence,
) -> dict[int, Label]:
    """Change the owner of the copies; the labels returned, by allocation, say of which parameters they are.

    A copy is made under autocast, in the call of a module that has a parameter of twice the size, before what the
    module computes, and is still there when the next allocation is made. A module without parameters may share
    those of an embedding. Each parameter is copied once in a pass.
    """
    halves = _halves_by_module(owners, modules, outputs, evidence)
    if not halves:
        return {}
    lifetimes = evidence.lifetimes
    has_autocast, of_event = evidence.stretches.has_autocast, evidence.stretches.of_event
    is_copied: set[tuple[int, int, int]] = set()
    labels: dict[int, Label] = {}
    begins, sizes = lifetimes.begin, lifetimes.requested_bytes
    last = len(lifetimes) - 1
    for index, owner in enumerate(owners):
        if owner not in _MAY_BE_COPIES or begins[index] < 0 or not has_autocast[begins[index]]:
            continue
        parameters = halves.get(module_of[index], {}).get(sizes[index])
        if not parameters or index == last or lifetimes.end[index] < begins[index + 1]:
            continue
        for number, parameter in enumerate(parameters):
            copy = (of_event[begins[index]], parameter.event, number)
            if copy not in is_copied:
                is_copied.add(copy)
                owners[index] = AUTOCAST_COPY
                labels[index] = Label(begins[index], model.AUTOCAST_COPY, parameter.name, "", parameter.shape)
                break
    return labels


def _halves_by_module(
    owners: array[int], modules: Sequence[str], outputs: Mapping[str, ModuleOutput], evidence: Evidence
) -> dict[int, dict[int, list[Label]]]:
    """By module: half the size of its 32-bit parameters, in bytes, and which these are."""
    numbers = {path: number for number, path in enumerate(modules)}
    found: dict[int, dict[int, list[Label]]] = {}
    shared: dict[int, list[Label]] = {}
    for index, owner in enumerate(owners):
        if owner != PARAMETER or evidence.lifetimes.begin[index] not in evidence.labels:
            continue
        parameter = evidence.labels[evidence.lifetimes.begin[index]]
        if parameter.dtype not in ("", "float32"):
            continue
        path = parameter.name.rpartition(".")[0]
        half = evidence.lifetimes.requested_bytes[index] // 2
        if path in numbers:
            found.setdefault(numbers[path], {}).setdefault(half, []).append(parameter)
        if path in outputs and outputs[path].kind == "Embedding":
            shared.setdefault(half, []).append(parameter)
    for path, output in outputs.items():
        if output.kind == "Linear" and path in numbers and numbers[path] not in found and shared:
            found[numbers[path]] = shared
    return found

"""Graphs that live on from step to step: DF101 to DF108 and DF113, by what keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dryfit.findings import Evidence, Finding, Place
from dryfit.findings.finding import DEVICE, HOST
from dryfit.places import Owner, owner_of
from dryfit.units import format_bytes
from dryfit.watching import naming_lines, source_places
from dryfit.watching.census import storage_of
from dryfit.watching.frames import program_codes
from dryfit.watching.graphs import Graphs
from dryfit.watching.growth import LEAST_BYTES_PER_STEP, Growth
from dryfit.watching.held import Held, holders_of
from dryfit.watching.kinds.seen import Seen
from dryfit.watching.kinds.who import is_in_hook, is_metric
from dryfit.watching.torch_private import function_of, sequence_number_of


def findings(carriers: Sequence[Any], graphs: Graphs, growth: Growth, seen: Seen) -> list[Finding]:
    """A finding for each holder of graphs that live on; one without a name if nobody is found."""
    gradient = _name_of_gradient(carriers, seen) if seen.creates else ""
    if seen.creates and (growth.gradients_rise() or gradient):
        seen.situation.has_named_growth = True
        return [_cycle(gradient or "a gradient", seen.creates, seen)]
    everyone = holders_of(carriers, [growth.interval_of(sequence_number_of(each.grad_fn)) for each in carriers])
    seen.situation.has_named_growth |= bool(everyone)
    held = [each for each in everyone if each.is_certain and not each.is_bounded]
    if not held:
        # What a loop lets go of by itself is no leak, however long the graph is now.
        return [] if any(each.is_certain for each in everyone) else [_unnamed(everyone, seen)]
    contexts = _on_contexts(graphs, held, seen)
    if contexts:
        return contexts
    if growth.leaves_rise():
        return [_inputs(graphs, held[0], seen)]
    return [_finding(each, [carriers[number] for number in each.of], seen) for each in held]


def _finding(held: Held, carriers: Sequence[Any], seen: Seen) -> Finding:
    is_scalar = all(each.numel() == 1 for each in carriers)
    adds = held.naming is not None and held.naming.adds
    if is_metric(held):
        return _told(
            "DF103",
            f"{held.name} of {_class_name(held)} keeps the graph of every {seen.unit}",
            "Give the metric values without a graph: detach what is passed to it, or add up under torch.no_grad().",
            held,
            seen,
        )
    if is_in_hook(held.place, seen.situation):
        return _told(
            "DF107",
            f"A hook puts what passes through a module into {held.name}, with its graph, at every {seen.unit}",
            f"Clear {held.name} after each {seen.unit}, remove the hook when it is not needed, or keep "
            f"output.detach() of the last {seen.unit} only.",
            held,
            seen,
            size_bytes=seen.kept_per_step,
        )
    if is_scalar and seen.retains and not seen.is_evaluation:
        return _told(
            "DF105",
            f"backward(retain_graph=True) does not free the graph, and {held.name} keeps that of every {seen.unit}",
            f"Leave retain_graph out where one backward pass is enough, and add {_item(held)} instead.",
            held,
            seen,
            place=seen.retains,
        )
    if is_scalar:
        return _told(
            "DF101",
            f"{held.name} keeps the graph of every {seen.unit}",
            f"Keep the number alone: {_item(held)}, or loss.detach() to add up on the card without waiting for it.",
            held,
            seen,
        )
    if adds and seen.is_evaluation:
        return _told(
            "DF202",
            f"{held.name} gathers the outputs of the evaluation together with their graphs",
            "Evaluate under torch.no_grad() or torch.inference_mode(), and keep what is needed of each output on the "
            "host: its argmax, or output.cpu().",
            held,
            seen,
            size_bytes=seen.kept_per_step,
        )
    if adds:
        return _told(
            "DF102",
            f"{held.name} keeps the outputs of every {seen.unit}, with their graphs",
            "Keep what is needed of each output only: a number by .item(), or output.detach().cpu().",
            held,
            seen,
            size_bytes=seen.kept_per_step,
        )
    return _told(
        "DF104",
        f"{held.name} goes from {seen.unit} to {seen.unit} together with its graph, which gets longer with each",
        f"Detach it where one {seen.unit} ends: {held.name} = {held.name}.detach() (of a tuple each part).",
        held,
        seen,
        more=(seen.retains,) if seen.retains else (),
    )


def _told(
    code: str,
    claim: str,
    advice: str,
    held: Held,
    seen: Seen,
    *,
    size_bytes: int = 0,
    place: Place | None = None,
    more: Sequence[Place] = (),
) -> Finding:
    """A finding whose claim says how many nodes, and whose memory: the card's only where its own count rises."""
    nodes = f": {seen.nodes_per_step} nodes of it for each {seen.unit}, {seen.span()}"
    if seen.allocated_per_step:
        memory, grows = DEVICE, seen.allocated_per_step
        costs = f"The card's memory grows by {format_bytes(grows)} for each {seen.unit}."
    elif not seen.has_backward and not seen.is_on_card:
        memory, grows = HOST, seen.graph_bytes_per_step + size_bytes
        costs = (
            f"No backward pass goes through it, so all that was saved for one is kept, beside about "
            f"{format_bytes(grows)} of the host's memory for each {seen.unit} for the graph itself."
        )
    else:
        memory, grows = HOST, seen.graph_bytes_per_step + (0 if seen.is_on_card else size_bytes)
        costs = (
            f"After backward such a graph takes no memory of the card worth speaking of, but about "
            f"{format_bytes(grows)} of the host's for each {seen.unit}."
        )
    first = place or held.place
    others = [each for each in (held.place, *more) if each is not None and each != first]
    return Finding(
        code=code,
        claim=f"{claim}{nodes}. {costs}",
        advice=advice,
        place=first,
        more_places=tuple(others),
        evidence=Evidence(
            memory=memory,
            bytes_per_step=grows,
            first_step=seen.first_step,
            last_step=seen.last_step,
            holder=held.name,
            chain=held.chain,
            numbers={"graph_nodes_per_step": seen.nodes_per_step},
        ),
    )


def _item(held: Held) -> str:
    return f"{held.name}.append(loss.item())" if held.naming and held.naming.adds else f"{held.name} += loss.item()"


def _class_name(held: Held) -> str:
    return next((kind.__name__ for kind in held.classes if kind.__module__ != "builtins"), "a metric")


def _on_contexts(graphs: Graphs, held: Sequence[Held], seen: Seen) -> list[Finding]:
    """Tensors that a Function of the program's keeps on ctx, which live as long as the graph does."""
    sizes: dict[tuple[Any, str], int] = {}
    for context in graphs.contexts:
        function = function_of(context)
        code = getattr(getattr(function, "forward", None), "__code__", None)
        if code is None or owner_of(code.co_filename) is Owner.MACHINERY:
            continue
        for name, value in vars(context).items():
            storage = storage_of(value) if isinstance(value, torch.Tensor) else None
            if storage is not None and storage.device in seen.home:
                sizes[function, name] = sizes.get((function, name), 0) + storage.size_bytes
    found = []
    steps = max(seen.last_step - seen.first_step + 1, 1)
    for (function, name), size_bytes in sizes.items():
        if size_bytes // steps < LEAST_BYTES_PER_STEP:
            continue
        naming = naming_lines.of_attribute(function, name, program_codes())
        keeper = held[0]
        found.append(
            Finding(
                code="DF106",
                claim=f"{function.__name__} keeps a tensor on ctx.{name}, which backward does not free; {keeper.name} "
                f"keeps the graph of every {seen.unit} and with it "
                f"{seen.tells_of(size_bytes // steps)}, {seen.span()}.",
                advice=f"Hand the tensor to ctx.save_for_backward, which frees it after backward, and let "
                f"{keeper.name} keep values without their graph.",
                place=naming.place if naming else source_places.first_line(function.forward.__code__),
                more_places=tuple(each.place for each in held if each.place is not None),
                evidence=Evidence(
                    memory=seen.memory,
                    bytes_per_step=size_bytes // steps,
                    first_step=seen.first_step,
                    last_step=seen.last_step,
                    holder=f"ctx.{name}",
                    chain=(keeper.name, *keeper.chain, f"ctx.{name}"),
                    numbers={"graph_nodes_per_step": seen.nodes_per_step},
                ),
            )
        )
    return found


def _inputs(graphs: Graphs, held: Held, seen: Seen) -> Finding:
    """Inputs that wait for gradients: the graph keeps them, and the gradients that they got."""
    storages = {each for each in map(storage_of, graphs.leaves) if each is not None and each.device in seen.home}
    with_gradients = sum(each.size_bytes for each in storages) + sum(
        each.grad.nbytes for each in graphs.leaves if each.grad is not None
    )
    per_step = seen.allocated_per_step or with_gradients // max(len(graphs.leaves), 1)
    place = next(filter(None, map(_requires_grad_line, program_codes())), None)
    first = place or held.place
    return Finding(
        code="DF108",
        claim=f"The inputs require gradients, and {held.name} keeps the graph of every {seen.unit}, with it the inputs "
        f"and their gradients: {seen.tells_of(per_step)}, {seen.span()}.",
        advice=f"Leave requires_grad off where no gradient of the input is needed, and let {held.name} keep values "
        f"without their graph: .item() or .detach().",
        place=first,
        more_places=tuple(each for each in (held.place,) if each is not None and each != first),
        evidence=Evidence(
            memory=seen.memory,
            bytes_per_step=per_step,
            first_step=seen.first_step,
            last_step=seen.last_step,
            holder=held.name,
            chain=held.chain,
            numbers={"graph_nodes_per_step": seen.nodes_per_step, "inputs": len(graphs.leaves)},
        ),
    )


def _requires_grad_line(code: Any) -> Place | None:
    """The last line of a function that has an input require gradients."""
    for place in (
        source_places.of_call(code, "requires_grad_"),
        source_places.of_attribute_assignment(code, "requires_grad"),
        source_places.of_keyword(code, "requires_grad"),
    ):
        if place is not None:
            return place
    return None


def _name_of_gradient(carriers: Sequence[Any], seen: Seen) -> str:
    """The parameter whose gradient is among the carriers."""
    numbers = {id(each) for each in carriers}
    for model in seen.situation.models():
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and id(parameter.grad) in numbers:
                return f"{name}.grad"
    return ""


def _cycle(gradient: str, place: Place, seen: Seen) -> Finding:
    grows = seen.allocated_per_step
    costs = (
        f"The card's memory grows by {format_bytes(grows)} for each {seen.unit}."
        if grows
        else f"That is about {format_bytes(seen.graph_bytes_per_step)} of the host's memory for each {seen.unit} for "
        f"the nodes alone, beside what they have saved."
    )
    return Finding(
        code="DF113",
        claim=f"backward(create_graph=True) leaves gradients that have a graph of their own, and {gradient} keeps "
        f"those of all {seen.unit}s before: {seen.nodes_per_step} nodes for each, {seen.span()}. {costs}",
        advice="Take such gradients by torch.autograd.grad(loss, parameters, create_graph=True), which leaves none on "
        "the parameters; or set them to None after each step: optimizer.zero_grad(set_to_none=True).",
        place=place,
        evidence=Evidence(
            memory=DEVICE if grows else HOST,
            bytes_per_step=grows or seen.graph_bytes_per_step,
            first_step=seen.first_step,
            last_step=seen.last_step,
            holder=gradient,
            numbers={"graph_nodes_per_step": seen.nodes_per_step},
        ),
    )


def _unnamed(held: Sequence[Held], seen: Seen) -> Finding:
    is_devices = seen.allocated_per_step > 0
    grows = seen.allocated_per_step if is_devices else seen.graph_bytes_per_step
    near = f" It can be reached from {held[0].name}." if held else ""
    return Finding(
        code="DF114" if is_devices else "DF115",
        claim=f"The graphs of earlier {seen.unit}s are kept, {seen.nodes_per_step} nodes for each, {seen.span()}, "
        f"about {format_bytes(grows)} of {'the card' if is_devices else 'the host'}'s memory for each.{near}",
        advice="Look for a tensor that is kept from step to step without .detach() or .item().",
        place=held[0].place if held else seen.retains,
        evidence=Evidence(
            memory=DEVICE if is_devices else HOST,
            bytes_per_step=grows,
            first_step=seen.first_step,
            last_step=seen.last_step,
            holder=held[0].name if held else "",
            chain=held[0].chain if held else (),
            numbers={"graph_nodes_per_step": seen.nodes_per_step},
        ),
    )

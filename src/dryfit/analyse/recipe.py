"""How many bytes a parameter takes, with its gradient and its optimizer's states: what people work out by hand."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.footprint import OwnerBytes, Recipe
from dryfit.analyse.holdings import Ledger
from dryfit.analyse.tensor_names import size_of
from dryfit.recording.model import GRADIENT, OPTIMIZER_STATE, OWNERS, PARAMETER, Label
from dryfit.recording.replay import Lifetimes

_PARTS = (PARAMETER, GRADIENT, OPTIMIZER_STATE)
# What part of the parameters' bytes has to have shapes; the rest may be views that a library made.
_KNOWN = 0.99
# A recording's name for what an optimizer trains and no module has.
_OF_OPTIMIZER = re.compile(r"parameter \d+$")


def recipe_of(labels: Iterable[Label], lifetimes: Lifetimes, attribution: Attribution, ledger: Ledger) -> Recipe | None:
    """The parameters, gradients and states at their largest, for each element of the parameters.

    None where no parameters are known, or not what shapes they have. Elements are what PyTorch counts: of weights of
    4 bits, two in one of uint8. Copies in float32 that an optimizer trains in place of a model's parameters of 16 bits
    take bytes, and are no further elements.
    """
    by_place: dict[int, list[int]] = {OWNERS.index(owner): [] for owner in _PARTS}
    for index, place in enumerate(attribution.owner):
        if place in by_place:
            by_place[place].append(index)
    most = {OWNERS[place]: _most_alive(indexes, lifetimes, ledger) for place, indexes in by_place.items()}
    labels_of = _parameters_by_event(labels)
    labelled = {index: labels_of.get(lifetimes.begin[index], ()) for index in most[PARAMETER]}
    parameters = _elements(_without_master_copies(labelled), lifetimes, ledger)
    if not parameters:
        return None
    parts = tuple(
        OwnerBytes(owner=owner, size_bytes=sum(ledger.owned_bytes[index] for index in alive), blocks=len(alive))
        for owner, alive in most.items()
    )
    size_bytes = sum(part.size_bytes for part in parts)
    return Recipe(
        parameters=parameters, parts=parts, size_bytes=size_bytes, sentence=_sentence(parameters, parts, size_bytes)
    )


def _sentence(parameters: int, parts: Iterable[OwnerBytes], size_bytes: int) -> str:
    each = [f"{part.size_bytes / parameters:.2f} {part.owner}" for part in parts if part.size_bytes]
    of_all = f"for each of {_in_words(parameters)} parameters"
    if len(each) == 1:
        return f"{each[0]} bytes {of_all}."
    return f"{' + '.join(each)} = {size_bytes / parameters:.2f} bytes {of_all}, each part when it is largest."


def _most_alive(indexes: Sequence[int], lifetimes: Lifetimes, ledger: Ledger) -> list[int]:
    """Those of the allocations that are there at the first moment when they hold most."""
    changes = [(lifetimes.begin[index], ledger.owned_bytes[index]) for index in indexes]
    changes += [(lifetimes.end[index], -ledger.owned_bytes[index]) for index in indexes]
    held_bytes = most_bytes = 0
    moment = -1
    for event, change_bytes in sorted(changes):
        held_bytes += change_bytes
        if held_bytes > most_bytes:
            most_bytes, moment = held_bytes, event
    return [index for index in indexes if lifetimes.begin[index] <= moment < lifetimes.end[index]]


def _parameters_by_event(labels: Iterable[Label]) -> Mapping[int, list[Label]]:
    """Each allocation's labels of parameters; the same one once, be it as it was labelled in many steps."""
    found: dict[int, dict[tuple[str, tuple[int, ...] | None], Label]] = defaultdict(dict)
    for label in labels:
        if label.owner == PARAMETER:
            found[label.event][label.name, label.shape] = label
    return {event: list(by_name.values()) for event, by_name in found.items()}


def _without_master_copies(labelled: Mapping[int, Sequence[Label]]) -> Mapping[int, Sequence[Label]]:
    copies = {
        index
        for index, labels in labelled.items()
        if labels and all(_OF_OPTIMIZER.match(label.name) and label.dtype == "float32" for label in labels)
    }
    own = {index: labels for index, labels in labelled.items() if index not in copies}
    types = {label.dtype for labels in own.values() for label in labels}
    return own if types and types <= {"float16", "bfloat16"} else labelled


def _elements(labelled: Mapping[int, Sequence[Label]], lifetimes: Lifetimes, ledger: Ledger) -> int:
    """The elements of the parameters; 0 where too many have no shape.

    Several may share an allocation, as the weights of an LSTM do; where together they are larger than it, they
    are views of the same bytes, and the largest counts.
    """
    elements = known_bytes = all_bytes = 0
    for index, labels in labelled.items():
        all_bytes += ledger.owned_bytes[index]
        most_bytes = lifetimes.requested_bytes[index]
        sized = [(size_of(label), label) for label in labels]
        fitting = [
            (size, math.prod(label.shape or ())) for size, label in sized if size is not None and size <= most_bytes
        ]
        if fitting:
            are_apart = sum(size for size, _ in fitting) <= most_bytes
            elements += sum(count for _, count in fitting) if are_apart else max(fitting)[1]
            known_bytes += ledger.owned_bytes[index]
    return elements if known_bytes >= _KNOWN * all_bytes else 0


def _in_words(count: int) -> str:
    """A count of parameters as people say it.

    >>> _in_words(124439808), _in_words(999), _in_words(6738415616)
    ('124.4 M', '999', '6.74 B')
    """
    if count >= 10**9:
        return f"{count / 10**9:.2f} B"
    if count >= 10**6:
        return f"{count / 10**6:.1f} M"
    return f"{count:,}"

"""What bitsandbytes' optimizers keep: their states have a dtype of their own, whatever the parameters have."""

from __future__ import annotations

from dryfit.estimate.model import Seen
from dryfit.estimate.state import State

# The constants of bitsandbytes 0.50, optim/optimizer.py.
SMALLEST_8BIT_ELEMENTS = 4096
ELEMENTS_OF_A_BLOCK = 256
SMALLEST_PAGED_ELEMENTS = 100_000
MAP_ELEMENTS = 256

_FLOAT_BYTES = 4


def states(seen: Seen, *, count: int, bits: int, paged: bool) -> list[State]:
    """The states of an optimizer with `count` moments of `bits` bits each, all tensors together.

    Tensors below 4096 elements have them in float32; those of 8 bits have a float32 scale for each 256 values, and all
    share one table of 256 float32 values for each moment. Of a paged optimizer, tensors of 100,000 elements or more
    have them in managed memory, unrounded.
    """
    on_card = managed = scales = 0
    any_8bit = False
    for tensor in seen.tensors:
        elements = tensor.elements
        in_8bit = bits == 8 and (elements >= SMALLEST_8BIT_ELEMENTS or not seen.shapes_known)
        itemsize = 1 if in_8bit else _FLOAT_BYTES
        if paged and (elements >= SMALLEST_PAGED_ELEMENTS or not seen.shapes_known):
            managed += elements * itemsize
        else:
            on_card += seen.block_bytes(elements, itemsize)
        if in_8bit:
            any_8bit = True
            scales += seen.block_bytes(-(-elements // ELEMENTS_OF_A_BLOCK), _FLOAT_BYTES)
    return [
        state
        for number in range(1, count + 1)
        for state in _of_one_moment(number, bits, on_card, managed, scales, any_8bit, seen)
    ]


def _of_one_moment(
    number: int, bits: int, on_card: int, managed: int, scales: int, any_8bit: bool, seen: Seen
) -> list[State]:
    dtype = "8 bits each" if bits == 8 else "float32, whatever the parameters are"
    small = f"; float32 for tensors below {SMALLEST_8BIT_ELEMENTS} elements" if bits == 8 and seen.shapes_known else ""
    found = []
    if managed:
        what = f"{dtype}, in managed memory: the driver moves it to the host when the card is full"
        found.append(State(name=f"state{number}, paged", size_bytes=managed, what=what, managed=True))
        small = f"; of tensors below {SMALLEST_PAGED_ELEMENTS:,} elements, which are not paged"
    if on_card or not managed:
        found.append(State(name=f"state{number}", size_bytes=on_card, what=dtype + small))
    if any_8bit:
        what = f"a float32 scale for each {ELEMENTS_OF_A_BLOCK} values"
        found.append(State(name=f"absmax{number}", size_bytes=scales, what=what))
        map_bytes = seen.block_bytes(MAP_ELEMENTS, _FLOAT_BYTES)
        found.append(State(name=f"qmap{number}", size_bytes=map_bytes, what="the table of values, shared by all"))
    return found

"""Which line of a stack is the one that a person asks for."""

from __future__ import annotations

import re
from array import array
from enum import IntEnum

from dryfit.places import Owner, owner_of
from dryfit.recording.stacks import Stacks

NO_LINE = ("", 0, "")

# Cells of notebooks: the program's own, for all that their names begin as generated code's do.
_CELL = re.compile(r"<ipython-input-|/ipykernel_\d+/")
_PYTHON = re.compile(r"\.pyw?$|^<|/[^/.]+$")
# Snapshots that were shared often have names without the folders that tell whose a file is.
_TORCH = re.compile(r"^(?:torch|triton|functorch)/")
_LIBRARY = re.compile(
    r"^(?:accelerate|bitsandbytes|deepspeed|diffusers|liger_kernel|lightning|peft|pytorch_lightning|timm|torchvision"
    r"|transformers|trl|vllm|xformers)/"
)


class Rank(IntEnum):
    """How good an answer a frame is. Frames of C++ and of torch are none."""

    NONE = 0
    LIBRARY = 1
    PROGRAM = 2


def is_python(file: str) -> bool:
    """Whether a frame's file is Python source; torch's snapshots have frames of C++ too.

    >>> is_python("train.py"), is_python("c10/cuda/CUDACachingAllocator.cpp"), is_python("??")
    (True, False, False)
    """
    return bool(_PYTHON.search(file))


def rank_of(file: str) -> Rank:
    """How good an answer a frame in this file is.

    >>> rank_of("models/net.py").name, rank_of("site-packages/trl/trainer.py").name, rank_of("torch/_tensor.py").name
    ('PROGRAM', 'LIBRARY', 'NONE')
    """
    if _CELL.search(file):
        return Rank.PROGRAM
    if not is_python(file) or _TORCH.search(file):
        return Rank.NONE
    if _LIBRARY.search(file):
        return Rank.LIBRARY
    owner = owner_of(file if file.startswith(("/", "<")) else f"/{file}")
    return {Owner.PROGRAM: Rank.PROGRAM, Owner.LIBRARY: Rank.LIBRARY, Owner.MACHINERY: Rank.NONE}[owner]


def lines_of(stacks: Stacks) -> tuple[array[int], list[tuple[str, int, str]]]:
    """Each stack's line, as a place in the list of lines (file, line, function) that comes second.

    >>> from dryfit.recording.stacks import Frame
    >>> stacks = Stacks()
    >>> stack = stacks.add([Frame("/x/site-packages/torch/_tensor.py", "to", 9), Frame("a.py", "f", 3)])
    >>> places, lines = lines_of(stacks)
    >>> lines[places[stack]]
    ('a.py', 3, 'f')

    It is the innermost line of the program's own; where there is none, the innermost line of a library; else place 0,
    `NO_LINE`.
    """
    ranks: dict[str, Rank] = {}
    for frame in stacks.all_frames:
        if frame.file not in ranks:
            ranks[frame.file] = rank_of(frame.file)
    frame_ranks = [ranks[frame.file] for frame in stacks.all_frames]
    lines, places = [NO_LINE], {NO_LINE: 0}
    frame_places = array("I", [0]) * len(frame_ranks)
    for number, frame in enumerate(stacks.all_frames):
        if frame_ranks[number]:
            line = (frame.file, frame.line, frame.name)
            frame_places[number] = places.setdefault(line, len(lines))
            if frame_places[number] == len(lines):
                lines.append(line)
    best_rank = bytearray(len(stacks))
    best_line = array("I", [0]) * len(stacks)
    for stack, (frame_number, caller) in enumerate(zip(stacks.frame_of, stacks.caller_of, strict=True)):
        if stack == 0:
            continue
        rank = frame_ranks[frame_number]
        if rank and rank >= best_rank[caller]:
            best_rank[stack], best_line[stack] = rank, frame_places[frame_number]
        else:
            best_rank[stack], best_line[stack] = best_rank[caller], best_line[caller]
    return best_line, lines

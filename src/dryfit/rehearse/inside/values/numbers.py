"""Numbers that the program reads from the card: true, or what it is told instead."""

from __future__ import annotations

import linecache
from typing import Any

import torch

from dryfit.rehearse.assumptions import Assumption
from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values import host, wording
from dryfit.rehearse.inside.values.engine import Engine, Kernel, stand_in_for
from dryfit.rehearse.inside.values.known import SMALL_BYTES
from dryfit.rehearse.inside.values.operators import Operator

# Pinned memory is where data is moved to rather than read: what is larger than this stays as the card's copy left it,
# and takes no memory here. Offloaded activations are many.
_PINNED_BYTES = 64 << 10

# A loop that waits for a value no kernel computes, as for the token that ends a text, would never end. More turns than
# the longest texts that are made in a training step; each takes some milliseconds.
_MOST_TURNS = 4096


def item(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`item()`, `bool(x)`, `if x:`"""
    (tensor,) = args
    read = kernel(*args, **kwargs)  # also what raises, as it must, while a graph is captured
    is_chosen = engine.known.choice_in(args) is not None
    if engine.known.is_true(tensor) and not is_chosen:
        return read
    if engine.hints.numbers:
        return engine.hints.numbers.pop(0)
    setting = _setting(engine, tensor.dtype)
    if engine.known.is_true(tensor) and (setting is None or not setting.line):  # it follows from a choice
        return _ending_loops(engine, read, is_chosen=True) if tensor.dtype is torch.bool else read
    answer = read if engine.known.is_assumed(tensor) else stand_in_for(tensor.dtype)
    if setting is not None:
        answer = _as(tensor.dtype, setting.value)
    elif tensor.dtype is torch.bool:
        answer = _ending_loops(engine, answer, is_chosen=is_chosen)
    what = f"item of {_type(tensor)}"
    engine.record(what, f"{answer}{wording.by(setting)}", decides_size=False, kind="item")
    return answer


def read_to_host(engine: Engine, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`cpu()`, `tolist()`, `numpy()`: a copy of the card's tensor `args[1]` into the CPU's `args[0]`."""
    result = kernel(*args, **kwargs)
    target, source = args[:2]
    if source.numel() == 0 or torch_private.is_capturing():
        return result
    if source.nbytes > SMALL_BYTES and not engine.known.is_true(source):
        return result
    with torch_private.without_torch_function(), torch_private.below_autograd():
        if engine.known.is_true(source):
            target.copy_(host.on_host(source))
            # Counts for each expert, by which a program splits; a number alone is looked at rather than used as a size.
            if source.numel() > 1 and source.dim() == 1 and not source.is_floating_point():
                engine.sizes_follow_from(source)
            return result
        setting = _setting(engine, source.dtype)
        if setting is not None:
            target.fill_(_as(source.dtype, setting.value))
        elif engine.known.is_assumed(source):
            target.copy_(host.on_host(source))
        elif source.nbytes > _PINNED_BYTES and target.is_pinned():
            return result
        else:
            target.fill_(stand_in_for(source.dtype))
        first = target.reshape(-1)[0].item()
    what = f"copy of {_type(source)} to the host"
    engine.record(what, f"{first}{wording.by(setting)}", decides_size=False, kind="item")
    return result


def equal(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """`torch.equal`, which reads the one bool it gives."""
    true = engine.attempt(operator, args, kwargs) if engine.is_true(*args) else None
    with engine.telling(operator.base, numbers=() if true is None else (true,)):
        return kernel(*args, **kwargs)


def _setting(engine: Engine, dtype: torch.dtype) -> Assumption | None:
    """What to take for a number at this line; the number for all of them is not for questions of yes and no."""
    setting = engine.setting("item")
    return setting if setting is None or setting.line or dtype is not torch.bool else None


def _as(dtype: torch.dtype, value: Any) -> Any:
    if dtype is torch.bool:
        return bool(value)
    if dtype.is_floating_point or dtype.is_complex:
        return value
    limits = torch.iinfo(dtype)  # an image's bytes may be asked for like any number
    return max(limits.min, min(limits.max, int(value)))


def _ending_loops(engine: Engine, answer: Any, *, is_chosen: bool) -> Any:
    """The answer, or the other one where a loop of the program has had it so often that nothing else would end it.

    That is `while`, whatever it asks; and elsewhere what follows from tokens that were chosen: `if done.all(): break`.
    A library's loops have bounds of their own.
    """
    program, library = engine.inventions.places()
    if program is None or library is not None:
        return answer
    code, line = program
    if not linecache.getline(code.co_filename, line).lstrip().startswith("while ") and (answer or not is_chosen):
        return answer
    setting = engine.setting("turns")
    most = int(setting.value) if setting is not None else _MOST_TURNS
    before, turns = engine.turns.get(program, (answer, 0))
    turns = turns + 1 if before == answer else 1
    if turns < most:
        engine.turns[program] = answer, turns
        return answer
    engine.turns.pop(program)
    stated = f"{not answer} after {most:,} turns{wording.by(setting)}"
    engine.record("the end of a loop", stated, decides_size=True, kind="turns", size=most)
    return not answer


def _type(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return f"{name}{list(tensor.shape)}" if tensor.dim() else name

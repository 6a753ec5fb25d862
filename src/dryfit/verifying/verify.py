"""One program, rehearsed and for real, and the row that comes of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.rehearse.events import ENOUGH
from dryfit.rehearse.limits import INTERRUPTED
from dryfit.rehearse.result import Ending, Result
from dryfit.units import format_bytes
from dryfit.verifying.comparison import FAILED, RAN, STOPPED
from dryfit.verifying.privacy import hash_of_source, public_words
from dryfit.verifying.real_card import RealCard, Twin, cards_here, check_driver, twin_of
from dryfit.verifying.row import Row
from dryfit.verifying.sides import HowToRun, RealRun, check_reach, run_for_real, run_virtually
from dryfit.virtual_card import CardSettings, environment, installed_torch

# Libraries that take memory of the card, or decide how much a program takes.
_PACKAGES = (
    "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-nccl-cu13",
    "nvidia-nccl-cu12", "triton", "torchvision", "transformers", "accelerate", "lightning", "peft", "trl", "timm",
    "bitsandbytes", "deepspeed", "flash-attn", "xformers", "liger-kernel",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The row of a comparison, and what is not in it because it is the user's own: how each run ended, in words."""

    row: Row
    real_ending: Ending
    virtual_ending: Ending

    @property
    def exit_code(self) -> int:
        """0: both runs came out alike; 1: they did not; 2: the program fails on both; 3: a limit ended the real run."""
        real, virtual = self.row.real.outcome, self.row.virtual.outcome
        if real == STOPPED:
            return 130 if self.real_ending.how == INTERRUPTED else 3
        if real != virtual:
            return 1
        return 2 if real == FAILED else 0


def look(stand_in: CardSettings | None = None) -> tuple[RealCard, Twin]:
    """Find this machine's card and its twin, and see that a program can run on it.

        real, twin = look()

    `stand_in` is a virtual card in place of the real one, for tests.

    Raises:
        UsageError: there is no driver, no card, several kinds of cards, a card that others have filled, a torch without
            CUDA or for a newer one than the driver's.
    """
    build = installed_torch()
    build.require_cuda()
    variables = {**os.environ, **(environment(stand_in, build) if stand_in is not None else {})}
    real = cards_here(variables)
    if real.is_virtual and stand_in is None:
        raise UsageError(
            f"The card of this machine, {real.name}, is a virtual one: dryfit's library is in front of CUDA's "
            "(LD_PRELOAD). Start `dryfit verify` without it, on a machine with a real card."
        )
    assert build.cuda is not None
    check_driver(real, build.version, build.cuda)
    twin = twin_of(real)
    outside_bytes = find_card(twin.gpu, memory_bytes=twin.memory_bytes).outside_bytes
    used_bytes = real.used_before_bytes or 0
    if used_bytes + outside_bytes >= real.total_bytes:
        raise UsageError(
            f"Other programs hold {format_bytes(used_bytes)} of the card's {format_bytes(real.total_bytes)}, which "
            "leaves no room for this one; `nvidia-smi` lists them. Wait until they are gone, or choose another card "
            "with CUDA_VISIBLE_DEVICES."
        )
    return real, twin


def verify(
    words: Sequence[str],
    real: RealCard,
    twin: Twin,
    *,
    steps: int | str | None = None,
    how: HowToRun,
    stand_in: CardSettings | None = None,
) -> Verified:
    """Rehearse a program on a card's twin, then run it for real for as many optimiser steps, and compare.

        real, twin = look()
        verified = verify(["train.py", "--batch", "8"], real, twin, how=HowToRun(seconds=600))
        verified.row.to_json()

    `steps` is a number, "all", or None: as many as the rehearsal takes to be steady.

    Raises:
        UsageError: no such program; the driver cannot be reached from within the sandbox; or the rehearsal was stopped
            by a limit, or put nothing on the card, so that nothing was run for real.
        KeyboardInterrupt: the rehearsal was interrupted.
    """
    check_reach(how, stand_in)
    virtual, result = run_virtually(words, twin, real, steps=steps, how=how)
    if result.ending.how == INTERRUPTED:
        raise KeyboardInterrupt
    if virtual.outcome == STOPPED or (virtual.outcome == RAN and not virtual.peak_reserved_bytes):
        raise UsageError(f"In the rehearsal, {result.ending.sentence} Nothing was run for real.")
    run = run_for_real(words, real, steps=_steps_of(result, steps), how=how, stand_in=stand_in)
    row = Row(
        card=real,
        twin=twin.key,
        versions=_versions(result, run),
        allocator_settings=result.allocator_settings,
        program=public_words(words),
        source_sha256=hash_of_source(result.files),
        real=run.side,
        virtual=virtual,
        virtual_total_range=result.peak_total_range_bytes,
        notes=_notes(real, run, result),
    )
    return Verified(row=row, real_ending=run.ending, virtual_ending=result.ending)


def _steps_of(result: Result, asked: int | str | None) -> int | None:
    """How many steps to run for real: those of the rehearsal, to the program's end if it got there, else as asked."""
    if result.ending.how in ENOUGH:
        return result.steps
    if result.ending.how == "finished" or asked == "all":
        return 0
    return int(asked) if asked is not None else None


def _notes(real: RealCard, run: RealRun, result: Result) -> list[str]:
    """What a reader of the row has to know of its figures; nothing that names a file."""
    notes = []
    if real.used_before_bytes is None:
        notes.append("The driver does not say what was used of the card before, so the totals are not compared.")
    elif real.used_before_bytes:
        notes.append(
            f"Before the program ran, {format_bytes(real.used_before_bytes)} of the card were in use; if that changed "
            "meanwhile, the total is off by it."
        )
    if real.is_mig:
        notes.append("The card is a part of one (MIG); it was rehearsed as a card of that size.")
    if run.side.processes > 1 or (result.processes and len(result.processes) > 1):
        notes.append("Several processes used the card; the figures are those of the one that took most.")
    unknown = [each.what for each in result.unknowns if each.decides_size]
    notes += [f"Not known on the virtual card: {what}." for what in dict.fromkeys(unknown)]
    return notes


def _versions(result: Result, run: RealRun) -> dict[str, str]:
    versions = {name: version for name, version in result.versions.items() if version} | run.versions
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions

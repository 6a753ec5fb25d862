"""The card of this machine, and its virtual twin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dryfit.cards import Card, all_cards
from dryfit.errors import DryfitError, UsageError
from dryfit.units import format_bytes
from dryfit.verifying.driver import NO_CARD, NO_DRIVER

ASK = (sys.executable, "-m", "dryfit.verifying.driver")
SECONDS_TO_ANSWER = 60.0  # a card that sleeps takes some seconds to wake


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCard:
    """A card as its driver describes it, before the program runs.

    `total_bytes` is what PyTorch sees of it; `used_before_bytes` is what others held of it then, None where the driver
    does not say. `cuda` is the newest CUDA that the driver runs. `count` is how many such cards the program sees.
    `is_mig` says that it is a part of a card (MIG), `is_virtual` that it is no real card at all, as in dryfit's tests.
    """

    name: str
    sm: int
    sm_count: int
    max_threads_per_sm: int
    l2_bytes: int
    total_bytes: int
    used_before_bytes: int | None
    driver: str | None
    cuda: str
    count: int = 1
    is_mig: bool = False
    is_virtual: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The card to rehearse on, as `--gpu` takes it; `key` is the catalogue's, or "by hand"."""

    gpu: str
    memory_bytes: int
    key: str


def cards_here(variables: Mapping[str, str] = os.environ) -> RealCard:
    """Ask the driver of this machine for the card that a program with this environment would run on.

        card = cards_here()
        card.name, card.driver

    Raises:
        UsageError: there is no driver or no card, or there are cards of several kinds; the message says what to do.
    """
    try:
        done = subprocess.run(ASK, env=asking(variables), capture_output=True, text=True, timeout=SECONDS_TO_ANSWER)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"The NVIDIA driver did not answer within {SECONDS_TO_ANSWER:g} seconds; see whether nvidia-smi does, and "
            "restart the driver or the machine if it does not."
        ) from None
    if done.returncode:
        raise DryfitError(
            f"The NVIDIA driver could not be asked for its cards: the process that does it ended with status "
            f"{done.returncode}. This is our fault; please report it with these lines:\n{done.stderr}"
        )
    return card_of(json.loads(done.stdout), hidden=variables.get("CUDA_VISIBLE_DEVICES"))


def asking(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of `ASK`: a program's, with this very dryfit in it."""
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), variables.get("PYTHONPATH"))))
    return {**variables, "PYTHONPATH": paths}


def card_of(answer: Mapping[str, Any], *, hidden: str | None = None) -> RealCard:
    """Read what `driver.ask` gave; `hidden` is CUDA_VISIBLE_DEVICES, where that is set.

    Raises:
        UsageError: as `cards_here`.
    """
    if "problem" in answer:
        raise UsageError(_sentence(answer["problem"], answer["reason"], hidden))
    cards: Sequence[Mapping[str, Any]] = answer["cards"]
    kinds = {(each["name"], each["sm_count"], each["total_bytes"]) for each in cards}
    if len(kinds) > 1:
        named = ", ".join(f"{number}: {each['name']}" for number, each in enumerate(cards))
        raise UsageError(
            f"This machine has cards of several kinds ({named}), and a row is about one. Choose it: "
            "CUDA_VISIBLE_DEVICES=0 dryfit verify ..."
        )
    # On a virtual card a context is there from the start, and it is the program's.
    used = [0 if answer["is_virtual"] else each["used_before_bytes"] for each in cards]
    return RealCard(
        **{**cards[0], "used_before_bytes": used[0] if len(set(used)) == 1 else None},
        driver=answer["driver"],
        cuda=answer["cuda"],
        count=len(cards),
        is_mig=" MIG " in cards[0]["name"],
        is_virtual=answer["is_virtual"],
    )


def twin_of(real: RealCard) -> Twin:
    """The card to rehearse on: the catalogue's of that name and chip, else one made of what the driver says.

    Either way with the memory that the real one has.
    """
    alike = [card for card in all_cards() if _is_alike(card, real)]
    if alike and not real.is_mig:
        card = min(alike, key=lambda card: abs(card.total_bytes - real.total_bytes))
        return Twin(gpu=card.key, memory_bytes=real.total_bytes, key=card.key)
    name = "".join(" " if letter in ",=;" else letter for letter in real.name).strip()
    given = {
        "sm": real.sm,
        "sms": real.sm_count,
        "memory": real.total_bytes,
        "threads": real.max_threads_per_sm,
        "l2": real.l2_bytes,
        "name": name,
    }
    gpu = ",".join(f"{key}={value}" for key, value in given.items() if value)
    return Twin(gpu=gpu, memory_bytes=real.total_bytes, key="by hand")


def check_driver(real: RealCard, torch_version: str, torch_cuda: str) -> None:
    """See that the driver runs the CUDA that torch was built for.

    Raises:
        UsageError: it is too old.
    """
    if int(real.cuda.split(".")[0]) < int(torch_cuda.split(".")[0]):
        raise UsageError(
            f"The driver {real.driver or ''} runs CUDA up to {real.cuda}, and the installed torch {torch_version} is "
            f"built for CUDA {torch_cuda}, so the program cannot run for real. Update the driver, or install a torch "
            f"for CUDA {real.cuda.split('.')[0]}.".replace("  ", " ")
        )


def described(real: RealCard) -> str:
    """The card in a few words.

    NVIDIA L4, 22.03 GiB, driver 550.54.15
    """
    cards = f"{real.count} x " if real.count > 1 else ""
    driver = f", driver {real.driver}" if real.driver else ""
    return f"{cards}{real.name}, {format_bytes(real.total_bytes)}{driver}"


def _is_alike(card: Card, real: RealCard) -> bool:
    return (_letters(card.name), card.sm, card.sm_count) == (_letters(real.name), real.sm, real.sm_count)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower().replace("nvidia", "") if letter.isalnum())


def _sentence(problem: str, reason: str, hidden: str | None) -> str:
    need = "`dryfit verify` compares with a real card; `dryfit run` needs none."
    if problem == NO_DRIVER:
        return f"There is no NVIDIA driver on this machine ({reason}). {need}"
    if problem != NO_CARD:
        return f"The NVIDIA driver could not be started ({reason}); see what nvidia-smi says of it. {need}"
    if hidden is not None:
        return (
            f"CUDA_VISIBLE_DEVICES is {hidden!r} and leaves no card to run on; set it to one that `nvidia-smi -L` "
            "lists, or unset it."
        )
    return f"The NVIDIA driver finds no card on this machine; see whether `nvidia-smi -L` lists one. {need}"

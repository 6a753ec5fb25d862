"""Cards given by hand, `sm=90,sms=132,memory=141GB`: for what the catalogue does not have."""

from __future__ import annotations

import re

from dryfit.cards.card import Card, expected_outside_bytes, least_outside_bytes, outside_margin_bytes
from dryfit.cards.catalogue import all_cards, architecture_of, max_threads_per_sm_of
from dryfit.cards.memory import check_total
from dryfit.errors import UsageError
from dryfit.units import parse_bytes

EXAMPLE = "sm=90,sms=132,memory=141GB"

_MEANINGS = {
    "sm": "the compute capability",
    "sms": "the number of multiprocessors",
    "memory": "the total as PyTorch sees it",
    "threads": "the threads a multiprocessor holds at once",
    "l2": "the size of the L2 cache",
    "name": "the name programs are told",
    "outside": "the memory outside PyTorch's allocator",
}


def card_by_hand(text: str, *, memory_bytes: int | None = None) -> Card:
    """Read a card written as `key=value` pairs; `memory_bytes` stands in for its `memory`.

    >>> card = card_by_hand("sm=9.0, sms=132, memory=141GB")
    >>> card.sm, card.total_bytes, card.max_threads_per_sm
    (90, 141000000000, 2048)

    `sm`, `sms` and `memory` have to be there. `threads` follows from a known `sm`; `outside` from the formula of
    `expected_outside_bytes`, and is taken without a margin where it is given; `l2` from the most alike card of the
    catalogue, and is then marked unverified.

    Raises:
        UsageError: a pair cannot be read, is unknown, missing or given twice, or its value is impossible.
    """
    given = _pairs(text)
    if "sm" not in given or "sms" not in given or ("memory" not in given and memory_bytes is None):
        missing = [f"`{key}` ({_MEANINGS[key]})" for key in ("sm", "sms", "memory") if key not in given]
        raise UsageError(f"The card {text!r} lacks {' and '.join(missing)}. Write it as in {EXAMPLE}.")
    sm = _compute_capability(given["sm"])
    sm_count = _whole_number("sms", given["sms"], most=1024)
    threads = _threads(given.get("threads"), sm)
    total_bytes = parse_bytes(given["memory"]) if memory_bytes is None else memory_bytes
    outside_bytes = expected_outside_bytes(sm_count=sm_count, max_threads_per_sm=threads)
    if "outside" in given:
        outside_bytes = 0 if given["outside"] == "0" else parse_bytes(given["outside"])
    alike = min(all_cards(), key=lambda card: (abs(card.sm - sm), abs(card.sm_count - sm_count)))
    name = given.get("name") or f"NVIDIA sm_{sm} card given by hand"
    check_total(total_bytes, outside_bytes=outside_bytes, name=name)
    return Card(
        key="by-hand",
        name=name,
        architecture=architecture_of(sm) or "unknown",
        sm=sm,
        sm_count=sm_count,
        max_threads_per_sm=threads,
        l2_bytes=parse_bytes(given["l2"]) if "l2" in given else alike.l2_bytes,
        total_bytes=total_bytes,
        outside_bytes=outside_bytes,
        outside_margin_bytes=0 if "outside" in given else outside_margin_bytes(sm),
        outside_low_bytes=outside_bytes if "outside" in given else least_outside_bytes(outside_bytes),
        unverified=() if "l2" in given else ("l2_bytes",),
        sources={
            "chip": ("given by hand",) if "l2" in given else ("given by hand", f"L2 assumed: as {alike.key}"),
            "total_bytes": ("given by hand",),
            **({"outside_bytes": ("given by hand",)} if "outside" in given else {}),
        },
    )


def _pairs(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in text.split(","):
        key, sign, value = (part.strip() for part in pair.partition("="))
        key = key.lower()
        if not sign or not value:
            raise UsageError(f"{pair.strip()!r} in the card {text!r} is not `key=value`. Write it as in {EXAMPLE}.")
        if key not in _MEANINGS:
            known = ", ".join(_MEANINGS)
            raise UsageError(f"A card given by hand has no {key!r}, found in {text!r}. It can have {known}.")
        if key in given:
            raise UsageError(f"`{key}` is in the card {text!r} twice. Give it once.")
        given[key] = value
    return given


def _compute_capability(value: str) -> int:
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9])|([0-9]{2,3})", value)
    sm = int(found[3] or found[1] + found[2]) if found else 0
    if not 50 <= sm < 200:
        raise UsageError(
            f"sm={value} is not a compute capability PyTorch runs on. Write 8.9 or 89 for an RTX 4090; "
            "https://developer.nvidia.com/cuda-gpus lists them."
        )
    return sm


def _threads(value: str | None, sm: int) -> int:
    if value is None:
        known = max_threads_per_sm_of(sm)
        if known is None:
            raise UsageError(
                f"dryfit does not know how many threads a multiprocessor of compute capability {sm // 10}.{sm % 10} "
                "holds. Add it to the card, as in threads=2048; CUDA's deviceQuery prints it."
            )
        return known
    threads = _whole_number("threads", value, most=4096)
    if threads % 32:
        raise UsageError(f"threads={value} is not a whole number of warps: write a multiple of 32, such as 2048.")
    return threads


def _whole_number(key: str, value: str, *, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= most:
        raise UsageError(f"{key}={value} is not {_MEANINGS[key]}: it has to be a whole number from 1 to {most}.")
    return int(value)

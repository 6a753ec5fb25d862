"""What `CUDA_MODULE_LOADING=EAGER` adds: CUDA then loads every kernel of a library at the start, not those that run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dryfit.cards.card import Card
from dryfit.units import MIB

VARIABLE = "CUDA_MODULE_LOADING"

# The one measurement on one card with and without it, for torch 2.1.1 and CUDA 12.1: 940 and 479 MiB on an A100 80 GB
# (github.com/stas00/ml-engineering, training/performance). Older ones are close: 920 MiB for 1.13.1 on that card, and
# 362 MiB more on a card that is not named (github.com/pytorch/pytorch/pull/86509).
EAGER_LOW_BYTES = 461 * MIB
# The code for one chip in torch 2.14.1 (benchmarks/code_for_a_chip.py): 629 MiB for 8.0, 706 MiB for 9.0; and with
# NCCL's for 9.0, 100 MiB, which is loaded too. No card has been measured with this torch.
EAGER_BYTES = 706 * MIB
EAGER_HIGH_BYTES = 806 * MIB

_SOURCE = f"the formula, and {VARIABLE}=EAGER"


def loads_eagerly(environment: Mapping[str, str]) -> bool:
    """Whether a program with these variables has CUDA load all kernels at the start.

    >>> loads_eagerly({"CUDA_MODULE_LOADING": "EAGER"}), loads_eagerly({})
    (True, False)

    PyTorch asks for the other way, LAZY, where the variable is not set.
    """
    return environment.get(VARIABLE, "").upper() == "EAGER"


def with_eager_loading(card: Card) -> Card:
    """Give the card as it is for a program that loads all kernels: with more outside PyTorch's allocator.

    >>> from dryfit.cards import find_card
    >>> card = with_eager_loading(find_card("a100-80gb"))
    >>> card.outside_low_bytes // MIB, card.outside_bytes // MIB, card.outside_margin_bytes // MIB
    (871, 1218, 200)

    A card whose memory outside was given by hand, or is not counted, stays as it is.
    """
    if not card.outside_margin_bytes:
        return card
    return replace(
        card,
        outside_low_bytes=card.outside_low_bytes + EAGER_LOW_BYTES,
        outside_bytes=card.outside_bytes + EAGER_BYTES,
        outside_margin_bytes=card.outside_margin_bytes + EAGER_HIGH_BYTES - EAGER_BYTES,
        sources={**card.sources, "outside_bytes": (_SOURCE,)},
    )


def counts_eager_loading(card: Card) -> bool:
    """Whether this is a card that `with_eager_loading` gave.

    >>> from dryfit.cards import find_card
    >>> counts_eager_loading(with_eager_loading(find_card("l4"))), counts_eager_loading(find_card("l4"))
    (True, False)
    """
    return _SOURCE in card.sources.get("outside_bytes", ())

"""A count of parameters as people write it."""

from __future__ import annotations

import re
from fractions import Fraction

from dryfit.errors import UsageError
from dryfit.estimate.model import Model, Tensor

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_COUNT = re.compile(r"(\d[\d_,]*(?:\.\d+)?)(?:[eE]\+?(\d{1,3}))?\s*([a-zA-Z]*)")
_MOST = 10**15


def looks_like_count(what: str) -> bool:
    """Whether a word begins as a number does: no model of torchvision or timm is called so."""
    return bool(re.match(r"\.?\d", what))


def model_of_count(what: str) -> Model:
    """A model of which only the number of parameters is known.

    >>> model_of_count("1.3b").parameter_count, model_of_count("125e6").parameter_count
    (1300000000, 125000000)

    Raises:
        UsageError: it is no such count.
    """
    found = _COUNT.fullmatch(what.strip())
    suffix = found[3].lower() if found else ""
    if not found or suffix not in _SUFFIXES:
        raise UsageError(
            f"{what!r} is not a count of parameters; write a number such as 125e6, 350M, 7B or 1.3b "
            "(K, M, B and T count by a thousand)."
        )
    exact = Fraction(found[1].replace("_", "").replace(",", "")) * 10 ** int(found[2] or 0) * _SUFFIXES[suffix]
    if exact.denominator != 1 or not 1 <= exact <= _MOST:
        raise UsageError(
            f"{what!r} is not a whole number of parameters from 1 to {_MOST:.0e}; write a number such as 125e6, 350M "
            "or 7B."
        )
    parameters = (Tensor(name="", shape=(int(exact),)),)
    return Model(given=what, found="a count alone", parameters=parameters, shapes_known=False)

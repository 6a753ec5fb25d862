"""Private names of DeepSpeed, for a rank whose peers are not there; each with the versions checked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Checked on 0.19.8. ZeRO-3 broadcasts rank 0's list of modules, and every rank compares it with its own.
_BROUGHT_BY_RANK_0 = ("assert_lst_len_same_as_other_ranks", "get_lst_from_rank0")


def agree_with_rank_0(zero_utils: ModuleType) -> None:
    """Have this rank bring what rank 0 does to DeepSpeed's checks that all ranks go through the same modules.

    `zero_utils` is `deepspeed.runtime.zero.utils`. A rank that only receives puts -1 where rank 0's number will come,
    and rank 0, which runs the same program, has the number that this rank compares it with.
    """
    for name in _BROUGHT_BY_RANK_0:
        if hasattr(zero_utils, name):
            setattr(zero_utils, name, _as_rank_0(zero_utils, getattr(zero_utils, name)))


def _as_rank_0(zero_utils: ModuleType, real: Callable[..., Any]) -> Callable[..., Any]:
    own = zero_utils.dist

    class OfRank0(ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(own, name)

        def get_rank(self, group: Any = None) -> int:
            return 0

    of_rank_0 = OfRank0(own.__name__)

    @functools.wraps(real)
    def check(*args: Any, **kwargs: Any) -> Any:
        zero_utils.dist = of_rank_0  # type: ignore[attr-defined]
        try:
            return real(*args, **kwargs)
        finally:
            zero_utils.dist = own  # type: ignore[attr-defined]

    return check

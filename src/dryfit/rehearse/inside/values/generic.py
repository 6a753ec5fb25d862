"""What a decision does where it has nothing to decide."""

from __future__ import annotations

from typing import Any

from dryfit.rehearse.inside.values import host
from dryfit.rehearse.inside.values.engine import Engine, Kernel
from dryfit.rehearse.inside.values.operators import Operator


def compute(engine: Engine, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
    """As an operator without a policy."""
    if all(map(engine.is_known, host.cuda_tensors(args[operator.first_read :]))):
        return engine.computed(operator, kernel, args, kwargs)
    result = kernel(*args, **kwargs)
    if operator.written:
        engine.overwritten(operator, args, kwargs)
    else:
        engine.stand_in(result)
    return result

"""Private names of DeepSpeed: where it keeps shards, and what its optimizers compile. Checked on 0.19.8."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

SHARD = "ds_tensor"
"""Where ZeRO-3 keeps this rank's part of a parameter, as an attribute; the parameter is empty between uses."""

# Each writes to the tensors that it is given, and takes no memory. The first two are for the card and need nvcc, the
# others are for the host and take g++ more than a minute.
_UPDATES = ("fused_adam", "fused_lion", "cpu_adam", "cpu_lion", "cpu_adagrad")


class _LeftOut:
    """In place of a compiled module: each of its functions does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def leave_updates_out(builder: ModuleType) -> None:
    """Compile and load none of the updates of weights: on the virtual card no kernel runs, and weights are garbage.

    `builder` is `deepspeed.ops.op_builder.builder`.
    """
    real = builder.OpBuilder.load

    @functools.wraps(real)
    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _LeftOut() if self.name in _UPDATES else real(self, *args, **kwargs)

    builder.OpBuilder.load = load

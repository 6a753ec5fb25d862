"""Private names of FSDP2 (`torch.distributed.fsdp.fully_shard`): what it keeps beside the parameters of modules.

Checked on torch 2.14.1. In older ones a module has one group of parameters, and not a list of them.
"""

from __future__ import annotations

from typing import Any


def is_sharded(module: Any) -> bool:
    """Whether a module is under FSDP2."""
    return hasattr(type(module), "_get_fsdp_state")


def whole_gradients(module: Any) -> list[tuple[Any, str, Any]]:
    """The gradients that a sharded module keeps whole, until a later pass reduces them to shards.

    Each comes with the module that holds its parameter, and the parameter's name there.
    """
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    found = []
    for parameter in (each for group in groups if group is not None for each in group.fsdp_params):
        whole = getattr(parameter, "_unsharded_param", None)
        gradients = (getattr(parameter, "unsharded_accumulated_grad", None), whole.grad if whole is not None else None)
        info = parameter._module_info
        found += [(info.module, info.param_name, gradient) for gradient in gradients if gradient is not None]
    return found

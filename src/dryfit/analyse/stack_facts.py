"""What a stack alone says of an allocation: is it in a module's call, in the optimizer, in autograd's engine, ...

Facts are bits. A stack has those of its caller and of its innermost frame; some frames end what their callers said: a
module called within a function of torch.distributed allocates for itself.
"""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

from dryfit.analyse.lines import is_python
from dryfit.recording.stacks import Frame, Stacks

(
    HAS_PYTHON,
    IN_MODULE,
    IN_ENGINE,
    IN_OPTIMIZER,
    MAKES_STATE,
    COMMUNICATES,
    COMPUTES_LOSS,
    LOADS_DATA,
    CLIPS_GRADIENTS,
    ZEROES_GRADIENTS,
    MAKES_PARAMETERS,
    IN_CONSTRUCTOR,
    IS_WORKSPACE,
    CASTS_FOR_AUTOCAST,
    ACCUMULATES_GRADIENT,
    IS_COMPILED,
) = (1 << place for place in range(16))
_WORK = (
    IN_OPTIMIZER | MAKES_STATE | COMMUNICATES | COMPUTES_LOSS | LOADS_DATA | CLIPS_GRADIENTS | MAKES_PARAMETERS
    | IN_CONSTRUCTOR
)  # fmt: skip

# The kernels' scratch memory that PyTorch's C++ takes from the allocator by itself: cuBLAS, cuBLASLt, cuDNN's plans.
_WORKSPACE_NAMES = re.compile(r"Workspace|getCurrentCUDABlasHandle|::run_(?:conv|fused_conv)_plan|_filter_plans")
_ENGINE_NAMES = re.compile(r"torch::autograd::(?:Engine::|Node::operator\(\)|python::PythonEngine|AccumulateGrad)")
# The functions that cast what a module gets and gives to the types of FSDP's mixed precision: activations.
FSDP_CASTS = r"(?:cast_fn|_cast_fp_tensor)$"


class _Rule(NamedTuple):
    """Frames whose file ends so, or lies there, and whose function's name matches, say `sets` and end `ends`."""

    file: re.Pattern[str]
    name: re.Pattern[str]
    sets: int
    ends: int = 0


def _rule(file: str, name: str, sets: int, ends: int = 0) -> _Rule:
    return _Rule(re.compile(file), re.compile(name), sets, ends)


_RULES = (
    _rule(r"(?:^|/)torch/nn/modules/module\.py$", r"^(?:_wrapped)?_call_impl$|^_slow_forward$", IN_MODULE, _WORK),
    _rule(r"", r"^forward$", IN_MODULE),
    _rule(r"(?:^|/)torch/autograd/(?:__init__|graph)\.py$", r"backward$|^grad$|^_make_grads$", IN_ENGINE,
          IN_MODULE | _WORK),
    _rule(r"(?:^|/)torch/optim/(?!lr_scheduler|swa_utils)", r"^(?!zero_grad|__init__|add_param_group)", IN_OPTIMIZER,
          IN_MODULE | COMMUNICATES),
    _rule(r"(?:^|/)bitsandbytes/optim/|/apex/optimizers/", r"^(?!zero_grad|__init__)", IN_OPTIMIZER, IN_MODULE),
    _rule(r"/optim", r"^(?:_init_group|init_state|init_state_.*)$", MAKES_STATE),
    _rule(r"(?:^|/)[^/]*optim(?:izers?)?(?:/[^/]*)?\.py$", r"^__init__$", MAKES_STATE),
    _rule(r"(?:^|/)torch/nn/parallel/distributed\.py$", r"", COMMUNICATES),
    _rule(r"(?:^|/)torch/distributed/(?:fsdp|_composable|algorithms/ddp_comm_hooks)/", rf"^(?!{FSDP_CASTS})",
          COMMUNICATES),
    _rule(r"(?:^|/)torch/distributed/", rf"^{FSDP_CASTS}", 0, COMMUNICATES),
    _rule(r"(?:^|/)torch/distributed/(?:distributed_c10d|_functional_collectives)\.py$", r"", COMMUNICATES),
    # Its linear layers are modules' work, and of the gradients' norm and finiteness nothing is sent but a number.
    _rule(r"(?:^|/)deepspeed/(?:runtime/zero/(?!linear\.py)|comm/)", r"^(?!.*(?:_norm|overflow|inf_or_nan))",
          COMMUNICATES),
    _rule(r"(?:^|/)deepspeed/runtime/", r"_norm|overflow|inf_or_nan", CLIPS_GRADIENTS, COMMUNICATES),
    _rule(r"(?:^|/)torch/nn/functional\.py$", r"_loss$|cross_entropy|^kl_div$|^log_softmax$", COMPUTES_LOSS),
    _rule(r"(?:^|/)torch/nn/modules/loss\.py$", r"", COMPUTES_LOSS),
    _rule(r"(?:^|/)(?:transformers|trl|liger_kernel|unsloth)/", r"(?i)loss|cross_entropy|^selective_log_softmax$",
          COMPUTES_LOSS),
    _rule(r"(?:^|/)(?:trl|liger_kernel|unsloth)/.*(?:loss|cross_entropy|logprob)[^/]*\.py$", r"", COMPUTES_LOSS),
    _rule(r"(?:^|/)torch/utils/data/", r"", LOADS_DATA),
    _rule(r"(?:^|/)accelerate/", r"^send_to_device$", LOADS_DATA),
    _rule(r"(?:^|/)torch/nn/utils/clip_grad\.py$", r"", CLIPS_GRADIENTS),
    _rule(r"(?:^|/)torch/", r"^zero_grad$", ZEROES_GRADIENTS),
    _rule(r"(?:^|/)torch/nn/modules/module\.py$", r"^(?:_apply|convert|load_state_dict)$", MAKES_PARAMETERS),
    _rule(r"(?:^|/)torch/nn/parameter\.py$", r"", MAKES_PARAMETERS),
    _rule(r"(?:^|/)torch/_tensor\.py$", r"^__deepcopy__$", MAKES_PARAMETERS),
    _rule(r"", r"^(?:from_pretrained|set_module_tensor_to_device)$", MAKES_PARAMETERS),
    _rule(r"", r"^__init__$", IN_CONSTRUCTOR),
    _rule(r"(?:^|/)torch/_inductor/", r"", IS_COMPILED),
)  # fmt: skip


def facts_of(stacks: Stacks) -> array[int]:
    """Each stack's facts, as bits.

    >>> stacks = Stacks()
    >>> stack = stacks.add([Frame("/x/torch/optim/adam.py", "_init_group", 9), Frame("train.py", "main", 3)])
    >>> facts_of(stacks)[stack] == HAS_PYTHON | IN_OPTIMIZER | MAKES_STATE
    True
    """
    effects = [_effect(frame) for frame in stacks.all_frames]
    facts = array("I", [0]) * len(stacks)
    for stack, (frame, caller) in enumerate(zip(stacks.frame_of, stacks.caller_of, strict=True)):
        if stack:
            sets, keeps = effects[frame]
            facts[stack] = facts[caller] & keeps | sets
    return facts


def modules_of(stacks: Stacks) -> tuple[array[int], list[str]]:
    """Each stack's innermost module, as a place in the list of paths; place 0 is "", no module or the outermost."""
    paths, places = [""], {"": 0}
    frame_places = array("I", [0]) * len(stacks.all_frames)
    is_module = bytearray(len(stacks.all_frames))
    for number, frame in enumerate(stacks.all_frames):
        if frame.is_module:
            is_module[number] = 1
            frame_places[number] = places.setdefault(frame.name, len(paths))
            if frame_places[number] == len(paths):
                paths.append(frame.name)
    modules = array("I", [0]) * len(stacks)
    for stack, (frame_number, caller) in enumerate(zip(stacks.frame_of, stacks.caller_of, strict=True)):
        if stack:
            modules[stack] = frame_places[frame_number] if is_module[frame_number] else modules[caller]
    return modules, paths


def _effect(frame: Frame) -> tuple[int, int]:
    """The facts that a frame sets, and a mask of those of its callers that stay."""
    if frame.is_module:
        return HAS_PYTHON | IN_MODULE, ~_WORK & 0xFFFFFFFF
    if not is_python(frame.file):
        return _effect_of_cpp(frame.name)
    sets, ends = HAS_PYTHON, 0
    for rule in _RULES:
        if rule.file.search(frame.file) and rule.name.search(frame.name):
            sets, ends = sets | rule.sets, ends | rule.ends
    return sets, ~ends & 0xFFFFFFFF


def _effect_of_cpp(name: str) -> tuple[int, int]:
    sets = 0
    if _ENGINE_NAMES.search(name):
        sets |= IN_ENGINE
    if "AccumulateGrad" in name:
        sets |= ACCUMULATES_GRADIENT
    if "at::autocast::cached_cast" in name:
        sets |= CASTS_FOR_AUTOCAST
    if _WORKSPACE_NAMES.search(name):
        sets |= IS_WORKSPACE
    return sets, 0xFFFFFFFF

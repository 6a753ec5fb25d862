"""The beginnings of out-of-memory messages, of every library and version, and of what only looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from dryfit.oom.message import Certainty


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a kind of message begins.

    `beginning` is a regular expression without capturing groups; a blank in it stands for any white space, as a log
    may wrap the message there. `raised` says that an allocation was refused and the program got an error for it,
    rather than being killed.
    """

    name: str
    backend: str
    beginning: str
    certainty: Certainty = "certain"
    raised: bool = True


_DEVICE_NAMES = ("CUDA", "HIP", "XPU", "NPU", "MUSA", "MLU")
DEVICES = f"(?:{'|'.join(_DEVICE_NAMES)})"
_FAILED = r"(?:'|\")?\bout of memory\b"

_BARE = "|".join(
    rf"{kind}: {DEVICES} out of memory\b(?! errors?\b|\. ?Tried|\. ?Alloc)" for kind in ("Error", "Exception")
)

# In the order in which they are tried at each place of a text: the more telling first.
FORMS: tuple[Form, ...] = (
    Form(
        name="absurd size",
        backend="cuda",
        beginning=rf"{DEVICES} out of memory\. Tried to allocate more than 1EB",
        certainty="not",
    ),
    Form(
        name="rejected",
        backend="cuda",
        beginning=rf"{DEVICES} out of memory\. Allocation was preemptively rejected",
    ),
    Form(name="allocator", backend="", beginning=rf"{DEVICES} out of memory\. ?Tried to allocate"),
    # Cut from the words before it, as people paste it.
    Form(name="allocator", backend="", beginning=r"Tried to allocate [\d.]{1,20} [KMG]iB(?:\. GPU \d| \(GPU \d)"),
    Form(
        name="xpu allocation limit",
        backend="xpu",
        beginning=r"Current platform can NOT allocate memory block with size larger than 4GB!(?: Tried to allocate)?",
    ),
    Form(name="mps", backend="mps", beginning=r"MPS backend out of memory"),
    Form(name="mps buffer", backend="mps", beginning=r"Invalid buffer size: [\d.]{1,20} [KMG]i?B"),
    Form(
        name="malloc-async", backend="cuda", beginning=r"Allocation on device (?:\d{1,3} )?would exceed allowed memory"
    ),
    Form(name="malloc-async", backend="cuda", beginning=r"OutOfMemoryError: Allocation on device\b"),
    Form(name="data parallel", backend="cuda", beginning=r"Caught (?:[\w.]{0,60}\.)?OutOfMemoryError in "),
    # No error of memory by itself, but it tells the device of one that follows.
    Form(name="replica", backend="cuda", beginning=r"Caught RuntimeError in replica \d", certainty="not"),
    Form(name="cudnn outside", backend="cuda", beginning=r"CUDA ran out of memory outside PyTorch's allocator"),
    Form(name="cuda 0.4", backend="cuda", beginning=r"cuda runtime error \(2\) ?: out of memory"),
    Form(
        name="cuda 0.4",
        backend="cuda",
        beginning=r"THCudaCheck FAIL file=[^\s]{1,200} line=\d+ error=2 : out of memory",
    ),
    Form(name="nccl", backend="cuda", beginning=rf"Cuda failure (?:\d{{1,3}} )?{_FAILED}"),
    Form(name="nccl", backend="cuda", beginning=r"Failed to CUDA (?:host )?(?:m|c)alloc"),
    Form(name="triton", backend="cuda", beginning=r"Triton Error \[(?:CUDA|HIP)\]: out of memory"),
    Form(
        name="runtime error",
        backend="",
        beginning=rf"{DEVICES} (?:driver |runtime )?error(?: \(?\d{{1,4}}\)?)?: ?{_FAILED}",
    ),
    Form(
        name="runtime error",
        backend="",
        beginning=r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory",
    ),
    Form(name="xpu driver", backend="xpu", beginning=r"UR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY"),
    Form(
        name="xpu driver",
        backend="xpu",
        beginning=r"UR_RESULT_ERROR_OUT_OF_RESOURCES",
        certainty="likely",
    ),
    Form(name="expandable segment", backend="cuda", beginning=r"memory mapping failed with OOM"),
    Form(name="cudnn", backend="cuda", beginning=r"CUDNN_STATUS_ALLOC_FAILED|miopenStatusAllocFailed"),
    Form(
        name="cublas",
        backend="cuda",
        beginning=r"CU[A-Z]{2,12}_(?:STATUS_)?ALLOC_FAILED|HIP[A-Z]{2,12}_(?:STATUS_)?ALLOC_FAILED",
        certainty="likely",
    ),
    Form(name="cudnn", backend="cuda", beginning=r"CUDNN_STATUS_NOT_INITIALIZED\b", certainty="likely"),
    Form(
        name="cudnn",
        backend="cuda",
        beginning=r"Unable to find a valid cuDNN algorithm",
        certainty="likely",
    ),
    Form(
        name="allocator under pressure",
        backend="cuda",
        beginning=r"handles_\.at\(i\) INTERNAL ASSERT FAILED",
        certainty="likely",
    ),
    Form(
        name="allocator under pressure",
        backend="cuda",
        beginning=r"CUDA driver error: device not ready",
        certainty="likely",
    ),
    Form(name="host", backend="host", beginning=r"DefaultCPUAllocator: (?:can't allocate|not enough) memory"),
    Form(name="host", backend="host", beginning=r"Torch: not enough memory: you tried to allocate"),
    Form(
        name="host array",
        backend="host",
        beginning=r"Unable to allocate [\d.]{1,20} [KMGTPE]iB for an array",
        raised=False,
    ),
    Form(name="host mapping", backend="host", beginning=r"unable to mmap \d{1,20} bytes", raised=False),
    Form(
        name="host killed",
        backend="host",
        beginning=r"Out of memory: Killed process \d|Detected \d{1,9} oom[-_]kill event|oom-kill:constraint=",
        raised=False,
    ),
    Form(
        name="host killed",
        backend="host",
        beginning=r"DataLoader worker \(pid(?:\(s\))? [^)]{1,99}\) is killed by signal: Killed",
        certainty="likely",
        raised=False,
    ),
    Form(
        name="host shared memory",
        backend="host",
        beginning=r"DataLoader worker \(pid(?:\(s\))? [^)]{1,99}\) is killed by signal: Bus error"
        r"|might be caused by insufficient shared memory \(shm\)",
        raised=False,
    ),
    # Without what was asked for, as some programs raise it again; prose says it too, so only as an error.
    Form(name="allocator", backend="", beginning=_BARE),
    Form(
        name="launch resources",
        backend="cuda",
        beginning=r"too many resources requested for launch",
        certainty="not",
    ),
    Form(
        name="driver version",
        backend="cuda",
        beginning=r"CUDA driver version is insufficient",
        certainty="not",
    ),
    Form(name="illegal access", backend="cuda", beginning=r"an illegal memory access was encountered", certainty="not"),
    Form(
        name="shared memory of a kernel",
        backend="cuda",
        beginning=r"out of resource: shared memory, Required",
        certainty="not",
    ),
    Form(name="batch finder", backend="cuda", beginning=r"No executable batch size found", certainty="not"),
    Form(name="disk full", backend="host", beginning=r"No space left on device", certainty="not"),
)


def _expression(forms: Iterable[Form]) -> re.Pattern[str]:
    # One alternative for each device's name, not one with a choice in it: the engine then knows the letters that a
    # match can begin with, and passes over the rest of a log 20 times faster.
    beginnings: list[str] = []
    for form in forms:
        if form.beginning.startswith(DEVICES):
            beginnings += (device + form.beginning.removeprefix(DEVICES) for device in _DEVICE_NAMES)
        else:
            beginnings.append(form.beginning)
    return re.compile("|".join(map(_wrapped, beginnings)))


def _wrapped(beginning: str) -> str:
    return beginning.replace(" ", r"(?:\s{1,80})")


# Compiled at first use: a program that never runs out of memory imports this too.
@cache
def any_form() -> re.Pattern[str]:
    """The beginning of any form."""
    return _expression(FORMS)


@cache
def _each_form() -> tuple[tuple[re.Pattern[str], Form], ...]:
    return tuple((re.compile(_wrapped(form.beginning)), form) for form in FORMS)


@cache
def _raised_forms() -> re.Pattern[str]:
    return _expression(form for form in FORMS if form.raised and form.certainty != "not")


def form_at(text: str, start: int) -> Form:
    """The form that a match of `any_form` at this place is of."""
    return next(form for beginning, form in _each_form() if beginning.match(text, start))


_ABSURD = re.compile(r"Tried to allocate (?:more than 1EB|[\d.]{1,30} EiB)")
# An exception's own message is no prose of a log: here the words are enough, wherever in a line they are.
_WORDS = re.compile(r"\b(?:CUDA|HIP|XPU|MPS|NPU)\b[^\n]{0,60}?\bout of memory\b(?! error)", re.IGNORECASE)


def says_out_of_memory(message: str) -> bool:
    """Whether the message of an exception says, surely or most likely, that an allocation was refused.

    >>> says_out_of_memory("CUDA error: out of memory")
    True
    >>> says_out_of_memory("CUDA out of memory. Tried to allocate more than 1EB memory.")
    False
    """
    if is_absurd(message):
        return False
    return bool(_WORDS.search(message) or _raised_forms().search(message))


def is_absurd(message: str) -> bool:
    """Whether a message tells of a size that no device has: what is left of another failure, such as a timeout."""
    return _ABSURD.search(message) is not None

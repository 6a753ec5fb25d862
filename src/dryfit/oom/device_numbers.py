"""The numbers of a message by a device's allocator, in every version's words."""

from __future__ import annotations

import re

from dryfit.oom.amounts import AMOUNT, NO_SUCH_SIZE_BYTES, bytes_of
from dryfit.oom.forms import DEVICES, Form, is_absurd
from dryfit.oom.message import OomMessage

_SIZE = AMOUNT.replace("?P<number>", "?:").replace("?P<unit>", "?:")


def _after(words: str) -> re.Pattern[str]:
    return re.compile(words.replace(" ", r"\s{0,3}") + rf"\s{{0,40}}({_SIZE})")


def _before(words: str) -> re.Pattern[str]:
    return re.compile(rf"({_SIZE})\s{{0,3}}" + words.replace(" ", r"\s{0,3}"))


_Matches = dict[str, "re.Match[str] | None"]
_PATTERNS: dict[str, tuple[re.Pattern[str], ...]] = {
    "requested_bytes": (_after("Tried to allocate"), _after("Requested :"), _after("Requested size:")),
    "total_bytes": (
        _before("total capacity"),
        _after("has a total capac(?:i)?ty of"),
        _after("Device limit :"),
    ),
    "free_bytes": (
        _before("free(?: ?[;)]|$)"),
        _before("is free"),
        _after(r"Free \(according to CUDA\) ?:"),
    ),
    "allocated_bytes": (
        _before("already allocated"),
        _before("is allocated by PyTorch"),
        _after("Currently allocated :"),
        _after("MPS allocated:"),
    ),
    "reserved_bytes": (_before("reserved in total by PyTorch"),),
    # In the brackets of 1.0 to 1.3 "cached" is what is held and not used.
    "unused_bytes": (_before("cached"), _before("is reserved by PyTorch but unallocated")),
    "private_pool_bytes": (_before("allocated in private pools"),),
    "process_bytes": (re.compile(rf"[Tt]his\s{{0,3}}process\s{{0,3}}has\s{{0,3}}({_SIZE})"),),
    "allowed_bytes": (_before("allowed ?;"), _after("max allowed:"), _after(r"memory fraction\) :")),
    "other_bytes": (_after("other allocations:"),),
}
_PROCESS = re.compile(rf"\bProcess\s{{0,3}}(\d{{1,10}})\s{{0,3}}has\s{{0,3}}({_SIZE})\s{{0,3}}memory")
_DEVICE_NUMBER = re.compile(
    rf"(?:Tried\s{{0,3}}to\s{{0,3}}allocate\s{{0,3}}{_SIZE}\.?\s{{0,3}}\(?[A-Z]{{2,12}}|Allocation on device)"
    r"\s{0,3}(\d{1,4})\b"
)
_ADVICE = re.compile(
    r"expandable_segments:True|max_split_size_mb|PYTORCH_MPS_HIGH_WATERMARK_RATIO=[\d.]{1,6}|`empty_cache`"
)
_VERSIONS = (
    (r"\d [KMGi]*B cached|bytes cached", "1.0"),
    (r"If reserved memory is >>|If reserved memory is &gt;", "1.10"),
    (r"reserved in total", "1.4"),
    (r"total capacty", "2.1"),
    (r"docs\.pytorch\.org", "2.11"),
    (r"setting PYTORCH_ALLOC_CONF", "2.10"),
    (r"total capacity of", "2.3"),
)
_END = re.compile(
    r"PYTORCH_CUDA_ALLOC_CONF\.?(?![=\w])|environment-variables\)|pytorch-cuda-alloc-conf\)|system failure\)\.?"
    r"|See documentation for Memory Management(?! {1,2}(?:\(|and))|cached memory\."
    r"|reserved in total by PyTorch\)(?!\s?\.?If)"
)
_SLACK_BYTES = 64 << 20  # what the driver counts otherwise than NVML, and the rounding of all numbers


def numbers_of(form: Form, text: str) -> OomMessage:
    """Read the message that a text begins with; the text may go on behind it."""
    named = re.search(DEVICES, text[:40])
    backend = form.backend or (named[0].lower() if named else "cuda")
    line, by_words = _unwrapped(text)
    found = _all(line)
    numbers = {name: bytes_of(each[1]) if each else None for name, each in found.items()}
    requested = numbers["requested_bytes"]
    absurd = is_absurd(line[:200]) or (requested is not None and requested >= NO_SUCH_SIZE_BYTES)
    numbers = {name: size if _is_size(size) else None for name, size in numbers.items()}
    _complete(numbers, form.name)
    processes = [(int(pid), bytes_of(size) or 0) for pid, size in _PROCESS.findall(line)]
    numbers["process_bytes"], others = _whose(numbers, [each for each in processes if _is_size(each[1])])
    device = _DEVICE_NUMBER.search(line)
    return OomMessage(
        format="absurd size" if absurd else _format(form, backend, f"{by_words}\n{line}"),
        backend=backend,
        certainty="not" if absurd else form.certainty,
        device=int(device[1]) if device else None,
        other_processes=others,
        advice_given=tuple(dict.fromkeys(_ADVICE.findall(by_words))),
        text=_message_alone(by_words, found if line == by_words else _all(by_words)),
        requested_bytes=numbers["requested_bytes"],
        total_bytes=numbers["total_bytes"],
        free_bytes=numbers["free_bytes"],
        allocated_bytes=numbers["allocated_bytes"],
        reserved_bytes=numbers["reserved_bytes"],
        unused_bytes=numbers["unused_bytes"],
        private_pool_bytes=numbers["private_pool_bytes"],
        process_bytes=numbers["process_bytes"],
        allowed_bytes=numbers["allowed_bytes"],
        other_bytes=numbers["other_bytes"],
    )


def _unwrapped(text: str) -> tuple[str, str]:
    """The text on one line: as its numbers are to be read, and as its words are."""
    text = text.replace("\\n", "\n")
    by_words = " ".join(text.split())
    if "\n" not in text:
        return by_words, by_words
    # A terminal breaks a line at its width, also within a number: 13.2 and 1 GiB are 13.21 GiB. No two numbers of a
    # message stand side by side, so that nothing is joined by this that does not belong together.
    broken = " ".join(re.sub(r"[ \t]{0,80}\n[ \t]{0,80}", "", text).split())
    return (broken if _how_many(broken) >= _how_many(by_words) else by_words), by_words


def _how_many(line: str) -> int:
    return sum(found is not None for found in _all(line).values())


def _all(line: str) -> _Matches:
    return {name: _first(patterns, line) for name, patterns in _PATTERNS.items()}


def _first(patterns: tuple[re.Pattern[str], ...], line: str) -> re.Match[str] | None:
    return next((found for pattern in patterns if (found := pattern.search(line))), None)


def _message_alone(line: str, found: _Matches) -> str:
    """The message without what stands behind it in the log."""
    matches = (_END.search(line), *found.values())
    return line[: max((each.end() for each in matches if each), default=200)]


def _is_size(size: int | None) -> bool:
    # Windows' driver does not tell what a process has, and no limit is the greatest number: 17179869184.00 GiB.
    return size is not None and size < NO_SUCH_SIZE_BYTES


def _complete(numbers: dict[str, int | None], form: str) -> None:
    """Fill in what follows: of allocated, unused and reserved a format prints two."""
    allocated, unused, reserved = (numbers[name] for name in ("allocated_bytes", "unused_bytes", "reserved_bytes"))
    if form in ("mps", "malloc-async"):
        # They print neither: what stands behind them is another message's.
        numbers["unused_bytes"] = numbers["reserved_bytes"] = None
        return
    if allocated is None:
        return
    if unused is not None:
        numbers["reserved_bytes"] = allocated + unused
    elif reserved is not None:
        # Of a nearly equal pair, each with its two places, the smaller can come out as the greater.
        numbers["unused_bytes"] = max(reserved - allocated, 0)
        numbers["reserved_bytes"] = max(reserved, allocated)


def _whose(
    numbers: dict[str, int | None], processes: list[tuple[int, int]]
) -> tuple[int | None, tuple[tuple[int, int], ...]]:
    """This process's memory, and the others'."""
    own, reserved = numbers["process_bytes"], numbers["reserved_bytes"]
    total, free = numbers["total_bytes"], numbers["free_bytes"]
    if own is not None or None in (reserved, total, free):
        return own, tuple(processes)
    assert reserved is not None and total is not None and free is not None
    used = total - free
    can_be_own = [each for each in processes if each[1] + _SLACK_BYTES >= reserved]
    if can_be_own and sum(size for _, size in processes) + reserved > used + _SLACK_BYTES:
        mine = min(can_be_own, key=lambda each: each[1])
        processes.remove(mine)
        return mine[1], tuple(processes)
    return None, tuple(processes)


def _format(form: Form, backend: str, line: str) -> str:
    """The first version that wrote a message so."""
    if form.name == "rejected":
        return f"{backend} 2.12 rejected"
    if form.name == "mps":
        return "mps 2.7" if re.search(r"\d [KMG]iB", line) else "mps 2.0"
    if form.name != "allocator":
        return form.name
    if backend == "xpu" and "total capacity;" in line:
        return "xpu extension"
    if backend == "xpu":
        return "xpu 2.5"
    for words, version in _VERSIONS:
        if re.search(words, line):
            return f"{backend} {version}"
    return backend

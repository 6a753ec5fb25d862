"""What `dryfit doctor` looks at: everything that could stop a rehearsal on this machine, each with a way out."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

from dryfit.errors import DryfitError
from dryfit.rehearse import sandbox
from dryfit.virtual_card import installed_torch, library_folder

OLDEST_TORCH, NEWEST_TORCH = (2, 4), (2, 14)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `mark` is "ok", "no" (a rehearsal would be stopped) or "note" (it works, with less)."""

    mark: str
    subject: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_up() -> list[Finding]:
    """Look at the machine, torch, the virtual card's library and the sandbox, in this order."""
    return [_machine(), *_torch(), _library(), *_sandbox()]


def _machine() -> Finding:
    what = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return Finding(mark="no", subject="machine", sentence=f"{what}; the virtual card runs on Linux x86-64 only.")
    if platform.libc_ver()[0] != "glibc":
        return Finding(
            mark="no",
            subject="machine",
            sentence=f"{what}, without glibc (musl?); PyTorch has no CUDA build for it. Use a Debian or Ubuntu image.",
        )
    return Finding(mark="ok", subject="machine", sentence=f"{what}.")


def _torch() -> list[Finding]:
    try:
        torch = installed_torch()
        torch.require_cuda()
    except DryfitError as error:
        return [Finding(mark="no", subject="torch", sentence=str(error))]
    found = [Finding(mark="ok", subject="torch", sentence=f"{torch.version} with CUDA {torch.cuda}.")]
    release = tuple(int(part) for part in torch.version.split("+")[0].split(".")[:2] if part.isdigit())
    if not OLDEST_TORCH <= release <= NEWEST_TORCH:
        found.append(
            Finding(
                mark="note",
                subject="torch",
                sentence=f"{torch.version} is outside what dryfit was tried with, 2.4 to 2.14; figures may be wrong.",
            )
        )
    return found


def _library() -> Finding:
    try:
        return Finding(mark="ok", subject="virtual card", sentence=f"its library is compiled, in {library_folder()}.")
    except DryfitError as error:
        return Finding(mark="no", subject="virtual card", sentence=str(error))


def _sandbox() -> list[Finding]:
    return [
        Finding(mark="ok" if works else "note", subject=subject, sentence=sentence)
        for subject, works, sentence in sandbox.probe()
    ]

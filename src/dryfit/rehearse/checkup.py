"""What `dryfit doctor` looks at: everything that could stop a rehearsal on this machine, each with a way out."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

from dryfit.errors import DryfitError
from dryfit.virtual_card import installed_torch, library_folder

OK, NO, NOTE = "ok", "no", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `mark` is "ok", "no" (a rehearsal would be stopped) or "note" (it works, with less)."""

    mark: str
    subject: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_up() -> list[Finding]:
    """Look at the machine, torch, the virtual card's library and the sandbox; on a wrong machine, no further."""
    machine = look_at_machine()
    return [machine] if machine.mark == NO else [machine, *_torch(), _library(), *_sandbox()]


def look_at_machine() -> Finding:
    """Whether the virtual card can run on this system at all."""
    what = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return Finding(mark=NO, subject="machine", sentence=f"{what}; the virtual card runs on Linux x86-64 only.")
    if platform.libc_ver()[0] != "glibc":
        return Finding(
            mark=NO,
            subject="machine",
            sentence=f"{what}, without glibc (musl?); PyTorch has no CUDA build for it. Use a Debian or Ubuntu image.",
        )
    return Finding(mark=OK, subject="machine", sentence=f"{what}.")


def _torch() -> list[Finding]:
    try:
        torch = installed_torch()
        torch.require_cuda()
    except DryfitError as error:
        return [Finding(mark=NO, subject="torch", sentence=str(error))]
    found = [Finding(mark=OK, subject="torch", sentence=f"{torch.version} with CUDA {torch.cuda}.")]
    return found + ([Finding(mark=NOTE, subject="torch", sentence=torch.doubt)] if torch.doubt else [])


def _library() -> Finding:
    try:
        return Finding(mark=OK, subject="virtual card", sentence=f"its library is compiled, in {library_folder()}.")
    except DryfitError as error:
        return Finding(mark=NO, subject="virtual card", sentence=str(error))


def _sandbox() -> list[Finding]:
    from dryfit.rehearse import sandbox  # Linux only

    try:
        found = sandbox.probe()
    except (OSError, DryfitError) as error:
        return [Finding(mark=NO, subject="sandbox", sentence=f"no program can be started in it: {error}")]
    return [
        Finding(mark=OK if works else NOTE, subject=subject, sentence=sentence) for subject, works, sentence in found
    ]

"""Which torch is installed, read from its files: importing it takes a second, and ties a process to it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dryfit.errors import UsageError

OLDEST, NEWEST = (2, 4), (2, 14)  # what dryfit was tried with
PIP_COMMAND = "pip install torch --index-url https://download.pytorch.org/whl/cu128"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """An installed torch: `cuda` is None for a CPU-only build, `cudnn` counts as cudnnGetVersion does (92400)."""

    version: str
    cuda: str | None
    cudnn: int | None
    folder: Path

    @property
    def doubt(self) -> str | None:
        """What there is to say of a version that dryfit was not tried with; None for the others."""
        release = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        if OLDEST <= release <= NEWEST:
            return None
        tried = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
        return f"torch {self.version} is outside what dryfit was tried with, {tried}; its figures may be wrong."

    def require_cuda(self) -> int:
        """The major version of the CUDA it was built for, 12 or 13.

        Raises:
            UsageError: this is a CPU-only build, or one whose CUDA the virtual card does not know.
        """
        if self.cuda is None:
            raise UsageError(
                f"The installed torch {self.version} ({self.folder}) is a CPU-only build. The virtual card runs "
                f"PyTorch's own CUDA code, so it needs a CUDA build, though no GPU: {PIP_COMMAND}"
            )
        major = int(self.cuda.split(".")[0])
        if major not in (12, 13):
            raise UsageError(
                f"The installed torch {self.version} ({self.folder}) is built for CUDA {self.cuda}, and the virtual "
                f"card knows CUDA 12 and 13. Install a newer build: {PIP_COMMAND}"
            )
        return major


def installed_torch(paths: Iterable[str | Path] | None = None) -> TorchBuild:
    """Find the torch that an interpreter with these import paths (default: this one's) would import.

    >>> installed_torch().version  # doctest: +SKIP
    '2.14.1+cu130'

    Raises:
        UsageError: there is no torch on these paths, or not one made by its release process.
    """
    searched = [Path(path) for path in (sys.path if paths is None else paths) if path != ""]
    for path in searched:
        file = path / "torch" / "version.py"
        if file.is_file():
            text = file.read_text()
            version = _assigned(text, "__version__") or "unknown"
            cuda = _assigned(text, "cuda")
            return TorchBuild(version=version, cuda=cuda, cudnn=_cudnn(searched, cuda), folder=file.parent)
    raise UsageError(f"torch is not installed for {sys.executable}: {PIP_COMMAND}")


def _assigned(text: str, name: str) -> str | None:
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _cudnn(paths: list[Path], cuda: str | None) -> int | None:
    if cuda is None:
        return None
    major = cuda.split(".")[0]
    for path in paths:
        for folder in path.glob(f"nvidia_cudnn_cu{major}-*.dist-info"):
            numbers = re.match(rf"nvidia_cudnn_cu{major}-(\d+)\.(\d+)\.(\d+)", folder.name)
            if numbers:
                first, second, third = (int(n) for n in numbers.groups())
                return first * (10000 if first >= 9 else 1000) + second * 100 + third
    return None

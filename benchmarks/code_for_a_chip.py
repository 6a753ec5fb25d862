"""How much code a CUDA library has for one chip: what eager loading puts on a card, and what NCCL loads of its own.

    python benchmarks/code_for_a_chip.py sm_90 .../torch/lib/libtorch_cuda.so

It needs `cuobjdump`, which Triton brings along (triton/backends/nvidia/bin) or the CUDA toolkit, about 1 GB of room for
temporary files, and a minute or two. Counted are the sections that are loaded: code, and constants.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LOADED = 2  # SHF_ALLOC


def loaded_bytes(cubin: bytes) -> int:
    """The sizes of an ELF file's sections that are loaded, added up."""
    (sections_at,) = struct.unpack_from("<Q", cubin, 40)
    entry_bytes, count = struct.unpack_from("<HH", cubin, 58)
    found = 0
    for section in range(count):
        flags, _, _, size_bytes = struct.unpack_from("<QQQQ", cubin, sections_at + section * entry_bytes + 8)
        found += size_bytes if flags & LOADED else 0
    return found


def cuobjdump() -> str:
    triton = importlib.util.find_spec("triton")
    brought = Path(triton.origin).parent / "backends/nvidia/bin/cuobjdump" if triton and triton.origin else None
    found = shutil.which("cuobjdump") or (str(brought) if brought and brought.exists() else None)
    if found is None:
        sys.exit(
            "There is no cuobjdump, neither in PATH nor of an installed Triton. Install triton or the CUDA toolkit."
        )
    return found


def main(chip: str, library: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [cuobjdump(), "-arch", chip, "-xelf", "all", str(Path(library).resolve())]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        files = list(Path(folder).glob("*.cubin"))
        size_bytes = sum(loaded_bytes(file.read_bytes()) for file in files)
    print(f"{Path(library).name}, {chip}: {len(files)} modules, {size_bytes / 2**20:.1f} MiB")


if __name__ == "__main__":
    main(*sys.argv[1:3])

"""Compiles the virtual card: `python -m dryfit.virtual_card.build`.

One shared library from the C files beside this module and one weak stub for every other name of the CUDA interfaces
(names.txt), and one program that asks the real cuDNN. Any C compiler does: $CC, or cc. No CUDA header and no torch is
needed, and one library serves every supported torch version. This module imports nothing of dryfit, so
that the wheel's build hook can load it by path.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "c"
LIBRARY_FOLDER = Path(__file__).resolve().parent / "lib"
SERVER_SOURCE = SOURCES / "cudnn_server.c"  # the one C file that is a program, not a part of the library
SERVER = "dryfit-cudnn-server"
STAMP = "sources.sha256"

COMPILE = ["-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
COMPILE_STUBS = ["-std=c11", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-builtin", "-w"]
COMPILE_SERVER = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wl,-s"]
LINK = ["-shared", "-pthread", "-Wl,-s", "-Wl,-z,defs"]

STUBS_HEAD = """\
// Written by build.py from names.txt and judgements.txt.
#include "card.h"
#define STUB __attribute__((weak, visibility("default"))) long

// Outputs are cleared only in host memory: an int * may as well be an array on the card.
static bool clear_4(long p) { return p && !is_device((void *)p) ? *(int32_t *)p = 0, true : false; }
static bool clear_8(long p) { return p && !is_device((void *)p) ? *(int64_t *)p = 0, true : false; }
static void hand_out(long p) { if (p && !is_device((void *)p)) *(void **)p = new_handle(); }

"""
NVML_NOT_SUPPORTED = 3


class BuildError(Exception):
    """The library could not be compiled; the message says why, and what to do."""


def sources_hash() -> str:
    """The hash of everything the library is made of."""
    digest = hashlib.sha256()
    made_of = (path for path in SOURCES.iterdir() if path.suffix in (".c", ".h", ".txt"))
    for path in [*sorted(made_of), Path(__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def library_sources() -> list[Path]:
    """The C files that the library is compiled from, without the stubs."""
    return sorted(path for path in SOURCES.glob("*.c") if path != SERVER_SOURCE)


def is_current(folder: Path = LIBRARY_FOLDER) -> bool:
    """Whether the library in this folder was compiled from the sources as they are now."""
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text().strip() == sources_hash()


def build(folder: Path = LIBRARY_FOLDER) -> Path:
    """Compile the virtual card into `folder`, and return it.

    >>> build()  # doctest: +SKIP
    PosixPath('.../dryfit/virtual_card/lib')

    Raises:
        BuildError: there is no C compiler, or it failed.
    """
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        stubs = work / "stubs.c"
        stubs.write_text(stubs_text())
        objects = []
        for source in [*library_sources(), stubs]:
            objects.append(work / (source.stem + ".o"))
            flags = COMPILE_STUBS if source == stubs else COMPILE
            _run([*compiler, *flags, f"-I{SOURCES}", "-c", str(source), "-o", str(objects[-1])])
        library, companion = work / "libcuda.so.1", work / "libnvidia-ml.so.1"
        same = [f"-Wl,--defsym={name}={base}" for name, base in aliases().items()]
        _run([*compiler, *LINK, *same, "-Wl,-soname,libcuda.so.1", "-o", str(library), *map(str, objects), "-ldl"])
        # Whoever opens NVML's library finds its names in the first one, which this empty one needs.
        needs = [f"-L{work}", "-Wl,--no-as-needed", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"]
        empty = ["-x", "c", os.devnull, "-x", "none"]
        _run([*compiler, *LINK, "-Wl,-soname,libnvidia-ml.so.1", "-o", str(companion), *empty, *needs])
        server = work / SERVER
        _run([*compiler, *COMPILE_SERVER, str(SERVER_SOURCE), "-o", str(server), "-ldl"])
        link = work / "libcuda.so"  # what `-lcuda` looks for; not a symbolic link, which a wheel cannot hold
        link.write_text("INPUT(libcuda.so.1)\n")
        stamp = work / STAMP
        stamp.write_text(sources_hash() + "\n")
        for path in (
            library,
            companion,
            server,
            link,
            stamp,
        ):  # each replaced at once: two builders do each other no harm
            path.replace(folder / path.name)
    return folder


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(
            f"The virtual card has to be compiled, and the C compiler {command[0]!r} could not be started "
            f"({error.strerror}). Install one (Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc; "
            "conda: conda install gcc), or name yours in the environment variable CC."
        ) from None
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:300].strip())
        raise BuildError(
            f"The C compiler failed on the virtual card (exit status {done.returncode}): {first}\n"
            f"The command was: {shlex.join(command)}\n"
            "A missing header such as stdio.h means that the C library's development files are not installed "
            "(Debian, Ubuntu: apt-get install libc6-dev). Otherwise try another compiler through CC."
        )


# ---- stubs ----------------------------------------------------------------------------------------------------------
def stubs_text() -> str:
    """C text with one weak function for every name; a C file's own definition takes its place when they are linked."""
    names = read_names()
    judgements = read_judgements()
    other_names = aliases()
    return STUBS_HEAD + "".join(
        _stub(name, marks, judgements) for name, marks in names.items() if name not in other_names
    )


def read_names() -> dict[str, list[tuple[int, str]]]:
    """Names, and the outputs of each as (argument number, kind); kinds are 4, 8 and h, as refresh_names.py says."""
    names: dict[str, list[tuple[int, str]]] = {}
    for line in (SOURCES / "names.txt").read_text().splitlines():
        name, *marks = line.split()
        names[name] = [(int(mark.split(":")[0]), mark.split(":")[1]) for mark in marks]
    return names


def aliases() -> dict[str, str]:
    """Other names of functions, with the function that each stands for.

    The driver also exports the names without a version, and the runtime exports those with a suffix for programs whose
    default stream is each thread's own; the linker gives them the same address, whatever the arguments are.

    >>> aliases()["cudaMemcpyAsync_ptsz"], aliases()["cuMemAlloc"]
    ('cudaMemcpyAsync', 'cuMemAlloc_v2')
    """
    names = read_names()
    text = "".join(path.read_text() for path in library_sources())
    written = set(re.findall(r"^EXPORT [^(]*?(\w+)\(", text, re.MULTILINE))
    found: dict[str, str] = {}
    for name in names:
        if re.fullmatch(r"cu[A-Z]\w+_v\d", name) and name[:-3] not in names:
            found.setdefault(name[:-3], name)
        base = re.sub(r"_pt[sd][sz]$", "", name)
        if base != name and (base in names or base in written):
            found[name] = base
    return {name: base for name, base in found.items() if name not in written}


def read_judgements() -> list[tuple[str, bool]]:
    """Patterns of names, and whether such a call is counted as unfaithful; the first match decides."""
    lines = (SOURCES / "judgements.txt").read_text().splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line and not line.startswith("#")]
    return [(pattern, verdict == "unfaithful") for pattern, verdict, _why in rows]


def _stub(name: str, outputs: list[tuple[int, str]], judgements: list[tuple[str, bool]]) -> str:
    arguments = ", ".join(f"long a{i}" for i in range(max((n for n, _ in outputs), default=-1) + 1)) or "void"
    if name.startswith("nvml"):  # an honest refusal
        return f"STUB {name}(void) {{ return {NVML_NOT_SUPPORTED}; }}\n"
    judged = next((counted for pattern, counted in judgements if fnmatch.fnmatchcase(name, pattern)), None)
    handles = "".join(f"hand_out(a{n}); " for n, kind in outputs if kind == "h")
    numbers = [f"clear_{kind}(a{n})" for n, kind in outputs if kind != "h"]
    body = handles + ("bool told = " + " | ".join(numbers) + "; " if numbers else "")
    if judged:
        body += f'UNFAITHFUL("{name}"); '
    elif numbers:
        body += "(void)told; " if judged is False else f'if (told) UNFAITHFUL("{name}"); '
    return f"STUB {name}({arguments}) {{ {body}return 0; }}\n"


if __name__ == "__main__":
    try:
        print(f"The virtual card is compiled: {build()}")
    except BuildError as error:
        sys.exit(f"dryfit: {error}")

"""Refreshes c/names.txt for new torch releases: `python -m dryfit.virtual_card.refresh_names SITE_PACKAGES...`.

A maintainer's tool; it needs gcc and nm, and one site-packages folder for each torch version to be covered.

names.txt has one line per function of the CUDA interfaces: its name, then N:K for each output argument, where N counts
the integer and pointer arguments from 0, and K is 4 or 8 (a number of so many bytes) or h (a handle). A name is never
taken out, so that one library serves every version seen.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from dryfit.virtual_card.build import SOURCES

NAMES = SOURCES / "names.txt"

# Not nvrtc and nvJitLink: compiling needs no card, and torch finds them by dlsym, past any stub.
FAMILIES = re.compile(r"_*cuda[A-Z_]|cu[A-Z]|cublas|cudnn|cusparse|cufft|curand|nccl|nvshmem|cupti|cusolver|nvml[A-Z]")
HEADERS = (
    "cuda.h", "cudaProfiler.h", "cuda_runtime_api.h", "cuda_profiler_api.h", "cublas_v2.h", "cublasLt.h", "cublasXt.h",
    "cudnn.h", "cusparse.h", "cusparseLt.h", "cusolverDn.h", "cusolverSp.h", "cusolverMg.h", "cufft.h", "cufftXt.h",
    "curand.h", "nccl.h", "cufile.h", "cupti.h",
)  # fmt: skip
NUMBER_BYTES = {
    "int": 4, "unsigned": 4, "unsigned int": 4, "float": 4, "int32_t": 4, "uint32_t": 4, "CUdevice": 4, "cuuint32_t": 4,
    "size_t": 8, "int64_t": 8, "uint64_t": 8, "double": 8, "long long": 8, "long long int": 8, "unsigned long long": 8,
    "unsigned long long int": 8, "CUdeviceptr": 8, "CUdeviceptr_v2": 8, "cuuint64_t": 8,
}  # fmt: skip
HANDS_OUT = re.compile(r"Create|Get|Load|Open|Alloc|Init|Instantiate|Retain|Clone|Import|Split|Add|Reserve|Malloc")
# Of these, pointers are what the caller passes in, and answers a handle at most.
PASSES_IN = re.compile(
    r"_*(?:cuda|cu(?=[A-Z])|cublas|cufft|cupti)\w*?(?:Batch\w*Async|GetAttributes|LoadData|LinkAdd|LinkCreate|Set(?!s))"
)
STRUCTURE = re.compile(r"(?:3|Extent|PitchedPtr|Complex|UniqueId)$")  # types that are passed by value


def symbols(site: Path) -> set[str]:
    """What torch and its CUDA extensions take from the CUDA libraries, and what those offer."""
    names: set[str] = set()
    nvshmem_own: set[str] = set()  # NVSHMEM defines thousands; only those that others take are wanted
    libraries = sorted(site.glob("**/*.so*"), key=lambda path: "nvidia" not in path.parts)
    for library in libraries:
        if "nvidia" in library.parts:
            offered = _nm(library, "--defined-only")
            names |= offered
            nvshmem_own |= {name for name in offered if name.startswith("nvshmem")}
        elif "cuda" in library.name or library.parent.name == "lib" or library.name.startswith("nvshmem"):
            taken = _nm(library, "--undefined-only")
            names |= taken
            nvshmem_own -= taken
    for library in site.glob("torch/lib/lib*cuda*.so"):  # NVML's names are looked up by dlsym
        names |= {found.decode() for found in re.findall(rb"\bnvml[A-Z]\w+\b", library.read_bytes())}
    return {name for name in names - nvshmem_own if FAMILIES.match(name)}


def _nm(library: Path, which: str) -> set[str]:
    done = subprocess.run(["nm", "-D", which, str(library)], check=False, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.strip()}


def marks_of_headers(folders: Iterable[Path]) -> dict[str, str]:
    """The functions that the CUDA headers in these folders declare, with the marks of their outputs."""
    folders = list(folders)
    found: dict[str, str] = {}
    for header in HEADERS:
        if not any((folder / header).exists() for folder in folders):
            continue
        command = ["gcc", "-E", "-P", "-w", *(f"-I{folder}" for folder in folders), "-"]
        done = subprocess.run(command, check=False, input=f"#include <{header}>\n", capture_output=True, text=True)
        found |= marks_of_text(done.stdout)
    return found


def marks_of_text(text: str) -> dict[str, str]:
    """The functions that preprocessed C text declares, with the marks of their outputs.

    >>> marks_of_text("int cuDeviceGetCount(int *count); int cuInit(unsigned int flags);")
    {'cuDeviceGetCount': '0:4', 'cuInit': ''}
    """
    numbers = dict(NUMBER_BYTES)
    for base, alias in re.findall(r"typedef\s+([\w ]+?)\s+(\w+)\s*;", text):
        if base in numbers:
            numbers.setdefault(alias, numbers[base])
    enumerations = re.findall(r"typedef\s+enum\b[^{;]*\{[^}]*\}\s*(\w+)\s*;", text)
    enumerations += re.findall(r"\benum\s+(\w+)\s*\{", text) + re.findall(r"typedef\s+enum\s+\w+\s+(\w+)\s*;", text)
    numbers |= dict.fromkeys(enumerations, 4)
    handles = set(re.findall(r"typedef\s+[\w\s]+\*\s*(\w+)\s*;", text)) | {"CUmemGenericAllocationHandle"}
    return {
        name: _marks(name, arguments, numbers, handles)
        for name, arguments in re.findall(r"\b(\w+)\s*\(([^(){};]*)\)\s*;", text)
        if FAMILIES.match(name) and not name.endswith("_t")
    }


def _marks(name: str, arguments: str, numbers: dict[str, int], handles: set[str]) -> str:
    marks: list[str] = []
    position = 0
    for written in arguments.split(","):
        argument = re.sub(r"\b(struct|enum|__restrict__)\b", "", re.sub(r"\[\w*\]", "*", written)).strip()
        if argument in ("void", "", "..."):
            continue
        stars = argument.count("*")
        words = argument.replace("*", " ").split()
        constant = "const" in words
        words = [word for word in words if word != "const"]
        if not argument.endswith("*") and len(words) > 1:
            words.pop()  # the parameter's name
        base = " ".join(words)
        if not stars and base in ("float", "double"):
            continue  # travels in a floating-point register, and is not counted
        if not stars and base not in numbers and base not in handles and STRUCTURE.search(base):
            break  # a structure by value: where the arguments after it are is not known
        # cuFFT's plans are written to by their number; of its other outputs only the sizes are in host memory.
        in_plan = name.startswith("cufft") and base != "size_t" and position > 0
        if stars and not constant and not in_plan:
            hands_out = (stars == 2 and base != "char") or (stars == 1 and base in handles)
            if HANDS_OUT.search(name) and hands_out:
                marks.append(f"{position}:h")
            elif stars == 1 and base in numbers:
                marks.append(f"{position}:{numbers[base]}")
        position += 1
    if PASSES_IN.match(name):
        handed_out = [mark for mark in marks if mark.endswith(":h")]
        marks = handed_out[:1] if "LoadData" in name else handed_out[-1:] if "LinkCreate" in name else []
    return " ".join(marks)


def main(sites: list[str]) -> None:
    """Read the folders, and write the file anew."""
    known = {line.split()[0]: line.partition(" ")[2] for line in NAMES.read_text().splitlines()}
    before = len(known)
    for site in map(Path, sites):
        for name in symbols(site):
            known.setdefault(name, "")
        for name, marks in marks_of_headers(sorted(site.glob("nvidia/*/include"))).items():
            known[name] = marks or known.get(name, "")
    NAMES.write_text("".join(f"{name} {known[name]}".rstrip() + "\n" for name in sorted(known)))
    print(f"{len(known)} names, {len(known) - before} of them new, {sum(map(bool, known.values()))} with outputs")


if __name__ == "__main__":
    main(sys.argv[1:])

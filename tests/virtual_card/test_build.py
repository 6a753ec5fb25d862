"""Compiling: warnings are errors here, and what goes wrong is said in words."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
from pathlib import Path

import pytest

from dryfit.virtual_card import build, refresh_names

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("source", sorted(build.SOURCES.glob("*.c")), ids=lambda path: path.name)
def test_no_compiler_has_anything_to_warn_of(compiler: str, source: Path, tmp_path: Path) -> None:
    command = [compiler, *build.COMPILE, "-Werror", "-c", str(source), "-o", str(tmp_path / "out.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_any_compiler_makes_the_library(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    assert build.build(tmp_path) == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "dryfit-cudnn-server", "libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "sources.sha256",
    ]  # fmt: skip
    assert build.is_current(tmp_path)


def test_a_missing_compiler_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(build.BuildError) as failed:
        build.build(tmp_path)
    assert "the C compiler 'no-such-compiler' could not be started (No such file or directory)" in str(failed.value)
    assert "apt-get install gcc libc6-dev" in str(failed.value)


def test_a_failing_compiler_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -include no_such_header.h")
    with pytest.raises(build.BuildError) as failed:
        build.build(tmp_path)
    assert "The C compiler failed on the virtual card (exit status 1)" in str(failed.value)
    assert "no_such_header.h" in str(failed.value)
    assert not (tmp_path / "libcuda.so.1").exists()


def test_stubs_count_invented_numbers_and_nothing_else() -> None:
    stubs = {
        line.split("(")[0].split()[-1]: line for line in build.stubs_text().splitlines() if line.startswith("STUB")
    }
    assert stubs["cudaLaunchKernel"] == "STUB cudaLaunchKernel(void) { return 0; }"
    assert "UNFAITHFUL" in stubs["cusolverDnSpotrf_bufferSize"]
    assert "if (told) UNFAITHFUL" in stubs["cufftXtMakePlanMany"]
    assert "UNFAITHFUL" not in stubs["cublasGetMathMode"]  # judged: zero is its default
    assert "UNFAITHFUL" in stubs["cudaMemcpy3DAsync"]  # judged: the bytes do not arrive
    assert stubs["nvmlDeviceGetTemperature"].endswith("{ return 3; }")  # "not supported": an honest refusal


def test_pointers_that_pass_something_in_are_not_taken_for_outputs() -> None:
    text = """
        typedef struct CUlinkState_st *CUlinkState; typedef enum CUjit_option_enum { A } CUjit_option;
        CUresult cuLinkCreate_v2(unsigned int n, CUjit_option *options, void **values, CUlinkState *state);
        CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count);
        CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *size);
    """
    marks = {"cuLinkCreate_v2": "3:h", "cuMemcpyBatchAsync_v2": "", "cuLinkComplete": "2:8"}
    assert refresh_names.marks_of_text(text) == marks
    names = build.read_names()
    assert {name: " ".join(f"{n}:{kind}" for n, kind in names[name]) for name in marks} == marks


def test_every_judgement_is_about_a_name_that_exists() -> None:
    names = build.read_names()
    for pattern, _ in build.read_judgements():
        assert any(fnmatch.fnmatchcase(name, pattern) for name in names), pattern

"""The finder that waits for a module runs in fresh interpreters: it changes `sys.meta_path`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PRELUDE = "from dryfit.rehearse.inside.imports import after_import\nseen = []\n"


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout.strip()


def test_a_function_runs_once_right_after_the_import(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("value = 1\n")
    code = (
        "after_import('late', lambda m: seen.append(m.value))\n"
        "print(seen)\nimport late\nprint(seen)\nimport importlib; importlib.reload(late)\nprint(seen)"
    )
    assert run(code, tmp_path).split("\n") == ["[]", "[1]", "[1]"]


def test_submodules_and_packages(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "inner.py").write_text("")
    code = (
        "for name in ('pack.inner', 'pack'): after_import(name, lambda m: seen.append(m.__name__))\n"
        "import pack.inner\nprint(seen)"
    )
    assert run(code, tmp_path) == "['pack', 'pack.inner']"


def test_the_loader_steps_out_of_the_way(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("")
    code = (
        "after_import('late', lambda m: None)\nimport late\n"
        "print(type(late.__loader__).__name__, type(late.__spec__.loader).__name__)"
    )
    assert run(code, tmp_path) == "SourceFileLoader SourceFileLoader"


def test_a_missing_module_is_still_missing(tmp_path: Path) -> None:
    code = (
        "after_import('nowhere', lambda m: seen.append(m))\n"
        "try:\n    import nowhere\nexcept ModuleNotFoundError as error:\n    print(error, seen)"
    )
    assert run(code, tmp_path) == "No module named 'nowhere' []"


def test_an_import_that_fails_calls_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('as written')\n")
    code = (
        "after_import('broken', lambda m: seen.append(m))\n"
        "try:\n    import broken\nexcept ValueError as error:\n    print(error, seen)"
    )
    assert run(code, tmp_path) == "as written []"


def test_a_module_that_is_being_imported_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("")
    (tmp_path / "outer.py").write_text("import inner\nvalue = 1\n")
    (tmp_path / "failing.py").write_text("import inner\nraise ValueError\n")
    for outer, seen in (("outer", "[1]"), ("failing", "[]")):
        code = (
            f"after_import('inner', lambda _: after_import({outer!r}, lambda m: seen.append(m.value)))\n"
            f"try:\n    import {outer}\nexcept ValueError:\n    pass\n"
            f"print(seen, type(sys.modules[{outer!r}].__spec__).__name__ if {outer!r} in sys.modules else 'gone')"
        )
        assert run("import sys\n" + code, tmp_path) == f"{seen} {'ModuleSpec' if outer == 'outer' else 'gone'}"


def test_looking_for_a_module_is_not_importing_it(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("")
    code = (
        "import importlib.util\nafter_import('late', lambda m: seen.append(m.__name__))\n"
        "importlib.util.find_spec('late')\nprint(seen)\nimport late\nprint(seen)"
    )
    assert run(code, tmp_path).split("\n") == ["[]", "['late']"]


def test_the_first_code_of_every_process_loads_no_part_of_the_virtual_card(tmp_path: Path) -> None:
    code = (
        "import sys\nimport dryfit.rehearse.inside.bootstrap\n"
        "print([name for name in sys.modules if name == 'torch' or 'virtual_card' in name])"
    )
    assert run(code, tmp_path) == "[]"

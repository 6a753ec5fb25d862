"""Files and directories, judged by the rules."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.findings import Finding, rule_of
from dryfit.linting.checking import Checked, check, order, parse
from dryfit.linting.files import find_files, read_text
from dryfit.linting.notebooks import read_notebook
from dryfit.linting.rules import CHECKS

_PYTHON_2 = re.compile(
    r"^\s*(print\s+[^(\s=]|exec\s+[\"']|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+\w+\s*,)", re.MULTILINE
)
# A newer Python may know what this one does not.
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
# They rest on no caller running the function under no_grad, and a caller may be in another file.
_REST_ON_CALLERS = {"DF101", "DF102", "DF201"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """What `lint` saw. `files` are those that were read, `problems` a sentence for each thing that could not be."""

    files: tuple[str, ...]
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]


def lint(paths: Sequence[str | Path], *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> LintReport:
    """The mistakes in the training programs under some paths, from their source alone.

        report = dryfit.lint(["train.py", "src"])
        for finding in report.findings:
            print(finding.place.file, finding.place.line, finding.code, finding.claim)

    Nothing is imported or run. `select` and `ignore` are codes or names of rules; without `select`, all are used.
    A file that cannot be read is a sentence in `problems`, and the others are read all the same. Places in a notebook
    have the file `notebook.ipynb:cell 3`, and the line in that cell.

    Raises:
        UsageError: a word of `select` or `ignore` is no rule that looks at source.
    """
    codes = (_codes(select, "select") or frozenset(CHECKS)) - _codes(ignore, "ignore")
    files: list[str] = []
    problems: list[str] = []
    checked: list[tuple[str, Checked]] = []
    for path, problem in find_files(paths):
        text, unread = ("", problem) if problem else read_text(path)
        if unread:
            problems.append(unread)
            continue
        found = (
            _check_notebook(text, str(path), codes) if path.suffix == ".ipynb" else _check_text(text, str(path), codes)
        )
        if found.findings or not found.problems:
            files.append(str(path))
        problems.extend(found.problems)
        checked.append((str(path), found))
    findings = [
        each for file, found in checked for each in found.findings if not _called_elsewhere(each, file, checked)
    ]
    return LintReport(files=tuple(files), findings=tuple(sorted(findings, key=order)), problems=tuple(problems))


def _codes(words: Sequence[str], option: str) -> frozenset[str]:
    found = set()
    for word in words:
        rule = rule_of(word)
        if rule is None or rule.code not in CHECKS:
            known = ", ".join(CHECKS)
            raise UsageError(f"`{word}`, given to {option}, is no rule that looks at source. Those are {known}.")
        found.add(rule.code)
    return frozenset(found)


def _check_text(text: str, file: str, codes: frozenset[str]) -> Checked:
    try:
        return check(parse(text, file), text, file, codes)
    except SyntaxError as error:
        if _PYTHON_2.search(text):
            return Checked(problems=(f"{file} is written for Python 2, and was left out.",))
        return Checked(
            problems=(
                f"{file}:{error.lineno or 1}: this is no Python {_VERSION} ({error.msg}); the file was left out.",
            )
        )
    except (RecursionError, MemoryError):
        return Checked(problems=(f"{file} is nested too deeply to be read, and was left out.",))


def _check_notebook(text: str, file: str, codes: frozenset[str]) -> Checked:
    try:
        notebook = read_notebook(text, file)
    except ValueError as error:
        return Checked(problems=(f"{file} is no notebook ({error}), and was left out.",))
    found = _check_text(notebook.source, file, codes)
    return Checked(
        findings=tuple(notebook.translate(each) for each in found.findings),
        problems=notebook.problems + found.problems,
        called_without_gradients=found.called_without_gradients,
    )


def _called_elsewhere(finding: Finding, file: str, checked: list[tuple[str, Checked]]) -> bool:
    """Whether another file calls the finding's function with gradients off."""
    if finding.code not in _REST_ON_CALLERS or finding.place is None:
        return False
    name = finding.place.function.rpartition(".")[2]
    return bool(name) and any(name in each.called_without_gradients for other, each in checked if other != file)

"""Notebooks: the code cells as one module, and from its lines back to cell and line."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, replace

from dryfit.findings import Finding, Place
from dryfit.findings.finding import CELL
from dryfit.linting.checking import parse

# A line of IPython's, not Python's: magics, shell commands, help; also where their result is assigned.
_MAGIC = re.compile(r"^(?P<indent>\s*)([\w, ]+=\s*)?([%!]|\?)|^(?P<help>\s*)[\w.]+\?{1,2}\s*$")
_CELL_MAGIC = re.compile(r"^\s*%%(?P<name>\w+)")
# Cell magics whose cell is Python all the same.
_STILL_PYTHON = {"time", "timeit", "capture", "prun", "wandb"}


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook as one source. `starts`: the number of each cell, from 1, and its first line in the source."""

    file: str
    source: str
    starts: tuple[tuple[int, int], ...]
    problems: tuple[str, ...]

    def translate(self, finding: Finding) -> Finding:
        """The finding with its places as `notebook.ipynb:cell 3` and the line in that cell."""
        place = None if finding.place is None else self._place(finding.place)
        return replace(finding, place=place, more_places=tuple(self._place(each) for each in finding.more_places))

    def _place(self, place: Place) -> Place:
        cell, start = max((each for each in self.starts if each[1] <= place.line), key=lambda each: each[1])
        return replace(
            place, file=f"{self.file}{CELL}{cell}", line=place.line - start + 1, end_line=place.end_line - start + 1
        )


def read_notebook(text: str, file: str) -> Notebook:
    """The code of a notebook's text; cells that are no Python are left out, and told in `problems`.

    Raises:
        ValueError: the text is no notebook.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is no JSON") from error
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it has no list of cells")
    source, line = "", 1
    starts, problems = [], []
    for number, cell in enumerate(cells, start=1):
        code = _code_of(cell)
        if code is None:
            continue
        try:
            parse(code, file)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problems.append(f"{file}:cell {number}: this cell is no Python ({_reason(error)}), and was left out.")
            continue
        starts.append((number, line))
        source += code + "\n"
        line += len(re.findall(r"\r\n|\r|\n", code)) + 1
    return Notebook(file, source, tuple(starts), tuple(problems))


def _reason(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__


def _code_of(cell: object) -> str | None:
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return None
    written = cell.get("source")
    text = "".join(each for each in written if isinstance(each, str)) if isinstance(written, list) else written
    if not isinstance(text, str) or not text.strip():
        return None
    magic = _CELL_MAGIC.match(text)
    if magic is not None and magic["name"] not in _STILL_PYTHON:
        return None
    return "\n".join(_without_magic(line, text) for line in text.split("\n"))


def _without_magic(line: str, cell: str) -> str:
    found = _MAGIC.match(line)
    if found is None or not line.strip():
        return line
    # A line that begins with % may also go on with the line before it: `("%d"\n % x)`.
    if line.lstrip()[:1] == "%" and _is_python(cell):
        return line
    return (found["indent"] or found["help"] or "") + "pass"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True

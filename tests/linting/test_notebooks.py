"""Notebooks: cells as one module, magics left out, places as cell and line."""

from __future__ import annotations

import json
from pathlib import Path

from dryfit.linting import lint


def notebook(path: Path, *cells: str | list[str]) -> Path:
    made: list[dict[str, object]] = [{"cell_type": "markdown", "source": ["# Training"]}]
    made += [{"cell_type": "code", "source": cell, "outputs": []} for cell in cells]
    path.write_text(json.dumps({"cells": made, "nbformat": 4}))
    return path


def test_cells_are_one_module_and_places_name_the_cell(tmp_path: Path) -> None:
    book = notebook(
        tmp_path / "train.ipynb",
        ["%matplotlib inline\n", "!pip install torch\n", "import torch\n", "torch.cuda?\n", "files = !ls"],
        "total = 0",
        "%%time\nfor x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n    total += loss",
    )
    report = lint([book])
    assert report.problems == ()
    (finding,) = report.findings
    assert finding.place is not None
    assert (finding.place.file, finding.place.line) == (f"{book}:cell 4", 5)
    assert finding.place.text == "total += loss"
    assert [(each.file, each.line) for each in finding.more_places] == [(f"{book}:cell 4", 4)]


def test_cells_that_are_no_python_are_left_out(tmp_path: Path) -> None:
    book = notebook(
        tmp_path / "train.ipynb",
        "%%bash\nfor x in *; do echo $x; done",
        "def f(:",
        "net = net.cuda()\nnet.eval()\nfor x in loader:\n    print(net(x))  # torch",
    )
    report = lint([book])
    assert [(each.code, each.place.line) for each in report.findings if each.place] == [("DF201", 4)]
    (problem,) = report.problems
    assert problem.startswith(f"{book}:cell 3: this cell is no Python (")
    assert problem.endswith("), and was left out.")


def test_a_line_that_goes_on_with_a_percent_sign_is_python(tmp_path: Path) -> None:
    book = notebook(
        tmp_path / "train.ipynb",
        "for x in loader:\n    loss = model(x)\n    loss.backward()\n    print('%d'\n    % 3)\n    total += loss",
        "total = 0  # torch",
    )
    assert lint([book]).problems == ()


def test_ignores_work_in_cells(tmp_path: Path) -> None:
    book = notebook(
        tmp_path / "train.ipynb",
        "import torch\nnet.eval()\nfor x in loader:\n    print(net(x))  # dryfit: ignore[DF201]",
    )
    assert lint([book]).findings == ()


def test_what_is_no_notebook(tmp_path: Path) -> None:
    for content in ("[1, 2]", '{"cells": 3}', '{"cells": [1, {"cell_type": "code", "source": 5}]}'):
        (tmp_path / "x.ipynb").write_text(content)
        report = lint([tmp_path / "x.ipynb"])
        assert report.findings == ()
    (tmp_path / "x.ipynb").write_text("[1, 2]")
    assert lint([tmp_path / "x.ipynb"]).problems == (
        f"{tmp_path / 'x.ipynb'} is no notebook (it has no list of cells), and was left out.",
    )

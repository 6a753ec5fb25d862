"""Files and directories: what is read, what is left out and how that is told, what `select` and comments do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dryfit.errors import UsageError
from dryfit.linting import LintReport, lint, lint_source

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LEAK = """\
import torch
def train(model, loader, criterion):
    total = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        total += loss
"""
EVALUATION = """\
import torch
def evaluate(model, loader):
    model.eval()
    for x in loader:
        print(model(x).argmax())
"""


def codes(report: LintReport) -> list[str]:
    return [each.code for each in report.findings]


def test_a_file_and_where_the_mistake_is(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAK)
    report = lint([file])
    assert report.files == (str(file),)
    assert report.problems == ()
    (finding,) = report.findings
    place = finding.place
    assert place is not None
    assert (place.file, place.line, place.column, place.end_line, place.end_column) == (str(file), 7, 9, 7, 22)
    assert (place.function, place.text) == ("train", "total += loss")
    assert finding.claim == (
        "`total` sums `loss` together with its graph, so the graph of every iteration stays: backward has freed what "
        "it held on the card, so host memory grows."
    )
    assert finding.advice == "Add the number: `loss.item()`, or `.detach()` where waiting for it each time is slow."
    assert (finding.evidence.memory, finding.evidence.holder) == ("host", "total")
    assert [each.text for each in finding.more_places] == ["loss.backward()"]


def test_columns_count_characters() -> None:
    source = LEAK.replace("total += loss", "größe = 'ä'; total += loss")
    (finding,) = lint_source(source)
    assert finding.place is not None
    assert finding.place.column == len("        größe = 'ä'; ") + 1


def test_directories_are_walked_in_order_without_what_is_not_the_users(tmp_path: Path) -> None:
    for name in ("b.py", "a/z.py", "a/b.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(LEAK)
    for folder in (".git", "venv", "site-packages", "node_modules", "build", ".hidden"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text(LEAK)
    other = tmp_path / "my-python"
    other.mkdir()
    (other / "pyvenv.cfg").write_text("")
    (other / "x.py").write_text(LEAK)
    report = lint([tmp_path])
    assert [Path(each).relative_to(tmp_path).as_posix() for each in report.files] == ["b.py", "a/b.py", "a/z.py"]
    assert codes(report) == ["DF101"] * 3
    assert lint([tmp_path]) == report
    assert lint([tmp_path / "venv" / "x.py"]).findings


def test_the_same_file_is_looked_at_once(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAK)
    assert codes(lint([file, tmp_path, str(file)])) == ["DF101"]


def test_what_cannot_be_read_is_one_sentence_each(tmp_path: Path) -> None:
    written = {
        "broken.py": b"def f(:\n    pass\n",
        "python2.py": b"import torch\nprint 'loss', loss\n",
        "latin.py": "# größe\nimport torch\n".encode("latin-1"),
        "binary.py": b"\x00\x01import torch",
        "large.py": b"# torch\n" * 300_000,
        "deep.py": b"x = " + b"-" * 100_000 + b"1  # torch\n",
        "book.ipynb": b"{not json",
        "good.py": LEAK.encode(),
    }
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link.py").symlink_to(tmp_path / "nowhere.py")
    names = [*written, "link.py", "missing.py"]
    report = lint([tmp_path / name for name in names])
    assert codes(report) == ["DF101"]
    told = {problem.replace(f"{tmp_path}/", "") for problem in report.problems}
    assert "python2.py is written for Python 2, and was left out." in told
    assert "binary.py holds binary data, no source, and was left out." in told
    assert "large.py has 2,400,000 bytes, more than the 2,097,152 that are read, and was left out." in told
    assert "deep.py is nested too deeply to be read, and was left out." in told
    assert "book.ipynb is no notebook (it is no JSON), and was left out." in told
    assert "link.py: this link leads nowhere." in told
    assert "missing.py: there is no such file or directory." in told
    assert any(each.startswith(f"broken.py:1: this is no Python {VERSION} (") for each in told)
    assert any(each.startswith("latin.py is not written in the encoding it should be (") for each in told)
    assert len(told) == 9


def test_a_coding_line_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(b"# -*- coding: latin-1 -*-\n# gr\xf6\xdfe\n" + LEAK.encode())
    assert codes(lint([file])) == ["DF101"]


def test_select_and_ignore_take_codes_and_names(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAK + EVALUATION)
    assert codes(lint([file])) == ["DF101", "DF201"]
    assert codes(lint([file], select=["evaluation-with-graph"])) == ["DF201"]
    assert codes(lint([file], ignore=["DF201"])) == ["DF101"]
    assert codes(lint([file], select=["DF101", "DF201"], ignore=["loss-kept-with-graph"])) == ["DF201"]


@pytest.mark.parametrize("word", ["DF999", "DF501", "no-such-rule"])
def test_a_word_that_is_no_rule_of_lint(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        lint([], select=[word])
    assert str(caught.value).startswith(
        f"`{word}`, given to select, is no rule that looks at source. Those are DF101, "
    )


def test_comments_set_findings_aside() -> None:
    line = "        total += loss"
    assert lint_source(LEAK.replace(line, f"{line}  # dryfit: ignore")) == ()
    assert lint_source(LEAK.replace(line, f"{line}  # dryfit: ignore[DF101]")) == ()
    assert lint_source(LEAK.replace(line, f"{line}  # dryfit: ignore[data-parallel, loss-kept-with-graph]")) == ()
    assert len(lint_source(LEAK.replace(line, f"{line}  # dryfit: ignore[DF102]"))) == 1
    assert len(lint_source(LEAK.replace(line, f"{line}  # dryfit: ignore[]"))) == 1
    assert len(lint_source(LEAK.replace(line, f"{line}; note = '# dryfit: ignore'"))) == 1
    assert lint_source("# dryfit: ignore-file\n" + LEAK) == ()


def test_a_comment_on_the_first_line_of_the_statement() -> None:
    source = EVALUATION.replace(
        "print(model(x).argmax())", "print(  # dryfit: ignore[DF201]\n            model(x),\n        )"
    )
    assert lint_source(source) == ()
    assert [each.code for each in lint_source(source.replace("ignore[DF201]", "ignore[DF101]"))] == ["DF201"]
    # The comment of a loop's head does not speak for its body.
    assert len(lint_source(EVALUATION.replace("in loader:", "in loader:  # dryfit: ignore"))) == 1


def test_a_comment_with_an_unknown_word_is_told(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAK + "\n# dryfit: ignore[DF1O1]\n")
    assert lint([file]).problems == (
        f"{file}:9: `# dryfit: ignore[DF1O1]` names no rule of dryfit's; see `dryfit lint --explain`.",
    )


def test_a_caller_in_another_file_may_switch_gradients_off(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(EVALUATION)
    caller = tmp_path / "main.py"
    caller.write_text(
        "import torch\nfrom engine import evaluate\nmodel.eval()\nwith torch.no_grad():\n    evaluate(model, loader)\n"
    )
    assert codes(lint([tmp_path / "engine.py"])) == ["DF201"]
    assert codes(lint([tmp_path])) == []


def test_syntax_errors_of_a_text_are_raised() -> None:
    with pytest.raises(SyntaxError):
        lint_source("def f(:")


def test_pythons_own_warnings_about_a_text_are_not_shown() -> None:
    assert lint_source("import torch\npath = '\\d'\nassert (1, 'x')\ntorch.cuda.empty_cache()\n") == ()


def test_another_library_with_the_same_words() -> None:
    assert lint_source(LEAK.replace("import torch", "from mxnet import autograd")) == ()


def test_no_torch_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAK + "raise SystemExit('the program was run')\n")
    code = f"import sys; from dryfit.linting import lint; print(len(lint([{str(file)!r}]).findings)); "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


def test_findings_are_plain_values() -> None:
    from dryfit.findings import Finding

    for finding in lint_source(LEAK + EVALUATION):
        assert Finding.from_dict(finding.to_dict()) == finding

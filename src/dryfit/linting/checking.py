"""One source, judged by the rules."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection
from dataclasses import dataclass

from dryfit.findings import Finding
from dryfit.linting.comments import ignores_of
from dryfit.linting.flow import Flow
from dryfit.linting.rules import CHECKS

# Others (MXNet, Paddle, TensorFlow) have functions of the same names.
_LIBRARIES = ("torch", "lightning", "transformers", "accelerate")
# One of these is in every program that a rule has something to say about; the others are not looked at further.
_WORDS = (
    ".backward(",
    "manual_backward",
    "loss_scaler",
    "training_step",
    "compute_loss",
    ".eval()",
    "DataParallel",
    "utils.checkpoint",
    "utils import checkpoint",
    "gradient_checkpointing_enable",
    "empty_cache",
    "DataLoader",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found in one source.

    `called_without_gradients` are the functions it calls under no_grad: another file may define them.
    """

    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()
    called_without_gradients: frozenset[str] = frozenset()


def lint_source(source: str, file: str = "<text>") -> tuple[Finding, ...]:
    """The mistakes in a program's text, in the order of its lines.

        for finding in lint_source(Path("train.py").read_text(), "train.py"):
            print(finding.place.line, finding.code, finding.claim)

    The program is read, never run or imported.

    Raises:
        SyntaxError: the text is no Python of the version that runs dryfit.
    """
    return check(parse(source, file), source, file).findings


def parse(source: str, file: str) -> ast.Module:
    """The syntax tree, without Python's own warnings about the text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, filename=file)


def check(module: ast.Module, source: str, file: str, codes: Collection[str] = tuple(CHECKS)) -> Checked:
    """Judges a parsed source by the rules of `codes`."""
    if not any(word in source for word in _LIBRARIES) or not any(word in source for word in _WORDS):
        return Checked()
    ignores = ignores_of(source, module)
    problems = tuple(
        f"{file}:{line}: `# dryfit: ignore[{word}]` names no rule of dryfit's; see `dryfit lint --explain`."
        for line, word in ignores.problems
    )
    if ignores.whole_file:
        return Checked(problems=problems)
    flow = Flow.of(module, source, file)
    found = [each for code, rule in CHECKS.items() if code in codes for each in rule(flow)]
    kept = {order(each): each for each in found if not ignores.hides(each)}
    return Checked(
        findings=tuple(kept[each] for each in sorted(kept)),
        problems=problems,
        called_without_gradients=flow.called_without_gradients(),
    )


def order(finding: Finding) -> tuple[str, int, int, str, str]:
    """What findings are sorted by: file, line, column, code."""
    place = finding.place
    assert place is not None
    return place.file, place.line, place.column, finding.code, finding.claim

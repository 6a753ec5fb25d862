"""Finds the statically certain mistakes in training programs, from their source alone. No torch.

    checking.py    one source: read, judged by all rules, without what a comment sets aside
    paths.py       files and directories: a LintReport
    files.py       which files, and what cannot be read
    notebooks.py   notebooks as one module, cell by cell
    comments.py    `# dryfit: ignore[DF101]`
    flow/          what the rules know of a file
    rules/         one file for each rule

Precision comes first: a rule speaks only where the file shows all it needs.
"""

from dryfit.linting.checking import lint_source
from dryfit.linting.paths import LintReport, lint

__all__ = ["LintReport", "lint", "lint_source"]

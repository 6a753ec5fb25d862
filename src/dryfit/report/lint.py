"""What `dryfit lint` found, in the terminal: each place as editors jump to it, the line, the claim, what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from dryfit.findings import Finding
from dryfit.places import as_seen_from_here
from dryfit.report.terminal import open_console, say, sentence

if TYPE_CHECKING:
    from dryfit.linting import LintReport


def print_lint(report: LintReport, file: TextIO | None = None) -> None:
    """Print all findings, and how many there are in how many files.

    train.py:41:9: DF101 loss-kept-with-graph
        total_loss += loss
        total_loss keeps the graph of every step. Add loss.item().
    """
    console = open_console(file)
    for finding in report.findings:
        say(console, _head(finding), style="bold")
        if finding.place is not None and finding.place.text.strip():
            say(console, f"    {finding.place.text.strip()}", style="cyan")
        sentence(console, f"    {finding.claim} {finding.advice}")
    if report.findings:
        codes = sorted({finding.code for finding in report.findings})
        console.print()
        sentence(console, f"{_summary(report)} `dryfit lint --explain {codes[0]}` says more.")
    else:
        sentence(console, _summary(report))


def _head(finding: Finding) -> str:
    if finding.place is None:
        return finding.title
    column = f":{finding.place.column}" if finding.place.column else ""
    return f"{as_seen_from_here(finding.place.file)}:{finding.place.line}{column}: {finding.title}"


def _summary(report: LintReport) -> str:
    files = f"{len(report.files):,} file{'' if len(report.files) == 1 else 's'}"
    if not report.findings:
        return f"No mistake is certain in {files}."
    return f"{len(report.findings):,} finding{'' if len(report.findings) == 1 else 's'} in {files}."

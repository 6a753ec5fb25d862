"""Findings: what is wrong with how a program uses memory, wherever it was seen.

    rules.py     what there is to find: a code and a name for each kind
    finding.py   one finding: what, where, how much, and what to do
    pages/       a page for each code: what it is, why it costs memory, how to mend it, when it is none

A rehearsal, a live run (`watching`), an error's text (`oom`), a recording and the source (`linting`) all give these.
"""

from dryfit.findings.finding import Evidence, Finding, Place
from dryfit.findings.rules import EXPLAIN, LINT, RULES, WATCH, Rule, rule_of

__all__ = ["EXPLAIN", "LINT", "RULES", "WATCH", "Evidence", "Finding", "Place", "Rule", "rule_of"]

"""Say which known mistakes are in training programs: from their source alone, nothing of them is imported or run.

PATH is a Python file, a notebook, or a folder of them. Exit code 0: nothing was found, 1: something was,
2: a file could not be read, or wrong usage. A line ending in `# dryfit: ignore[DF101]` is passed over.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from dryfit.cli.files import check_places, write_text
from dryfit.errors import UsageError

if TYPE_CHECKING:
    from dryfit.findings import Rule
    from dryfit.linting import LintReport

NAME = "lint"
HELP = "say which known mistakes are in training programs, from their source alone"

SCHEMA = "dryfit.lint/1"
EXIT_FOUND, EXIT_PROBLEM = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit lint [OPTIONS] PATH [PATH ...]\n       dryfit lint --explain DF101"
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a Python file, a notebook, or a folder")
    add = parser.add_argument_group("what to look for").add_argument
    add("--select", metavar="CODES", help="only these: codes or names with commas between; DF3 is all that begin so")
    add("--ignore", metavar="CODES", help="all but these")
    add = parser.add_argument_group("on stdout").add_mutually_exclusive_group().add_argument
    add("--json", action="store_true", help="print JSON")
    add("--sarif", action="store_true", help="print SARIF 2.1.0, for code hosts and editors")
    add("--github", action="store_true", help="print annotations, for GitHub Actions")
    parser.add_argument("-o", "--output", metavar="OUT", help="write to a file what would be printed")
    parser.add_argument(
        "--explain", metavar="CODE", help="print the page of a rule, by its code or its name; all: a list"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.explain is not None:
        _explain(arguments)
        return 0
    if not arguments.paths:
        raise UsageError("There is no PATH to look at; name a file or a folder, such as: dryfit lint .")
    from dryfit.linting import lint

    check_places({"-o": arguments.output}, read=arguments.paths)
    found = lint(arguments.paths, select=_rules(arguments.select), ignore=_rules(arguments.ignore))
    text = _text(found, arguments)
    if arguments.output is not None:
        write_text(arguments.output, text, "findings")
    elif arguments.json or arguments.sarif or arguments.github:
        sys.stdout.write(text)
    else:
        from dryfit.report.lint import print_lint

        print_lint(found)
    for problem in found.problems:
        print(f"dryfit: {problem}", file=sys.stderr)
    return EXIT_FOUND if found.findings else EXIT_PROBLEM if found.problems else 0


def _text(found: LintReport, arguments: argparse.Namespace) -> str:
    if arguments.json:
        values = {
            "schema": SCHEMA,
            "files": found.files,
            "findings": [finding.to_dict() for finding in found.findings],
            "problems": found.problems,
        }
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    if arguments.sarif:
        from dryfit.report.sarif import to_sarif

        return json.dumps(to_sarif(found.findings, found.problems), indent=2, ensure_ascii=False) + "\n"
    if arguments.github:
        from dryfit.report.annotations import annotation, problem_annotation

        lines = [*map(annotation, found.findings), *map(problem_annotation, found.problems)]
        return "".join(f"{line}\n" for line in lines)
    import io

    from dryfit.report.lint import print_lint

    text = io.StringIO()
    print_lint(found, text)
    return text.getvalue()


def _rules(given: str | None) -> tuple[str, ...]:
    """The rules that an option names: codes, names, and beginnings of codes such as DF3."""
    from dryfit.findings import LINT, RULES

    words = [word.strip() for word in (given or "").split(",") if word.strip()]
    if given is not None and not words:
        raise UsageError("--select and --ignore take codes or names with commas between, such as DF101,DF3.")
    found = []
    for word in words:
        group = [rule.code for rule in RULES if LINT in rule.seen_by and rule.code.startswith(word.upper())]
        found += group if group and word.upper().startswith("DF") else [_rule(word).code]
    return tuple(found)


def _explain(arguments: argparse.Namespace) -> None:
    from dryfit.findings import RULES
    from dryfit.findings.pages import page_of

    if arguments.paths:
        raise UsageError("--explain prints the page of a rule, and looks at no PATH; leave one of them out.")
    if arguments.explain == "all":
        for rule in RULES:
            print(f"{rule.code}  {rule.name:<30}  {rule.title}")
        return
    print(page_of(_rule(arguments.explain)), end="")


def _rule(word: str) -> Rule:
    import difflib

    from dryfit.findings import RULES, rule_of

    rule = rule_of(word)
    if rule is None:
        known = [name for each in RULES for name in (each.code, each.name)]
        near = difflib.get_close_matches(word, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`dryfit lint --explain all` lists them."
        raise UsageError(f"There is no rule {word!r}; {hint}")
    return rule

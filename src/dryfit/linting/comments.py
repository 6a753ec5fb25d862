"""Comments that set findings aside: `# dryfit: ignore`, `# dryfit: ignore[DF101]`, `# dryfit: ignore-file`."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from dryfit.findings import Finding, rule_of

_COMMENT = re.compile(r"#\s*dryfit:\s*(?P<what>ignore-file|ignore)\b\s*(\[(?P<words>[^\]]*)\])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ignores:
    """What a file's comments set aside: codes by line (None for every code), and whether that is the whole file.

    `first_lines` leads from a line to the first one of its statement. `problems` are the words that name no rule.
    """

    whole_file: bool
    codes: dict[int, frozenset[str] | None]
    first_lines: dict[int, int]
    problems: tuple[tuple[int, str], ...]

    def hides(self, finding: Finding) -> bool:
        """Whether a comment on the finding's line, or on the first line of its statement, sets it aside."""
        if self.whole_file or finding.place is None:
            return self.whole_file
        for line in (finding.place.line, self.first_lines.get(finding.place.line)):
            if line is not None and line in self.codes:
                codes = self.codes[line]
                if codes is None or finding.code in codes:
                    return True
        return False


def ignores_of(source: str, module: ast.Module) -> Ignores:
    """The comments of a source that speak to dryfit."""
    if "dryfit:" not in source:
        return Ignores(False, {}, {}, ())
    codes: dict[int, frozenset[str] | None] = {}
    problems = []
    whole_file = False
    for line, text in _comments(source):
        found = _COMMENT.search(text)
        if found is None:
            continue
        words = None if found["words"] is None else [each.strip() for each in found["words"].split(",") if each.strip()]
        if found["what"].lower() == "ignore-file":
            whole_file = True
            continue
        known = set()
        for word in words or ():
            rule = rule_of(word)
            if rule is None:
                problems.append((line, word))
            else:
                known.add(rule.code)
        codes[line] = None if words is None else frozenset(known)
    return Ignores(whole_file, codes, _first_lines(module), tuple(problems))


def _comments(source: str) -> Iterator[tuple[int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return


def _first_lines(module: ast.Module) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            for line in range(node.lineno, last + 1):
                found[line] = max(found.get(line, 0), node.lineno)
    return found

"""Makes the precision of `dryfit lint` in docs/lint.md anew, from checkouts of the public repositories.

    python -m tests.linting.judge FOLDER            the sixty scripts
    python -m tests.linting.judge FOLDER fresh-1    a whole set of public_repositories.csv

FOLDER holds a checkout of each repository, named owner+name, at the commit that the tables name. It fails when lint
says something that nobody judged, or no longer says what was judged, or when a script is not there. Nothing of the
checkouts is run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dryfit.findings import Finding
from dryfit.findings.finding import CELL
from dryfit.linting import lint

from .judged import FALSE, SIXTY, Judgement, judgements, precision, repositories, scripts

Key = tuple[str, str, str, str]


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or (len(arguments) == 2 and arguments[1] not in (SIXTY, *repositories())):
        print(f"usage: python -m tests.linting.judge FOLDER [{'|'.join([SIXTY, *repositories()])}]", file=sys.stderr)
        return 2
    folder, name = Path(arguments[0]), arguments[1] if len(arguments) == 2 else SIXTY
    judged = {_key(each): each for each in judgements() if each.set == name}
    found: dict[Key, Finding] = {}
    problems = []
    for repo, commit, paths in _what_to_read(name):
        checkout = folder / repo.replace("/", "+")
        missing = [path for path in paths if not (checkout / path).is_file()]
        if not checkout.is_dir() or missing:
            problems.append(
                f"{checkout / missing[0] if missing else checkout}: it is not there; check out {repo} at {commit}."
            )
            continue
        problems += _wrong_commit(checkout, repo, commit)
        for finding in lint([checkout / path for path in paths] or [checkout]).findings:
            found[_key_of(finding, repo, checkout)] = finding
    if name != SIXTY:
        sixty = {(each.repo, each.path) for each in scripts()}
        found = {key: each for key, each in found.items() if key[:2] not in sixty}
    expected = {key for key, each in judged.items() if each.now}
    problems += [f"{_written(key)}: not judged yet: {found[key].claim}" for key in found if key not in expected]
    problems += [f"{_written(key)}: judged {judged[key].now}, and not found any more." for key in expected - set(found)]
    print(f"{name}, when first seen: {precision(each.first for each in judged.values())} true")
    print(f"{name}, now:             {precision(judged[key].now for key in found if key in expected)} true")
    for key in found:
        if key in expected and judged[key].now == FALSE:
            print(f"  false: {_written(key)}: {judged[key].why}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _what_to_read(name: str) -> Iterator[tuple[str, str, list[str]]]:
    """Repository, commit and paths; no paths are the whole repository."""
    if name != SIXTY:
        yield from ((repo, commit, []) for repo, commit in repositories()[name])
        return
    for repo, commit in dict.fromkeys((each.repo, each.commit) for each in scripts()):
        yield repo, commit, [each.path for each in scripts() if each.repo == repo]


def _wrong_commit(checkout: Path, repo: str, commit: str) -> list[str]:
    """A sentence if the checkout is a git work tree at another commit; other folders are taken as they are."""
    if not (checkout / ".git").exists():
        return []
    head = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    at = head.stdout.strip()
    return [] if at == commit else [f"{checkout} is at {at or 'no commit'}; {repo} was judged at {commit}."]


def _key(judgement: Judgement) -> Key:
    return judgement.repo, judgement.path, judgement.line, judgement.code


def _key_of(finding: Finding, repo: str, checkout: Path) -> Key:
    assert finding.place is not None
    file, _, cell = finding.place.file.partition(CELL)
    line = f"cell {cell}:{finding.place.line}" if cell else str(finding.place.line)
    return repo, Path(file).relative_to(checkout).as_posix(), line, finding.code


def _written(key: Key) -> str:
    repo, path, line, code = key
    return f"{repo} {path}:{line} {code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Rehearses the rows without a prediction, and writes the tables: `python -m benchmarks.accuracy`."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase

from . import predictions, rows, run, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", default="*", help="the rows whose id or family matches")
    parser.add_argument("--rewrite", action="store_true", help="rehearse rows that have a prediction, too")
    parser.add_argument("--jobs", type=int, default=1, help="rehearsals at a time")
    parser.add_argument("--tables", action="store_true", help="rehearse nothing; write the tables")
    asked = parser.parse_args()
    all_rows = rows.rows()
    wanted = [row for row in all_rows if fnmatchcase(row.id, asked.only) or fnmatchcase(row.family, asked.only)]
    if not wanted:
        parser.error(f"--only {asked.only!r} is the id or the family of no row.")
    failures = [] if asked.tables else run.predict(wanted, rewrite=asked.rewrite, jobs=asked.jobs)
    for version in predictions.versions():
        _forget(predictions.load(version), version, all_rows)
    for path, text in table.documents(all_rows).items():
        path.write_text(text)
    if failures:
        print(f"{len(failures)} rows were not predicted; their rehearsals failed, see above.")
    return 1 if failures else 0


def _forget(known: predictions.Predictions, version: str, all_rows: list[rows.Row]) -> None:
    """Drop what is of no row any more."""
    gone = predictions.left_over(all_rows, known)
    if gone:
        predictions.keep({key: each for key, each in known.items() if key not in gone}, version)


if __name__ == "__main__":
    raise SystemExit(main())

"""Writes the tables of docs/accuracy.md and docs/accuracy-rows.md from the rows and the predictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from . import misses, predictions
from .arithmetic import MISS, Compared, median, peer_errors, percentile
from .predictions import Prediction
from .rows import BRACKETS, HERE, Row

DOCS = HERE.parents[1] / "docs"
DOCUMENT, ALL_ROWS = DOCS / "accuracy.md", DOCS / "accuracy-rows.md"
MIB = 1 << 20

ByVersion = Mapping[str, Mapping[str, Prediction]]


def predicted() -> ByVersion:
    return {version: predictions.load(version) for version in predictions.versions()}


def compared(rows: Iterable[Row], by_version: ByVersion) -> list[Compared]:
    """The rows that count, each beside the prediction under the torch that its card ran, or the nearest to that."""
    found = []
    for row in rows:
        made = predictions.of_the_card(row, by_version)
        if made is not None and not row.skip:
            found.append(Compared(row=row, version=made[0], prediction=made[1]))
    return found


def families(rows: Sequence[Row], by_version: ByVersion) -> str:
    """Median and p90 of each family's errors under each version of torch, beside other programs' on the same rows."""
    lines = [
        "| family | rows | torch: card | rehearsed | median | p90 | largest | inside the range | others, same rows |\n",
        "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | --- |\n",
    ]
    for family, its_rows in _by_family(rows):
        with_bytes = [row for row in its_rows if row.metric not in BRACKETS and not row.skip]
        for version, of in by_version.items():
            made = [(row, predictions.current(row, of)) for row in with_bytes]
            found = [Compared(row=row, version=version, prediction=each) for row, each in made if each is not None]
            if found:
                lines.append(_family(family, found, version))
    return "".join(lines)


def brackets(rows: Sequence[Row], by_version: ByVersion) -> str:
    """Whether it fits, right and wrong, by family; a row that was measured is one that fitted.

    Rows that have several figures of one run count once.
    """
    lines = [
        "| family | fitted on the card | said to | ran out of memory | said to | wrong | undecided |\n",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    ]
    runs = {(row.program, row.arguments, row.card, row.source): row for row in reversed(rows)}
    for family, its_rows in _by_family(list(reversed(runs.values()))):
        found = compared(its_rows, by_version)
        if not found:
            continue
        counts = []
        for fitted in (True, False):
            of_these = [each.fit for each in found if each.fitted == fitted]
            counts += [str(len(of_these)), str(of_these.count("right"))]
        all_of = [each.fit for each in found]
        counts += [str(all_of.count("wrong")), str(all_of.count("undecided"))]
        lines.append(f"| {family} | {' | '.join(counts)} |\n")
    return "".join(lines)


def missed(rows: Sequence[Row], by_version: ByVersion, known: dict[str, str]) -> str:
    """Every prediction that is further off than `MISS` and has the measured bytes outside its range; wrong verdicts."""
    lines = [
        f"| off by more than {MISS:.0%} and outside the range | measured, MiB | predicted | off | why |\n",
        "| --- | ---: | ---: | ---: | --- |\n",
    ]
    for each in compared(rows, by_version):
        if each.is_miss:
            lines.append(
                f"| {each.row.id}: {_said(each.row)} | {_figures(each)} | {misses.why(each.row.id, known)} |\n"
            )
    return "".join(lines)


def several_cards(rows: Sequence[Row], by_version: ByVersion) -> str:
    """Every row of a rank of several, and what they come to together."""
    found = [each for each in compared(rows, by_version) if each.row.world and each.has_bytes]
    lines = [
        "| program | rank | torch: card | metric | measured, MiB | predicted | off |\n",
        "| --- | --- | --- | --- | ---: | ---: | ---: |\n",
    ]
    for each in found:
        row = each.row
        program, rank = f"{row.id}: `{row.program} {row.arguments}`", f"{row.ranks} of {row.world}"
        metric = row.metric.replace("_", " ")
        lines.append(f"| {program} | {rank} | {row.torch or 'not said'} | {metric} | {_figures(each)} |\n")
    errors = [abs(each.error) for each in found]
    if errors:
        together = f"{len(errors)} rows: median {median(errors):.2%}, largest {max(errors):.2%}"
        lines.append(f"| {together} | | | | | | |\n")
    return "".join(lines)


def not_counted(rows: Sequence[Row], by_version: ByVersion) -> str:
    """How many rows do not count, and why."""
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        reason = row.skip or ("" if predictions.of_the_card(row, by_version) else "not rehearsed yet")
        if reason:
            reasons[row.family, reason] = reasons.get((row.family, reason), 0) + 1
    lines = ["| family | rows | why they do not count |\n", "| --- | ---: | --- |\n"]
    return "".join(lines + [f"| {family} | {count} | {why} |\n" for (family, why), count in reasons.items()])


def every_row(rows: Sequence[Row], by_version: ByVersion) -> str:
    """All rows, one line for each."""
    lines = [
        "| id | program | card | torch: card | rehearsed | metric | measured, MiB | predicted | off | range | inside "
        "| others | fits |\n",
        "| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | --- | --- | --- | --- |\n",
    ]
    return "".join(lines + [_row(row, predictions.of_the_card(row, by_version)) for row in rows])


def with_tables(text: str, tables: Mapping[str, str], name_of_document: str) -> str:
    """The document with what lies between its markers replaced.

    Raises:
        ValueError: a table's place is not there, or is there more than once.
    """
    for name, table in tables.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        places = re.compile(re.escape(start) + r".*?" + end, flags=re.DOTALL)
        if (count := len(places.findall(text))) != 1:
            raise ValueError(f"{name_of_document} has {count} places marked `{start.strip()}`, and should have one.")
        text = places.sub(lambda _, start=start, table=table, end=end: start + table + end, text)  # type: ignore[misc]
    return text


def documents(rows: Sequence[Row]) -> dict[Path, str]:
    """The two pages as they should be."""
    by_version = predicted()
    tables = {
        "families": families(rows, by_version),
        "fits": brackets(rows, by_version),
        "several cards": several_cards(rows, by_version),
        "misses": missed(rows, by_version, misses.explanations()),
        "not counted": not_counted(rows, by_version),
    }
    of_rows = {"every row": every_row(rows, by_version)}
    return {
        DOCUMENT: with_tables(DOCUMENT.read_text(), tables, DOCUMENT.name),
        ALL_ROWS: with_tables(ALL_ROWS.read_text(), of_rows, ALL_ROWS.name),
    }


def _by_family(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    ordered = sorted(rows, key=lambda row: row.family)
    return [(family, list(found)) for family, found in groupby(ordered, key=lambda row: row.family)]


def _family(family: str, found: Sequence[Compared], version: str) -> str:
    errors = [abs(each.error) for each in found]
    on_cards = ", ".join(sorted({each.row.torch or "not said" for each in found}))
    inside = sum(each.is_inside for each in found)
    peers = sorted({peer for each in found for peer in each.row.peers})
    others = "; ".join(_peer(peer, peer_errors(found, peer), len(found)) for peer in peers)
    return (
        f"| {family} | {len(found)} | {on_cards} | {version} | {median(errors):.2%} | {percentile(errors, 0.9):.2%} "
        f"| {max(errors):.2%} | {inside / len(found):.0%} | {others} |\n"
    )


def _peer(name: str, errors: Sequence[float], rows: int) -> str:
    of_rows = "" if len(errors) == rows else f" ({len(errors)} rows)"
    return f"{name} {median(errors):.2%} / {percentile(errors, 0.9):.2%}{of_rows}"


def _row(row: Row, made: tuple[str, Prediction] | None) -> str:
    played = f", {row.played}" if row.world else ""
    start = f"| {row.id} | `{row.program} {row.arguments}`{played} | {row.card} | {row.torch or 'not said'} "
    if made is None or row.skip:
        why = f"not counted: {row.skip}" if row.skip else "not rehearsed yet"
        measured = f"{row.measured_bytes / MIB:.0f}" if row.measured_bytes else ""
        return f"{start}| {made[0] if made else ''} | {row.metric} | {measured} | {why} | | | | | |\n"
    each = Compared(row=row, version=made[0], prediction=made[1])
    if not each.has_bytes:
        return f"{start}| {each.version} | {row.metric} | | | | | | | {each.fit} |\n"
    low, high = each.prediction.low_bytes / MIB, each.prediction.high_bytes / MIB
    others = "; ".join(
        f"{peer} {(of - row.measured_bytes) / row.measured_bytes:+.2%}" for peer, of in row.peers.items()
    )
    return (
        f"{start}| {each.version} | {row.metric} | {_figures(each)} | {low:.0f} to {high:.0f} "
        f"| {'yes' if each.is_inside else 'no'} | {others} | {each.fit} |\n"
    )


def _figures(each: Compared) -> str:
    if not each.has_bytes:
        return f"{each.row.metric.replace('_', ' ')} | {each.prediction.verdict} | "
    expected, measured = each.prediction.expected_bytes / MIB, each.row.measured_bytes / MIB
    return f"{measured:.0f} | {expected:.0f} | {each.error:+.2%}"


def _said(row: Row) -> str:
    played = f" as {row.played}" if row.world else ""
    return f"`{row.program} {row.arguments}`{played} on {row.card}"

"""The catalogue, or one card with the source of every figure, for a person to read."""

from __future__ import annotations

import sys

from dryfit.cards import Card, all_cards
from dryfit.report.columns import aligned
from dryfit.units import format_bytes

Row = tuple[str, ...]

_LIST_HEAD = ("key", "name", "sm", "SMs", "total", "outside", "usable")
_LIST_FOOT = """\
total: as PyTorch sees it on Linux. outside: memory expected outside PyTorch's allocator. usable: total less outside.
? no source was read for the total; `dryfit cards KEY` says how it was derived, and shows every source."""


def print_list() -> None:
    """Print every card of the catalogue, a line each."""
    _print_table(_LIST_HEAD, [_list_row(card) for card in all_cards()], right=frozenset(_LIST_HEAD[2:]))
    print(f"\n{_LIST_FOOT}")


def _list_row(card: Card) -> Row:
    doubt = " ?" if "total_bytes" in card.unverified else "  "
    return (
        card.key,
        card.name,
        f"{card.sm / 10:.1f}",
        str(card.sm_count),
        format_bytes(card.total_bytes) + doubt,
        format_bytes(card.outside_bytes),
        format_bytes(card.usable_bytes),
    )


def print_card(card: Card, others: tuple[Card, ...]) -> None:
    """Print one card; `others` are those that the name it was found by fits too."""
    print(f"{card.name} ({card.key})")
    if others:
        print(f"The name also fits {', '.join(other.key for other in others)}.")
    print()
    _print_table(("figure", "value", "from"), [_figure_row(card, *figure) for figure in _figures(card)])
    if card.totals_seen_mib:
        print(f"\nTotals met, in MiB unless said: {card.totals_seen_mib}.")
    if card.note:
        print(f"\n{card.note}")
    if card.sources:
        print("\nSources")
    for figure, places in card.sources.items():
        print(f"  {_SOURCE_TITLES.get(figure, figure)}")
        for place in places:
            print(f"    {place}")
    if any("public log" in place for places in card.sources.values() for place in places):
        print("\nA public log is what a program printed, in a file of a public repository whose address was not kept.")


_CAPABILITIES = "NVIDIA's CCCL, by compute capability"
_SOURCE_TITLES = {
    "chip": "multiprocessors and L2 cache",
    "total_bytes": "total",
    "smi_total_bytes": "total in nvidia-smi",
    "outside_bytes": "outside PyTorch",
    "outside_measured_bytes": "outside PyTorch, measured",
}


def _figures(card: Card) -> list[tuple[str, str, str, str]]:
    """Give title, value, the field it stands in and what there is to say of it beyond its source."""
    margin = f"a formula; leave {format_bytes(card.outside_margin_bytes)} free besides to be sure"
    figures = [
        ("architecture", f"{card.architecture}, compute capability {card.sm / 10:.1f}", "architecture", _CAPABILITIES),
        ("multiprocessors", str(card.sm_count), "sm_count", ""),
        ("threads on each", str(card.max_threads_per_sm), "max_threads_per_sm", _CAPABILITIES),
        ("L2 cache", format_bytes(card.l2_bytes), "l2_bytes", ""),
        ("total", format_bytes(card.total_bytes), "total_bytes", ""),
    ]
    if card.smi_total_bytes is not None:
        figures.append(("total in nvidia-smi", format_bytes(card.smi_total_bytes), "smi_total_bytes", ""))
    given = card.key == "unlimited" or "outside_bytes" in card.sources
    figures.append(("outside PyTorch", format_bytes(card.outside_bytes), "outside_bytes", "" if given else margin))
    if card.outside_measured_bytes is not None:
        measured = f"median of {card.outside_points} measurements" if card.outside_points > 1 else "one measurement"
        measured_text = format_bytes(card.outside_measured_bytes)
        figures.append(("  measured", measured_text, "outside_measured_bytes", measured))
    figures.append(("usable", format_bytes(card.usable_bytes), "usable_bytes", "total less outside"))
    return figures


def _figure_row(card: Card, title: str, value: str, field: str, said: str) -> Row:
    if field in card.unverified:
        return title, value, "unverified: " + _derivation(card, field)
    return title, value, said or _counted_sources(card, field)


def _derivation(card: Card, field: str) -> str:
    for place in card.sources.get("total_bytes" if field == "total_bytes" else "chip", ()):
        if field == "total_bytes" and place.startswith("derived: "):
            return place.removeprefix("derived: ")
        if field == "l2_bytes" and place.startswith("L2 "):
            return place.removeprefix("L2 ").removeprefix("assumed: ")
    return "remembered from the data sheet"


def _counted_sources(card: Card, field: str) -> str:
    places = card.sources.get("chip" if field in ("sm_count", "l2_bytes") else field, ())
    if len(places) == 1:
        return places[0]
    return f"{len(places)} sources" if places else ""


def _print_table(head: Row, rows: list[Row], right: frozenset[str] = frozenset()) -> None:
    if sys.stdout.isatty():
        _print_rich_table(head, rows, right)
        return
    for line in aligned([head, *rows], right=[column for column, title in enumerate(head) if title in right]):
        print(line)


def _print_rich_table(head: Row, rows: list[Row], right: frozenset[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in head:
        table.add_column(title, justify="right" if title in right else "left", no_wrap=title == "key", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)

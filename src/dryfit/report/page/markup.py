"""Pieces of HTML. Every text goes through `text`: recordings hold whatever a program named its things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dryfit.analyse.footprint import OwnerBytes
from dryfit.recording.model import OWNERS
from dryfit.report.page.names import shown
from dryfit.units import format_bytes


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Html:
    """Any value as HTML that shows it, names as `shown` has them; HTML stays as it is.

    >>> text("</script><b>"), text(Html("<b>"))
    ('&lt;/script&gt;&lt;b&gt;', '<b>')
    """
    if isinstance(value, Html):
        return value
    return Html(escape(shown(str(value))))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An element with its children; attributes that are None are left out, `_` in their names is `-`.

    >>> element("p", "1 < 2", class_="note", data_bytes=5)
    '<p class="note" data-bytes="5">1 &lt; 2</p>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    end = "" if tag == "br" else f"</{tag}>"
    return Html(f"<{tag}{written}>{''.join(map(text, children))}{end}")


def joined(parts: Iterable[object], between: str = "") -> Html:
    return Html(text(between).join(map(text, parts)))


def size(size_bytes: int) -> Html:
    """A size for people, with the exact one at hand."""
    return element("span", format_bytes(size_bytes), title=f"{size_bytes:,} bytes", data_bytes=size_bytes)


def swatch(owner: str) -> Html:
    return element("i", class_=f"swatch owner-{OWNERS.index(owner)}", aria_hidden="true")


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> Html:
    """A table whose first column names the rows; the columns in `numbers` are set right. It scrolls by itself."""
    right = set(numbers)

    def cell(tag: str, place: int, content: object, **attributes: object) -> Html:
        return element(tag, content, class_="number" if place in right else None, **attributes)

    head = element("tr", *(cell("th", place, heading, scope="col") for place, heading in enumerate(headings)))
    body = [
        element("tr", *(cell("td" if place else "th", place, content, **({} if place else {"scope": "row"}))
                        for place, content in enumerate(row)))
        for row in rows
    ]  # fmt: skip
    return element(
        "div",
        element("table", element("caption", caption, class_="unseen"), element("thead", head), element("tbody", *body)),
        class_="scroll", tabindex=0, role="region", aria_label=caption,
    )  # fmt: skip


def bar(parts: Iterable[tuple[str, int]], whole_bytes: int, label: str, kind: str = "bar") -> Html:
    """A bar of parts, each a style and its bytes, as wide as their shares of the whole; pointing shows `label`."""
    drawn, left = [], 0.0
    for style, size_bytes in parts:
        width = 100 * size_bytes / max(whole_bytes, 1)
        place = {"x": f"{left:.4f}%", "width": f"{width:.4f}%", "height": "100%"}
        drawn.append(element("rect", **place, class_=f"fill-{style}"))
        if style in HATCHED_STYLES:
            drawn.append(element("rect", **place, fill="url(#hatch)"))
        left += width
    return element("svg", element("title", label), *drawn, class_=kind, role="img")


def owners_bar(owners: Iterable[OwnerBytes], whole_bytes: int) -> Html:
    """A small bar of owners, for a row of a table."""
    ordered = sorted(owners, key=lambda each: OWNERS.index(each.owner))
    label = ", ".join(f"{each.owner} {format_bytes(each.size_bytes)}" for each in ordered)
    return bar(
        ((f"owner-{OWNERS.index(each.owner)}", each.size_bytes) for each in ordered), whole_bytes, label, "minibar"
    )


# Those told apart by their hatching too; `assets/theme.js` and `assets/charts.css` have the same.
HATCHED_STYLES = frozenset(
    f"owner-{OWNERS.index(owner)}" for owner in ("autocast weight copy", "workspace", "block remainder", "unknown")
)

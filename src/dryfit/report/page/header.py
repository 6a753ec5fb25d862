"""The top of the page: the answer in one line, the peak, what it is made of, what of it a smaller batch can save."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dryfit.analyse.footprint import Footprint, OwnerBytes
from dryfit.recording.model import ACTIVATION, GRADIENT, OPTIMIZER_STATE, OWNERS, PARAMETER
from dryfit.report.footprint import moment, out_of_memory_line
from dryfit.report.page.markup import Html, bar, element, joined, swatch
from dryfit.report.text import verdict_line
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from dryfit.rehearse.result import Result

# The four that people ask for, in the order they ask.
_ASKED_FOR = {
    PARAMETER: "Parameters",
    GRADIENT: "Gradients",
    OPTIMIZER_STATE: "Optimizer states",
    ACTIVATION: "Saved activations",
}


def header(footprint: Footprint, title: str, result: Result | None) -> Html:
    """Everything above the pictures. Without a verdict or a title, the peak itself is the heading."""
    heading = verdict_line(result) if result is not None else title
    oom = footprint.out_of_memory if result is None else None
    return joined(
        [
            element("p", about_line(footprint), class_="about"),
            element("h1", heading) if heading else "",
            element("p", out_of_memory_line(oom), class_="alarm") if oom else "",
            _peak("p" if heading else "h1", footprint),
            _owners(footprint),
            _facts(footprint),
        ]
    )


def _peak(tag: str, footprint: Footprint) -> Html:
    peak = footprint.peak
    when = moment(peak.step, peak.phase) if footprint.steps else ""
    words = f"allocated by tensors at the peak{f', in {when}' if when else ''}"
    exact = element("span", f"{peak.allocated_bytes:,} bytes", class_="exact")
    figure = element("strong", format_bytes(peak.allocated_bytes), data_bytes=peak.allocated_bytes, id="peak-figure")
    return element(tag, figure, " ", element("span", words, element("br"), exact), class_="peak")


def about_line(footprint: Footprint) -> Html:
    """Program, card and versions, as far as they are known; a snapshot is of one of several cards."""
    about, source = footprint.about, footprint.source
    program = about.get("program")
    words = " ".join(map(str, program)) if isinstance(program, list | tuple) else program
    card, versions = about.get("card"), about.get("versions")
    parts = [
        element("code", words) if words else "",
        str(card.get("name") or "") if isinstance(card, Mapping) else "",
        ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        if isinstance(versions, Mapping)
        else "",
        {
            "rehearsal": "rehearsed on a virtual card",
            "snapshot": f"from a memory snapshot, device {footprint.device}",
        }.get(source, source),
    ]
    return joined((element("span", part) for part in parts if part), " ")


def _owners(footprint: Footprint) -> Html:
    peak = footprint.peak
    whole = peak.allocated_bytes
    held = {each.owner: each for each in peak.owners}
    ordered = [held[owner] for owner in OWNERS if owner in held and held[owner].size_bytes]
    label = "What the peak is made of: " + ", ".join(f"{one.owner} {format_bytes(one.size_bytes)}" for one in ordered)
    nothing = {owner: OwnerBytes(owner=owner, size_bytes=0, blocks=0) for owner in _ASKED_FOR}
    # Where none of the four is known, "Parameters 0 B" would be said of what is only unknown.
    tiles = [
        _held(name, held.get(owner, nothing[owner]), whole, "tile")
        for owner, name in _ASKED_FOR.items()
        if held.keys() & _ASKED_FOR.keys()
    ]
    rest = [each for each in ordered if each.owner not in _ASKED_FOR]
    rows = [element("li", _held(each.owner, each, whole)) for each in rest]
    total = sum(each.size_bytes for each in ordered)
    sums = element(
        "p",
        f"{_count(len(ordered), 'owner')}, together {total:,} bytes"
        + (": exactly the peak." if total == whole else f"; the peak is {whole:,} bytes."),
        class_="sum", data_bytes=total,
    )  # fmt: skip
    return element(
        "section",
        bar(((f"owner-{OWNERS.index(one.owner)}", one.size_bytes) for one in ordered), whole, label),
        _fixed_and_growing(footprint),
        element("div", *tiles, class_="tiles") if tiles else "",
        element("ul", *rows, class_="rest") if rows else "",
        sums,
        class_="made-of", aria_label="What the peak is made of",
    )  # fmt: skip


def _held(name: str, held: OwnerBytes, whole: int, style: str | None = None) -> Html:
    """One owner's figures, as a button that shows it alone in the pictures."""
    return element(
        "button",
        element("span", swatch(held.owner), name, class_="name"),
        element("strong", format_bytes(held.size_bytes)),
        element("span", f"{held.size_bytes:,} bytes", class_="exact"),
        element("span", f"{share(held.size_bytes, whole)}, {_count(held.blocks, 'block')}", class_="share"),
        type="button", class_=style, data_owner=held.owner, data_bytes=held.size_bytes, aria_pressed="false",
    )  # fmt: skip


def _fixed_and_growing(footprint: Footprint) -> Html | str:
    """A thin bar below the owners', which lie in about the same order: first what is fixed, then what grows."""
    peak = footprint.peak
    if not _tells_what_grows(footprint):
        return ""
    label = f"Fixed {format_bytes(peak.fixed_bytes)}, grows with the batch {format_bytes(peak.grows_with_batch_bytes)}"
    parts = (("fixed", peak.fixed_bytes), ("grows", peak.grows_with_batch_bytes))
    return bar(parts, peak.allocated_bytes, label, "thin")


def _facts(footprint: Footprint) -> Html:
    peak = footprint.peak
    grows = "is made anew of each batch; a smaller one saves no more"
    facts = []
    if _tells_what_grows(footprint):
        facts = [
            ("Fixed", peak.fixed_bytes, "is there whatever the batch", "fixed"),
            ("Grows with the batch", peak.grows_with_batch_bytes, grows, "grows"),
            ("Logits and loss", peak.logits_and_loss_bytes, "the model's output and what the loss makes of it", ""),
        ]
    facts += [
        ("Reserved at most", footprint.peak_reserved_bytes, "what PyTorch held from the card", ""),
    ]
    return element("dl", *(_fact(*fact) for fact in facts), class_="facts")


def _tells_what_grows(footprint: Footprint) -> bool:
    """Without phases all of the peak counts as fixed, which says nothing."""
    return bool(footprint.peak.grows_with_batch_bytes or footprint.peak.logits_and_loss_bytes)


def _fact(name: str, size_bytes: int, words: str, part: str) -> Html:
    mark = element("i", class_=f"swatch part-{part}", aria_hidden="true") if part else ""
    figure, exact = (
        element("strong", format_bytes(size_bytes)),
        element("span", f"{size_bytes:,} bytes", class_="exact"),
    )
    described = element("dd", figure, " ", exact, element("span", words, class_="words"))
    return element("div", element("dt", mark, name), described, data_bytes=size_bytes)


def share(size_bytes: int, whole_bytes: int) -> str:
    """A share in percent; never "0 %" of something, never "100 %" of less than all.

    >>> share(1, 3), share(1, 5000), share(4999, 5000), share(0, 7)
    ('33.3 %', '< 0.1 %', '> 99.9 %', '0 %')
    """
    if not size_bytes or not whole_bytes:
        return "0 %"
    percent = 100 * size_bytes / whole_bytes
    if percent < 0.1:
        return "< 0.1 %"
    return "> 99.9 %" if size_bytes < whole_bytes and percent > 99.9 else f"{percent:.1f} %"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

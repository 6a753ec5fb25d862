"""An explanation in the terminal: the cause and the next step first, then the numbers they rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from dryfit.explaining.explanation import ExplainedCard, ExplainedMessage, Explanation, OnOtherSettings, Outcome
from dryfit.findings import Finding
from dryfit.report.findings import learn_more
from dryfit.report.footprint import out_of_memory_line, peak_line, print_owners
from dryfit.report.source_lines import place_of, source_of
from dryfit.report.terminal import open_console, sentence, table
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MOST_CARDS_NAMED = 4
# A word for each number that a message or an allocator's state gives, in the order in which they add up.
_WORDS = {
    "requested_bytes": "asked for",
    "total_bytes": "the device has",
    "allowed_bytes": "this process may take",
    "free_bytes": "free on the device",
    "process_bytes": "held by this process in all",
    "reserved_bytes": "reserved by PyTorch",
    "allocated_bytes": "allocated by tensors",
    "private_pool_bytes": "in private pools, as of CUDA graphs",
    "unused_bytes": "reserved and unused",
    "other_bytes": "held outside of PyTorch's buffers",
}


def print_explanation(explanation: Explanation, file: TextIO | None = None) -> None:
    """Print why memory ran out, or who holds it; colour and width as the terminal has them.

    print_explanation(explain("snapshot.pickle"))
    """
    console = open_console(file)
    for number, message in enumerate(explanation.messages):
        if number:
            console.print()
        _message(console, message)
    if explanation.cards and not explanation.findings:
        sentence(console, explanation.next_step, style="bold")
        console.print()
    for number, card in enumerate(explanation.cards):
        if number:
            console.print()
        _card(console, card, is_one_of_several=len(explanation.cards) > 1)
    if explanation.notes:
        console.print()
    for note in explanation.notes:
        sentence(console, note)
    if explanation.findings:
        console.print()
        sentence(console, learn_more(finding.code for finding in explanation.findings))


def _message(console: Console, explained: ExplainedMessage) -> None:
    message = explained.message
    rank = f"rank {message.rank}" if message.rank is not None else ""
    who = [rank] if rank and f"({rank})" not in explained.finding.claim else []
    who += [f"told {message.count} times"] if message.count > 1 else []
    _verdict(console, explained.finding, ", ".join(who))
    rows = [(_WORDS[name], format_bytes(size)) for name, size in message.numbers.items()]
    rows.sort(key=lambda row: list(_WORDS.values()).index(row[0]))
    rows += [(f"held by process {process}", format_bytes(size)) for process, size in message.other_processes]
    table(console, (f"the message, in the form of {message.format}", ""), rows, right={1})


def _card(console: Console, card: ExplainedCard, *, is_one_of_several: bool) -> None:
    if card.finding is not None:
        _verdict(console, card.finding, f"device {card.device}" if is_one_of_several else "")
        console.print()
    if card.failed is not None:
        sentence(console, out_of_memory_line(card.failed))
    sentence(console, peak_line(card.footprint))
    if card.failed is not None:
        rows = [
            ("asked for", card.failed.requested_bytes),
            ("free on the card", card.failed.free_bytes),
            ("allocated by tensors", card.failed.allocated_bytes),
            ("reserved by PyTorch", card.failed.reserved_bytes),
            ("free within what is reserved", card.failed.holes_bytes),
            ("the largest piece of that", card.failed.largest_hole_bytes),
        ]
        table(console, ("when it failed", ""), [(name, format_bytes(size)) for name, size in rows], right={1})
    print_owners(console, card.footprint)
    if card.would_have is not None:
        _settings(console, card.would_have)


def _settings(console: Console, would_have: OnOtherSettings) -> None:
    rows = [
        (
            outcome.settings or "(PyTorch's defaults)",
            format_bytes(outcome.peak_allocated_bytes),
            format_bytes(outcome.peak_reserved_bytes),
            _saved(outcome) if number else "as recorded",
            {True: "runs", False: "out of memory", None: ""}[outcome.served],
            _cards(outcome),
        )
        for number, outcome in enumerate((would_have.as_recorded, *would_have.others))
    ]
    head = ("other settings would have done", "allocated", "reserved", "against that", "on that card", "fits on")
    table(console, head, rows, right={1, 2}, wrap_last=True)
    console.print()
    if would_have.best is not None:
        sentence(console, would_have.others[would_have.best].sentence, style="bold")
    elif would_have.others:
        sentence(console, "None of these settings would have helped.")


def _saved(outcome: Outcome) -> str:
    if not outcome.saved_bytes:
        return "the same"
    return f"{format_bytes(abs(outcome.saved_bytes))} {'less' if outcome.saved_bytes > 0 else 'more'}"


def _cards(outcome: Outcome) -> str:
    names = dict.fromkeys(outcome.fits_on)  # some are sold with more memory under the same name
    named = [name.removeprefix("NVIDIA ").removeprefix("GeForce ") for name in list(names)[:_MOST_CARDS_NAMED]]
    more = len(names) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _verdict(console: Console, finding: Finding, who: str) -> None:
    sentence(console, f"{finding.title}{f' ({who})' if who else ''}: {finding.claim}", style="bold red")
    if finding.place is not None:
        named = place_of(finding.place.file, finding.place.line)
        source = (finding.place.text or source_of(finding.place.file, finding.place.line)).strip()
        parts = ["" if named in finding.claim else named, source]
        if line := ": ".join(filter(None, parts)):
            sentence(console, f"    {line}")
    sentence(console, f"Next: {finding.advice}", style="bold")

"""An estimate in the terminal: the verdict, every term, their sums, the rule of thumb, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from dryfit.estimate.arithmetic import IN_FORWARD, Estimate, OnCard, Term
from dryfit.report.terminal import open_console, sentence, table
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "as built": "the dtypes it is built with"}


def print_estimate(estimate: Estimate, file: TextIO | None = None) -> None:
    """Print an estimate; colour and width as the terminal has them.

    print_estimate(estimate("7B", dtype="bf16"))
    """
    console = open_console(file)
    sentence(console, verdict_line(estimate), style=f"bold {_colour(estimate.card)}")
    sentence(console, model_line(estimate))
    _terms(console, estimate)
    _sums(console, estimate)
    console.print()
    for line in (*_card_lines(estimate), *_rule_lines(estimate), *estimate.notes):
        sentence(console, line)
    console.print()
    sentence(console, "Not in these figures, and known from a rehearsal of the program (`dryfit run`):")
    for line in estimate.left_out:
        sentence(console, f"  {line}")


def verdict_line(estimate: Estimate) -> str:
    """The answer in one line; never that it fits.

    AT LEAST 65.19 GiB at the optimizer step, without activations
    """
    need = format_bytes(estimate.at_least_bytes)
    where = f"{need} in {IN_FORWARD}" if estimate.highest_at == IN_FORWARD else f"{need} at the {estimate.highest_at}"
    card = estimate.card
    if card is None:
        return f"AT LEAST {where}, without activations"
    has = f"leaves PyTorch {format_bytes(card.usable_bytes)}"
    if card.too_small:
        return f"DOES NOT FIT on {card.name}: at least {where}, without activations, and it {has}"
    return f"NOT DECIDED on {card.name}: at least {where}, without activations, and it {has}"


def model_line(estimate: Estimate) -> str:
    """What was added up: the model and where its shapes are from, dtype, optimizer."""
    options = estimate.options
    trained = f", {estimate.trained_count:,} trained" if estimate.trained_count != estimate.parameter_count else ""
    tensors = f" in {estimate.tensor_count:,} tensors" if estimate.tensor_count is not None else ""
    dtype = _DTYPES[options["dtype"]]
    count = f"{estimate.parameter_count:,} parameters{tensors} in {dtype}{trained}"
    optimizer = f"{options['optimizer_title']} ({options['implementation']})"
    return f"{estimate.what}: {estimate.found}; {count}; {optimizer}"


def _colour(card: OnCard | None) -> str:
    return "cyan" if card is None else "red" if card.too_small else "yellow"


def _terms(console: Console, estimate: Estimate) -> None:
    rows = [
        (term.name, _size(term.size_bytes), _a_parameter(term, estimate.parameter_count), term.held, term.what)
        for term in estimate.terms
    ]
    table(console, ("term", "bytes", "a parameter", "held", ""), rows, right={1, 2}, wrap_last=True)


def _size(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else format_bytes(size_bytes)


def _a_parameter(term: Term, count: int) -> str:
    share = f"{(term.size_bytes or 0) / count:.2f}"
    return "" if share == "0.00" else share


def _sums(console: Console, estimate: Estimate) -> None:
    rows = [("between steps", format_bytes(estimate.between_steps_bytes))]
    if estimate.forward_bytes != estimate.between_steps_bytes:
        rows.append(("at the end of forward", format_bytes(estimate.forward_bytes)))
    rows.append(("at the optimizer step", format_bytes(estimate.step_bytes)))
    table(console, ("together", "bytes"), rows, right={1})


def _card_lines(estimate: Estimate) -> list[str]:
    card = estimate.card
    if card is None:
        return []
    count = _rounded_down(card.largest_parameter_count)
    return [f"These terms alone fill {card.name} with {count} parameters; activations leave room for fewer."]


def _rounded_down(count: int) -> str:
    """A large count in three figures or so.

    >>> _rounded_down(4_106_540_706), _rounded_down(87_999)
    ('4.10 billion', '87,999')
    """
    for unit, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if count >= unit:
            return f"{count // (unit // 100) / 100:.2f} {name}"
    return f"{count:,}"


def _rule_lines(estimate: Estimate) -> list[str]:
    rule = estimate.rule
    if rule is None:
        return []
    parts = f"{rule.weight_bytes} weight, {rule.gradient_bytes} gradient, {rule.state_bytes} states"
    return [
        f"The rule of thumb of {rule.bytes_per_parameter} bytes a parameter ({parts}) gives "
        f"{format_bytes(rule.total_bytes)}: {rule.sentence}."
    ]

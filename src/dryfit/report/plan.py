"""A plan in the terminal: the answer, where the peak is, what was tried by its price, what to write, and what not."""

from __future__ import annotations

import html as markup
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from dryfit.measures.measure import NOTHING
from dryfit.measures.price import Price
from dryfit.recording.model import AFTER_BACKWARD, BACKWARD, EVALUATION, FORWARD, OPTIMIZER_STEP, SETUP
from dryfit.rehearse.endings import SAYS_MORE
from dryfit.report.command import run_command
from dryfit.report.plan_search import searched_lines
from dryfit.report.terminal import open_console, sentence, table
from dryfit.report.text import communication_line
from dryfit.search.planned import NotTaken, Plan, ToWrite, Tried, are_alike, is_more_than_needed
from dryfit.search.trial import FITS, STOPPED, TOO_BIG
from dryfit.units import MIB, format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MOST_ROWS = 16
_MOST_NEAREST = 3
_LEAST_HOST_BYTES = MIB  # less than that in a step is no price
_LEAST_SHARE = 0.01  # of the peak: less than that is next to nothing
AS_IT_IS = "as it is"

# What follows from the phase in which the program as it is has its peak.
_WHAT_FOLLOWS = {
    SETUP: "before the first step, so that no measure of a training step lowers it",
    FORWARD: "where it grows with the batch and what is kept for the backward pass",
    EVALUATION: "and not in training: evaluate in smaller batches, and within torch.no_grad()",
    BACKWARD: "where what the forward pass kept and gradients are held together",
    AFTER_BACKWARD: "between the backward pass and the optimizer's step: unscaling or clipping of gradients",
}


def print_plan(plan: Plan, file: TextIO | None = None) -> None:
    """Print a plan; colour and width as the terminal has them, plain text where there is none."""
    console = open_console(file)
    sentence(console, verdict_line(plan), style=f"bold {_colour(plan)}")
    if plan.as_it_is.kind not in (FITS, TOO_BIG):
        sentence(console, _what_it_took(plan))
        return
    for line in (*_peak_lines(plan), *_card_lines(plan)):
        sentence(console, line)
    _tried(console, plan)
    _what_to_write(console, plan)
    _not_taken(console, "Tried, and of no use:", plan.rejected)
    _not_taken(console, "Not tried:", plan.not_tried)
    console.print()
    for line in (*notes(plan), *searched_lines(plan), _what_it_took(plan)):
        sentence(console, line)


def html(plan: Plan) -> str:
    """The same text for a notebook."""
    out = io.StringIO()
    print_plan(plan, file=out)
    return f"<pre>{markup.escape(out.getvalue())}</pre>"


def verdict_line(plan: Plan) -> str:
    """The answer in one line.

    FITS with fused-optimizer on NVIDIA L4: needs 20.99 GiB of 22.03 GiB, 1.04 GiB to spare; FLOPs +0.0 %
    """
    card, base = _card(plan), plan.as_it_is
    if base.kind == STOPPED:
        return f"NO PLAN for {card}: {base.sentence}"
    if base.kind not in (FITS, TOO_BIG):
        why = base.sentence.replace(f" {SAYS_MORE}", "")
        return f"NO PLAN for {card}: it fails, and not for memory: {why} `{_run(plan, base)}` shows what it prints."
    found = plan.of(plan.cheapest)
    if found is None:
        nearest = plan.of(plan.nearest) or base
        what = f"as it is it needs {format_bytes(nearest.peak_total_bytes)}"
        if nearest.measures:
            what = f"{_name(nearest.measures)} comes nearest, and needs {format_bytes(nearest.peak_total_bytes)}"
        return f"NOTHING FITS on {card}: {what}, {_lacking(plan, nearest)}"
    needs = f"needs {_of_card(plan, found)}"
    if not found.measures:
        line = f"FITS as it is on {card}: {needs}; nothing has to change"
    else:
        line = f"FITS with {_name(found.measures)} on {card}: {needs}; {_cost(found.price)}"
    if plan.surely == plan.cheapest:
        return line
    margin = format_bytes(found.margin_bytes)
    surely = "nothing was found that fits for sure"
    if plan.surely is not None:
        surely = f"{_name(plan.surely)} fits for sure"
    return f"{line}. TOO CLOSE TO CALL by ± {margin} outside PyTorch's allocator: {surely}"


def notes(plan: Plan) -> Iterator[str]:
    """Sentences worth reading beside the answer."""
    yield from plan.notes
    base, found = plan.as_it_is, plan.of(plan.surely or plan.cheapest)
    if base.kind == TOO_BIG and base.is_close:
        margin = format_bytes(base.margin_bytes)
        yield (
            f"As it is it lacks little, and what is outside PyTorch's allocator is known to ± {margin} only: it may "
            "run on a real card."
        )
    if found is not None and found.growth_bytes:
        yield (
            f"Each of the last steps took about {format_bytes(found.growth_bytes)} more than the one before: the "
            "answer holds for the steps rehearsed, and a long run needs more. --steps N rehearses further."
        )
    if found is not None and found.sizes_unknown:
        yield (
            f"Apart from what is not known on a virtual card and can change the bytes; `{_run(plan, found)}` lists it."
        )


def _peak_lines(plan: Plan) -> Iterator[str]:
    base = plan.as_it_is
    needs = f"As it is it needs {format_bytes(base.peak_total_bytes)}, {_lacking(plan, base)}. "
    yield (needs if base.kind == TOO_BIG else "") + _where_the_peak_is(plan)
    sizes = sorted(base.phase_peaks.items(), key=lambda item: -item[1])
    if sizes:
        yield "Allocated by phase: " + ", ".join(f"{phase} {format_bytes(size)}" for phase, size in sizes) + "."
    if base.ranks and not are_alike(base.ranks):
        peaks = ", ".join(f"rank {each.rank} {format_bytes(each.peak_total_bytes)}" for each in base.ranks)
        yield f"Ranks take unequally much: {peaks}. Each figure is that of the one that takes most."
    if base.communication:
        yield f"{communication_line(base.communication)}."


def _where_the_peak_is(plan: Plan) -> str:
    phase = plan.as_it_is.phase or SETUP
    line = f"The peak is in {_the(phase)}"
    if phase != OPTIMIZER_STEP:
        return f"{line}, {_WHAT_FOLLOWS[phase]}." if phase in _WHAT_FOLLOWS else f"{line}."
    peak_bytes = plan.as_it_is.peak_allocated_bytes
    smaller = [each for each in plan.tried if len(each.measures) == 1 and each.measures[0].startswith("micro-batch:")]
    if not smaller:
        return f"{line}, when activations are gone: a smaller batch gives nothing."
    least = min(smaller, key=lambda each: each.peak_allocated_bytes)
    saved_bytes = peak_bytes - least.peak_allocated_bytes
    if saved_bytes > peak_bytes * _LEAST_SHARE:
        return f"{line}."
    gives = f"next to nothing ({least.measures[0]}: {format_bytes(saved_bytes)})"
    if saved_bytes <= 0:
        gives = f"nothing ({least.measures[0]} was rehearsed)"
    return f"{line}, when activations are gone: a smaller batch gives {gives}."


def _card_lines(plan: Plan) -> Iterator[str]:
    for each in plan.cards:
        what = f"With {_name(each.measures)}" if each.measures else "As it is"
        if each.card is None:
            yield f"{what} no card of the catalogue was found to hold it."
        else:
            yield f"{what} it was rehearsed on {each.card} too, the smallest card of the catalogue that holds it."


def _tried(console: Console, plan: Plan) -> None:
    shown = _worth_showing(plan)
    rows = [_row(plan, each) for each in shown[:_MOST_ROWS]]
    head = ["measures", "needs", "on the card", "FLOPs", "over the bus", "sent per step", "changes", "cards", "rank"]
    table(console, head, rows, right={1, 3, 4, 5})
    if len(shown) > _MOST_ROWS:
        sentence(console, f"... and {len(shown) - _MOST_ROWS} more; --json has them all.")


def _worth_showing(plan: Plan) -> list[Tried]:
    """Each measure alone, what fits and holds no more than is needed, and of other combinations the nearest.

    Where a measure makes the program fit, options of it that come after are left out: they cost as much or more.
    """
    nearest = [each for each in plan.tried if len(each.measures) > 1 and each.kind != FITS][:_MOST_NEAREST]
    return [
        each
        for place, each in enumerate(plan.tried)
        if (len(each.measures) == 1 and not _is_stronger_than_needed(plan, each, plan.tried[:place]))
        or each.measures in (plan.cheapest, plan.surely)
        or (len(each.measures) > 1 and each.kind == FITS and not is_more_than_needed(each, plan.tried))
        or each in nearest
    ]


def _is_stronger_than_needed(plan: Plan, one: Tried, before: Sequence[Tried]) -> bool:
    """Whether another option of the same measure, which stands before it, makes the program fit as surely."""
    name = one.measures[0].partition(":")[0]
    return (plan.as_it_is.kind, one.kind) == (TOO_BIG, FITS) and any(
        len(each.measures) == 1
        and each.measures[0].partition(":")[0] == name
        and each.kind == FITS
        and each.is_close <= one.is_close
        for each in before
    )


def _row(plan: Plan, each: Tried) -> list[str]:
    price = each.price
    if each.kind not in (FITS, TOO_BIG):
        return [_name(each.measures), "", f"no answer: {_first_line(each.sentence)}", *[""] * 6]
    flops, over_bus, changes, cards = "", "", "", ""
    if price is not None:
        flops = f"{price.extra_percent:+.1f} %" if price.is_counted else "not counted"
        over_bus = _signed(price.extra_host_bytes) if abs(price.extra_host_bytes) >= _LEAST_HOST_BYTES else ""
        changes = price.changes if price.changes != NOTHING else ""
        cards = str(price.cards) if price.cards > 1 else ""
    rank = "" if are_alike(each.ranks) else str(each.rank)
    cost = [flops, over_bus, _sent(plan, each), changes, cards, rank]
    return [_name(each.measures), format_bytes(each.peak_total_bytes), _how(plan, each), *cost]


def _sent(plan: Plan, each: Tried) -> str:
    """What a rank sends in each step, and how much more or less that is than by the program as it is."""
    if not each.sent_bytes and not plan.as_it_is.sent_bytes:
        return ""
    more_bytes = each.sent_bytes - plan.as_it_is.sent_bytes
    beside = f" ({_signed(more_bytes)})" if more_bytes and plan.as_it_is.sent_bytes else ""
    return f"{format_bytes(each.sent_bytes)}{beside}"


def _how(plan: Plan, each: Tried) -> str:
    if each.kind == TOO_BIG:
        return "too big" if not each.lacking_bytes else f"lacks {format_bytes(each.lacking_bytes)}"
    return "too close to call" if each.is_close else f"fits, {_spare(plan, each)} to spare"


def _what_to_write(console: Console, plan: Plan) -> None:
    if not plan.to_write:
        return
    measures = tuple(each.measure for each in plan.to_write)
    console.print()
    sentence(console, f"What to write for {_name(measures)}:", style="bold")
    for each in plan.to_write:
        for line in _written(each):
            sentence(console, line)
    tried = plan.of(measures)
    if tried is not None:
        sentence(console, f"`{_run(plan, tried)}` shows it whole, without a change to the program.")


def _written(each: ToWrite) -> Iterator[str]:
    yield f"  {each.title}. {each.what}"
    if each.needs:
        yield f"    pip install {each.needs}"
    yield from (f"    {line}" if line else "" for line in each.snippet.splitlines())
    if each.not_counted:
        yield f"  Not counted: {each.not_counted.removesuffix('.')}."
    if each.caution:
        yield f"  {each.caution}"


def _not_taken(console: Console, head: str, measures: Sequence[NotTaken]) -> None:
    if not measures:
        return
    console.print()
    sentence(console, head, style="bold")
    alike: dict[tuple[str, str], list[str]] = {}
    for each in measures:
        alike.setdefault((_first_line(each.why).removesuffix("."), each.how_to), []).append(each.measure)
    for (why, how_to), names in alike.items():
        sentence(console, f"  {', '.join(names)}: {why}{f' ({how_to})' if how_to else ''}.")


def _cost(price: Price | None) -> str:
    if price is None:
        return "its price was not counted"
    parts = [f"FLOPs {price.extra_percent:+.1f} %" if price.is_counted else "FLOPs not counted"]
    if abs(price.extra_host_bytes) >= _LEAST_HOST_BYTES:
        parts.append(f"{_signed(price.extra_host_bytes)} between host and card in each step")
    if price.extra_sent_bytes:
        parts.append(f"{_signed(price.extra_sent_bytes)} sent by each rank in each step")
    if price.cards > 1:
        parts.append(f"{price.cards} cards")
    changes = {NOTHING: "results stay the same"}.get(price.changes, f"changes the {price.changes}")
    return ", ".join([*parts, changes])


def _card(plan: Plan) -> str:
    """The card, and how many of them train together."""
    name = str(plan.card["name"])
    return f"{name} in a world of {plan.world.size}" if plan.world is not None else name


def _the(phase: str) -> str:
    article = "" if phase in (EVALUATION, AFTER_BACKWARD) or phase.startswith("after") else "the "
    passes = " pass" if phase in (FORWARD, BACKWARD) else ""
    return f"{article}{phase}{passes}"


def _name(measures: Sequence[str]) -> str:
    return " + ".join(measures) or AS_IT_IS


def _of_card(plan: Plan, each: Tried) -> str:
    total = format_bytes(plan.card["total_bytes"])
    return f"{format_bytes(each.peak_total_bytes)} of {total}, {_spare(plan, each)} to spare"


def _spare(plan: Plan, each: Tried) -> str:
    return format_bytes(plan.card["total_bytes"] - plan.reserve_bytes - each.peak_total_bytes)


def _lacking(plan: Plan, each: Tried) -> str:
    if not each.lacking_bytes:
        return "and runs out of memory on less"
    beside = f" beside the {format_bytes(plan.reserve_bytes)} that stay free" if plan.reserve_bytes else ""
    return f"{format_bytes(each.lacking_bytes)} more than the card has{beside}"


def _run(plan: Plan, each: Tried) -> str:
    return run_command(plan.gpu, each.command, each.measures, world=plan.world, rank=each.rank, options=plan.options)


def _what_it_took(plan: Plan) -> str:
    cached = f" and {plan.from_cache} from cache" if plan.from_cache else ""
    free = f" {format_bytes(plan.reserve_bytes)} of the card stay free, as asked." if plan.reserve_bytes else ""
    return f"Found by {_plural(plan.rehearsals, 'rehearsal')}{cached} in {plan.wall_seconds:.1f} s.{free}"


def _signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes >= 0 else '-'}{format_bytes(abs(size_bytes))}"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def _colour(plan: Plan) -> str:
    if plan.as_it_is.kind not in (FITS, TOO_BIG):
        return "yellow"
    if plan.cheapest is None:
        return "red"
    return "green" if plan.surely == plan.cheapest else "yellow"

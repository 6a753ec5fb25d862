"""A search in the terminal: the answer first, then the law, what was rehearsed, and what is to be known of it."""

from __future__ import annotations

import html as markup
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from dryfit.rehearse.endings import SAYS_MORE
from dryfit.rehearse.result import sent_bytes_of
from dryfit.rehearse.world import world_of
from dryfit.report.command import run_command
from dryfit.report.terminal import open_console, plain, sentence, table
from dryfit.search.effective import EffectiveBatch
from dryfit.search.found import Answer, Fit
from dryfit.search.law import Line
from dryfit.search.trial import FAILED, FITS, STOPPED, TOO_BIG, Trial
from dryfit.search.words import Sweep
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MOST_VALUES_NAMED = 6
_MOST_OUTSIDE_NAMED = 3
_WITH_ACCUMULATION = (
    "With accumulation the gradients stay while the next micro-batch runs; where this program frees them before each "
    "forward pass, rehearse it with accumulation switched on."
)


def print_fit(fit: Fit, file: TextIO | None = None) -> None:
    """Print a search; colour and width as the terminal has them, plain text where there is none."""
    console = open_console(file)
    if len(fit.answers) == 1:
        sentence(console, verdict_line(fit, fit.answers[0]), style=f"bold {_colour(fit.answers[0])}")
    else:
        _all_answers(console, fit)
    shown: list[tuple[dict[str, str], int | None]] = []
    is_alone = len(fit.answers) == 1
    for answer in fit.answers:
        lines = _split_lines(answer) if is_alone else _left_over_lines(answer)
        if answer.law is not None and (answer.row, answer.world) not in shown:  # on another card it is much the same
            shown.append((answer.row, answer.world))
            lines = [*law_lines(fit, answer), *lines]
        if lines:
            console.print()
            if not is_alone:
                sentence(console, f"{_where(answer)}:", style="bold")
            for line in lines:
                sentence(console, line)
    if is_alone:
        _trials(console, fit, fit.answers[0])
    console.print()
    for answer in fit.answers:
        prefix = "" if is_alone else f"{_where(answer)}: "
        if not is_alone and answer.why_none in (FAILED, STOPPED):
            sentence(console, verdict_line(fit, answer))
        for note in notes(fit, answer):
            sentence(console, f"{prefix}{note}")
    if any(answer.effective is not None and answer.effective.accumulation > 1 for answer in fit.answers):
        sentence(console, _WITH_ACCUMULATION)
    sentence(console, _what_it_took(fit))


def html(fit: Fit) -> str:
    """The same text for a notebook."""
    out = io.StringIO()
    print_fit(fit, file=out)
    return f"<pre>{markup.escape(out.getvalue())}</pre>"


def verdict_line(fit: Fit, answer: Answer) -> str:
    """The answer in one line.

    LARGEST batch on NVIDIA L4: 22, needs 20.99 GiB of 22.03 GiB; 23 runs out of memory in step 1, backward
    """
    name, where, first = fit.searched, _on(answer), answer.trials[0]
    if answer.largest is None:
        if answer.why_none == TOO_BIG:
            return f"NOTHING FITS {where}: {name} {first.value} {_how_it_ended(first)}"
        tried = [trial.value for trial in answer.trials]
        subject = f"{name} {tried[0]}" if len(tried) == 1 else f"each {name} tried ({_listed(tried)})"
        if answer.why_none == STOPPED:
            stopped = next(trial for trial in answer.trials if trial.kind == STOPPED)
            return f"NO ANSWER {where}, {name} {stopped.value}: {stopped.sentence}"
        return f"NO ANSWER {where}: {subject} fails, and not for memory: {_why(fit, answer, first)}"
    largest = answer.trial(answer.largest)
    needs = f"needs {format_bytes(largest.peak_total_bytes)} of {_has(answer)}" if largest else ""
    beyond = answer.trial(answer.beyond)
    after = f"; {beyond.value} {_how_it_ended(beyond)}" if beyond else ", and that is the end of the range"
    line = f"LARGEST {name} {where}: {answer.largest}, {needs}{after}"
    if answer.surely == answer.largest or largest is None:
        return line
    surely = "no smaller one rehearsed" if answer.surely is None else str(answer.surely)
    margin = format_bytes(largest.margin_bytes)
    return f"{line}. TOO CLOSE TO CALL by ± {margin} outside PyTorch's allocator: {surely} fits for sure"


def law_lines(fit: Fit, answer: Answer) -> list[str]:
    """The three lines of the law, of what nvidia-smi would show, of what PyTorch reserves and of tensors."""
    if answer.law is None:
        return []
    found = (("total", answer.law.total), ("reserved", answer.law.reserved), ("allocated", answer.law.allocated))
    return [f"peak {what:<9} = {_line(fit, answer, line)}" for what, line in found]


def notes(fit: Fit, answer: Answer) -> Iterator[str]:
    """Sentences worth reading beside the answer."""
    name = fit.searched
    if answer.rank:
        first = f" ({format_bytes(answer.first_rank.peak_total_bytes)})" if answer.first_rank is not None else ""
        yield f"The last rank, {answer.rank}, decides: it takes more than rank 0{first}."
    if answer.need is not None:
        yield _need(fit, answer)
    if answer.out_of_order:
        values = _listed(answer.out_of_order)
        yield (
            f"{name} {values} {'runs' if len(answer.out_of_order) == 1 else 'run'} out of memory although "
            f"{answer.largest} fits: others that were not rehearsed may do so too."
        )
    if answer.multiple_of > 1:
        yield f"Only multiples of {answer.multiple_of} work, as far as was tried; others fail, and not for memory."
    failed = [trial for trial in answer.trials if trial.kind == FAILED]
    if failed and answer.largest is not None:
        values = _listed([trial.value for trial in failed])
        fail = "fails" if len(failed) == 1 else "fail"
        yield f"{name} {values} {fail}, and not for memory: {_why(fit, answer, failed[0])}"
    for trial in answer.trials:
        if trial.kind == STOPPED and answer.largest is not None:
            yield f"{name} {trial.value} was stopped, so whether it fits is not known: {trial.sentence}"
    total = answer.law.total if answer.law is not None else None
    if total is not None and any(value > total.last and above < 0 for value, above in total.outside):
        yield (
            f"Above {name} {total.last} less is reserved than by the line: the card is nearly full there, and PyTorch "
            "gives back what it has cached."
        )
    caught = [trial.value for trial in answer.trials if trial.is_caught]
    if caught:
        yield (
            f"With {name} {_listed(caught)} the program catches the out-of-memory error and goes on; as it then runs "
            "with something else, that counts as too big."
        )
    beyond, largest = answer.trial(answer.beyond), answer.trial(answer.largest)
    if beyond is not None and beyond.kind == TOO_BIG and beyond.is_close:
        lacking = (beyond.requested_bytes or 0) - (beyond.free_bytes or 0)
        margin = format_bytes(beyond.margin_below_bytes)
        yield (
            f"{name} {beyond.value} lacks {format_bytes(lacking)}, and what is outside PyTorch's allocator is known to "
            f"± {margin} only: it may run on a real card."
        )
    if largest is not None and largest.growth_bytes:
        yield (
            f"Each of the last steps took about {format_bytes(largest.growth_bytes)} more than the one before: the "
            "answer holds for the steps rehearsed, and a long run needs more. --steps N rehearses further."
        )
    if largest is not None and largest.sizes_unknown:
        yield (
            "Apart from what is not known on a virtual card and can change the bytes; "
            f"`{_run_command(fit, answer, largest.value)}` lists it."
        )


def _all_answers(console: Console, fit: Fit) -> None:
    each = [f"{answer.largest or 'none'} on {_where(answer)}" for answer in fit.answers[:_MOST_VALUES_NAMED]]
    more = f" and {len(fit.answers) - len(each)} more" if len(fit.answers) > len(each) else ""
    sentence(console, f"LARGEST {fit.searched}: {'; '.join(each)}{more}", style="bold")
    names = list(fit.answers[0].row)
    rows = []
    for answer in fit.answers:
        largest, beyond = answer.trial(answer.largest), answer.trial(answer.beyond)
        surely = "" if answer.surely == answer.largest else str(answer.surely or "none")
        after = f"{beyond.value} {_how_it_ended(beyond)}" if beyond else "the range ends"
        if answer.largest is None:
            after = f"{answer.trials[0].value} {_how_it_ended(answer.trials[0])}"
        needs = format_bytes(largest.peak_total_bytes) if largest else ""
        split = answer.effective
        rows.append(
            [*(answer.row[each] for each in names), answer.gpu, str(answer.world or ""),
             str(answer.largest or "none"), surely, needs, _has(answer), _sent(largest),
             *((str(split.micro), str(split.accumulation)) if split is not None else ("", "")), after]
        )  # fmt: skip
    columns = ["world", f"largest {fit.searched}", "for sure", "needs", "of", "sent per step", "micro-batch"]
    columns += ["accumulation", "then"]
    right = range(len(names) + 1, len(names) + len(columns))
    table(console, [*names, "card", *columns], rows, right=set(right))
    for smallest in fit.smallest_worlds:
        where = ", ".join([smallest.gpu, *(f"{name} {word}" for name, word in smallest.row.items())])
        fits = f"the smallest world that fits is {smallest.world}" if smallest.world else "nothing fits in these worlds"
        sentence(console, f"{where}: {fits}.")


def _sent(trial: Trial | None) -> str:
    """What a rank sends to others in each step, "" where that is nothing."""
    sent_bytes = sent_bytes_of(trial.communication) if trial is not None else 0
    return format_bytes(sent_bytes) if sent_bytes else ""


def _trials(console: Console, fit: Fit, answer: Answer) -> None:
    rows = []
    for trial in answer.trials:
        sizes = [trial.peak_allocated_bytes, trial.peak_reserved_bytes, trial.peak_total_bytes]
        is_measured = trial.kind == FITS
        where = trial.phase or "" if is_measured else _how_it_ended(trial)
        rows.append(
            [str(trial.value), trial.kind, *(format_bytes(size) if is_measured else "" for size in sizes), where,
             "from cache" if trial.from_cache else ""]
        )  # fmt: skip
    table(
        console,
        [fit.searched, "", "allocated", "reserved", "nvidia-smi shows", "peak in", ""],
        rows,
        right={0, 2, 3, 4},
    )


def _line(fit: Fit, answer: Answer, line: Line | None) -> str:
    if line is None:
        return "no line: less than half of the rehearsals lie on one"
    fixed, each = format_bytes(line.fixed_bytes), format_bytes(line.per_sample_bytes)
    error = format_bytes(line.largest_error_bytes)
    text = f"{fixed} + {each} x {fit.searched}, linear from {line.first} to {line.last} (largest error {error})"
    for value, above in line.outside[:_MOST_OUTSIDE_NAMED]:
        text += f"; at {value} {format_bytes(abs(above))} {'above' if above > 0 else 'below'} it"
        trial = answer.trial(value)
        if above > 0 and value < line.first and trial is not None:
            text += f" ({trial.phase})"
    return text


def _split_lines(answer: Answer) -> list[str]:
    split = answer.effective
    if split is None:
        return []
    line = (
        f"effective batch {split.effective} = {split.micro} x {split.accumulation} x {split.gpus}: micro-batch "
        f"{split.micro}, {_plural(split.accumulation, 'accumulation step')}, {_plural(split.gpus, 'GPU')}"
    )
    return _left_over_lines(answer) or [line]


def _left_over_lines(answer: Answer) -> list[str]:
    """What is to be said of a split beside its numbers, which stand in the table of several answers."""
    return [_uneven(answer.effective)] if answer.effective is not None and answer.effective.remainder else []


def _uneven(split: EffectiveBatch) -> str:
    used = split.effective - split.remainder
    why = (
        f"{split.effective} is no multiple of {_plural(split.gpus, 'GPU')}"
        if split.effective % split.gpus
        else f"no micro-batch that was searched divides {split.effective // split.gpus}"
    )
    return (
        f"effective batch {split.effective} does not divide evenly, since {why}: "
        f"{split.micro} x {split.accumulation} x {split.gpus} = {used}, {split.remainder} left over"
    )


def _need(fit: Fit, answer: Answer) -> str:
    need = answer.need
    assert need is not None
    more = need.peak_total_bytes + fit.reserve_bytes - answer.card["total_bytes"]
    line = f"{fit.searched} {need.value} takes {format_bytes(need.peak_total_bytes)} where there is no limit"
    line += f", {format_bytes(more)} more than the card has." if more > 0 else ", and less than that is too little."
    if need.card is None:
        return f"{line} No card of the catalogue was found to hold it."
    return f"{line} It was rehearsed on {need.card} too, the smallest card of the catalogue that holds it."


def _how_it_ended(trial: Trial) -> str:
    if trial.kind == TOO_BIG:
        where = f" in step {trial.step}" if trial.step else " in the setup" if trial.step == 0 else ""
        phase = f", {trial.phase}" if trial.step and trial.phase else ""
        return f"runs out of memory{where}{phase}"
    if trial.kind == STOPPED:
        return f"was stopped ({trial.how})"
    if trial.kind == FAILED:
        return f"fails, and not for memory: {_first_line(trial.error or _own(trial.sentence))}"
    return "fits"


def _why(fit: Fit, answer: Answer, trial: Trial) -> str:
    """The program's own error, and the command that shows what it printed."""
    shown = f"`{_run_command(fit, answer, trial.value)}` shows what it prints."
    return f"{_own(trial.sentence)} {shown}"


def _own(sentence: str) -> str:
    """The sentence of a rehearsal, whose output a search does not show."""
    return sentence.replace(f" {SAYS_MORE}", "")


def _run_command(fit: Fit, answer: Answer, value: int) -> str:
    sweep = Sweep(words=tuple(fit.program), searched=fit.searched, values=[value], rows=(answer.row,))
    world = world_of(answer.world, fit.nodes) if answer.world is not None else None
    return run_command(answer.gpu, sweep.command(answer.row, value), world=world, rank=answer.rank, options=fit.options)


def _what_it_took(fit: Fit) -> str:
    cached = f" and {fit.from_cache} from cache" if fit.from_cache else ""
    free = f" {format_bytes(fit.reserve_bytes)} of the card stay free, as asked." if fit.reserve_bytes else ""
    return f"Found by {_plural(fit.rehearsals, 'rehearsal')}{cached} in {fit.wall_seconds:.1f} s.{free}"


def _on(answer: Answer) -> str:
    rank = f" as rank {answer.rank} of {answer.world}" if answer.world is not None else ""
    return f"on {answer.card['name']}{rank}" + "".join(f", {name} {word}" for name, word in answer.row.items())


def _where(answer: Answer) -> str:
    world = [f"world {answer.world}"] if answer.world is not None else []
    return ", ".join([answer.gpu, *world, *(f"{name} {word}" for name, word in answer.row.items())])


def _has(answer: Answer) -> str:
    return format_bytes(answer.card["total_bytes"])


def _listed(values: list[int] | tuple[int, ...]) -> str:
    shown = [str(value) for value in values[:_MOST_VALUES_NAMED]]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _first_line(text: str) -> str:
    return plain(text.strip().splitlines()[0]) if text.strip() else "no message"


def _colour(answer: Answer) -> str:
    if answer.largest is None:
        return "red" if answer.why_none == TOO_BIG else "yellow"
    return "green" if answer.surely == answer.largest else "yellow"

"""How far a plan was searched, in words: what was rehearsed, what was ruled out by that, and what was left."""

from __future__ import annotations

from collections.abc import Iterator

from dryfit.search.planned import Extent, Plan


def searched_lines(plan: Plan) -> Iterator[str]:
    """What the answer rests on.

    Searched: 4 measures that help alone make 11 combinations, of which 5 were rehearsed. All 3 that would be cheaper
    than the one found were rehearsed, and none fits.
    """
    for extent in plan.searched:
        if not extent.combinations:
            if not extent.is_strict:
                yield _nothing_to_combine(extent.measures)
            continue
        measures = f"{extent.measures} measures that help"
        of_up_to = f" of up to {extent.largest} measures" if extent.largest else ""
        vain = f", {extent.unanswered} of them without an answer" if extent.unanswered else ""
        head = f"{measures} alone make {_combinations(extent.combinations)}{of_up_to}, of which {extent.rehearsed} "
        head += f"{_were(extent.rehearsed)} rehearsed{vain}"
        start = "For what fits for sure" if extent.is_strict else "Searched"
        found = (plan.surely if extent.is_strict else plan.cheapest) is not None
        yield f"{start}: {head}. {_how_sure(extent, found)}"


def _nothing_to_combine(measures: int) -> str:
    if not measures:
        return "Of the measures that were tried none helps alone, so there is nothing to combine."
    helps = "1 measure helps" if measures == 1 else f"{measures} measures help"
    return f"Searched: {helps} alone, and there is nothing to combine."


def _how_sure(extent: Extent, found: bool) -> str:
    """What is known of those that would be cheaper, or of all where nothing fits."""
    if not extent.cheaper:
        return "None of them would be cheaper than the one found."
    cheaper = f"{extent.cheaper} that would be cheaper than the one found" if found else f"{extent.cheaper}"
    done = extent.cheaper - extent.ruled_out - extent.left
    if done == extent.cheaper:
        return f"All {cheaper} were rehearsed, and none fits."
    parts = [f"Of the {cheaper}, {done} {_were(done)} rehearsed and none fits"]
    if extent.ruled_out:
        parts.append(
            f"{extent.ruled_out} {_were(extent.ruled_out)} not, since each holds measures that alone take no less than "
            "those of one that is too big"
        )
    if extent.left:
        parts.append(
            f"{extent.left} {_were(extent.left)} not looked at, since --most {extent.most} ended the search: "
            f"{'a cheaper one' if found else 'one of them'} may fit"
        )
    return "; ".join(parts) + "."


def _combinations(count: int) -> str:
    return f"{count} combination{'' if count == 1 else 's'}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"

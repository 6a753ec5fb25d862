"""dryfit runs your unchanged PyTorch training program on a virtual NVIDIA card and says how much memory it takes.

    import dryfit

    result = dryfit.run(["train.py", "--lr", "3e-4"], gpu="rtx-4090")
    result.verdict, result.peak_reserved_bytes

    recording = dryfit.open_recording("snapshot.pickle")     # of a real card, or of `dryfit run --record`
    dryfit.analysis_of(recording).footprint.peak.owners      # who owned the memory at the peak

    found = dryfit.fit(["train.py", "--batch", "{batch}"], gpu="rtx-4090")
    found.largest                   # the largest batch that fits

    found = dryfit.plan(["train.py"], gpu="rtx-3090")
    found.cheapest                  # the measures with which it fits, at the least price

    dryfit.sweep("grid.toml").save("table.csv")              # a grid of settings, cards, worlds, here or on a cluster

    dryfit.explain("oom.log").next_step                       # why memory ran out; also of a snapshot or a recording
    for finding in dryfit.lint(["train.py"]).findings:      # known mistakes, from the source alone
        print(finding.place.line, finding.claim, finding.advice)

    with dryfit.watch(model, optimizer) as watching:        # a real run: its peaks, and who keeps its memory, by name
        train()

    dryfit.virtual("rtx-4090")      # before `import torch`: this very interpreter has the card now

Importing this module loads nothing heavy; each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dryfit.analyse import Footprint
    from dryfit.analyse import analyse as analysis_of
    from dryfit.cards import Card, all_cards, find_card
    from dryfit.errors import DryfitError, UnknownCard, UsageError
    from dryfit.explaining.explaining import explain
    from dryfit.explaining.explanation import Explanation
    from dryfit.findings import Finding
    from dryfit.in_process import virtual
    from dryfit.linting import lint
    from dryfit.recording.opening import open_recording
    from dryfit.rehearse.launch import rehearse as run
    from dryfit.rehearse.result import Result
    from dryfit.search.fit import fit
    from dryfit.search.found import Fit
    from dryfit.search.plan import plan
    from dryfit.search.planned import Plan
    from dryfit.sweeping.found import Sweep
    from dryfit.sweeping.sweep import sweep
    from dryfit.watching.watch import watch

__all__ = [
    "Card",
    "DryfitError",
    "Explanation",
    "Finding",
    "Fit",
    "Footprint",
    "Plan",
    "Result",
    "Sweep",
    "UnknownCard",
    "UsageError",
    "all_cards",
    "analysis_of",
    "explain",
    "find_card",
    "fit",
    "lint",
    "open_recording",
    "plan",
    "run",
    "sweep",
    "virtual",
    "watch",
]

_HOMES = {
    "Card": "dryfit.cards:Card",
    "DryfitError": "dryfit.errors:DryfitError",
    "Explanation": "dryfit.explaining.explanation:Explanation",
    "Finding": "dryfit.findings:Finding",
    "Fit": "dryfit.search.found:Fit",
    "Footprint": "dryfit.analyse:Footprint",
    "Plan": "dryfit.search.planned:Plan",
    "Result": "dryfit.rehearse.result:Result",
    "Sweep": "dryfit.sweeping.found:Sweep",
    "UnknownCard": "dryfit.errors:UnknownCard",
    "UsageError": "dryfit.errors:UsageError",
    "all_cards": "dryfit.cards:all_cards",
    "analysis_of": "dryfit.analyse:analyse",
    "explain": "dryfit.explaining.explaining:explain",
    "find_card": "dryfit.cards:find_card",
    "fit": "dryfit.search.fit:fit",
    "lint": "dryfit.linting:lint",
    "open_recording": "dryfit.recording.opening:open_recording",
    "plan": "dryfit.search.plan:plan",
    "run": "dryfit.rehearse.launch:rehearse",
    "sweep": "dryfit.sweeping.sweep:sweep",
    "virtual": "dryfit.in_process:virtual",
    "watch": "dryfit.watching.watch:watch",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, _, attribute = home.partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

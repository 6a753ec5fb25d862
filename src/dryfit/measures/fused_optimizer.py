"""Fused optimizers: one kernel updates each parameter in place, and needs no copies of all of them at once."""

from __future__ import annotations

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer

# Those of torch.optim that take `fused=True` on a card (2.4 to 2.14).
_FUSED = ("Adam", "AdamW", "SGD")


def _is_torchs(module: str, name: str) -> bool:
    return name in _FUSED and module.startswith("torch.optim.")


def _why_not(facts: Facts) -> str:
    own = [each for each in facts.optimizers if _is_torchs(*each.kind.rsplit(".", 1))]
    if not own:
        return f"no optimizer of the program is one of torch.optim's {', '.join(_FUSED)}, which can be fused"
    if all(each.fused for each in own):
        return "the program's optimizer is fused already"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    def use_fused(wanted: WantedOptimizer) -> None:
        if not _is_torchs(wanted.kind.__module__, wanted.kind.__name__):
            return
        groups = [group for group in wanted.groups if isinstance(group, dict)]
        if all({**wanted.settings, **group}.get("fused") for group in groups or [{}]):
            return
        if any(each.get("differentiable") for each in (wanted.settings, *groups)):
            raise CannotSwitchOn("a fused optimizer cannot be differentiable, as the program asks for")
        wanted.settings |= {"fused": True, "foreach": None}
        for group in groups:
            group.update({name: wanted.settings[name] for name in ("fused", "foreach") if name in group})
        moments.acts()

    moments.when_optimizer_is_wanted(use_fused)


MEASURES = (
    Measure(
        name="fused-optimizer",
        title="fused optimizer",
        what="One kernel updates each parameter in place; the default (foreach) makes copies as large as all "
        "parameters for every step.",
        group="optimizer",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        snippets={
            "pytorch": "optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)",
            "transformers": 'TrainingArguments(..., optim="adamw_torch_fused")',
            "lightning": "return torch.optim.AdamW(self.parameters(), ..., fused=True)  # in configure_optimizers",
        },
    ),
)

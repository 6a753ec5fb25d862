"""Optimizer states in the host's memory: on the card are those of the one parameter that is being updated."""

from __future__ import annotations

from pathlib import Path

from dryfit.measures.adam import keep_settings, when_adam_is_wanted, why_not_adam
from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import Moments, WantedOptimizer

_SETTINGS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")


def _why_not(facts: Facts) -> str:
    if any(model.is_distributed == "FSDP2" for model in facts.models):
        return "FSDP2 keeps states on the host itself: fully_shard(..., offload_policy=CPUOffloadPolicy())"
    return why_not_adam(facts)


def _switch_on(moments: Moments, _: str) -> None:
    def offload(wanted: WantedOptimizer) -> None:
        from dryfit.measures.states_on_host import StatesOnHost

        keep_settings(wanted, _SETTINGS)
        wanted.settings["fused"] = True
        wanted.kind = type(f"Offloaded{wanted.kind.__name__}", (StatesOnHost, wanted.kind), {})

    when_adam_is_wanted(moments, offload, cannot=("differentiable",))


def _written() -> str:
    """The optimizer as a person writes it: what the switch uses, without a copy that could become another."""
    source = Path(__file__).with_name("states_on_host.py").read_text(encoding="utf-8")
    return source[source.index("import torch") :]


MEASURES = (
    Measure(
        name="offload-optimizer",
        title="optimizer states on the host",
        what="The states stay in pinned memory of the host; on the card are those of one parameter at a time, while it "
        "is updated.",
        group="optimizer",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        not_counted="The host keeps them in pinned memory: 8 bytes for each float32 parameter.",
        snippets={
            "pytorch": f"{_written()}\n\noptimizer = OffloadedAdamW(model.parameters(), ..., fused=True)",
            "transformers": f'{_written()}\n\nTrainer(..., optimizer_cls_and_kwargs=(OffloadedAdamW, {{"lr": ..., '
            '"fused": True}))',
            "lightning": f"{_written()}\n\nreturn OffloadedAdamW(self.parameters(), ..., fused=True)  "
            "# in configure_optimizers",
        },
    ),
)

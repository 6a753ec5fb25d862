"""A catalogue of measures that are numbers, and a program that they act on as numbers do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dryfit.measures.facts import Facts
from dryfit.measures.measure import NOTHING, Measure
from dryfit.rehearse.result import Ending, Result

from .simulated import GIB, MIB, Simulated, result_of

# The program as it is, in GiB by phase; 26 GiB at the peak.
AS_IT_IS = {"setup": 4.0, "forward": 20.0, "backward": 26.0, "optimizer step": 22.0}
FLOPS = 1000
FACTS = Facts()


def measure(
    name: str, *, why_not: str = "", changes: str = NOTHING, options: Sequence[str] = ("",), **fields: Any
) -> Measure:
    given: dict[str, Any] = {
        "title": f"{name} title",
        "what": f"{name} takes less.",
        "group": name,
        "snippets": {
            "pytorch": f"write('{name}', {{option}})",
            "transformers": "TrainingArguments(...)",
        },
    }
    return Measure(
        name=name, why_not=lambda _: why_not, changes=lambda _: changes, options=lambda _: options, **given | fields
    )


class Program:
    """Rehearses at once; `effects` are by measure's word: what it takes off each phase in GiB, and FLOPs and bytes.

    `ends` are words with which it ends otherwise, `idle` those that find nothing to do. `cached_gib` are reserved
    beyond what tensors take, and given back where there is no room for them.
    """

    def __init__(
        self,
        effects: Mapping[str, Mapping[str, float]],
        *,
        as_it_is: Mapping[str, float] = AS_IT_IS,
        ends: Mapping[str, Ending] | None = None,
        idle: Sequence[str] = (),
        cached_gib: float = 0.0,
        facts: Facts | None = FACTS,
    ) -> None:
        self.effects, self.as_it_is = effects, as_it_is
        self.ends, self.idle, self.cached_gib, self.facts = ends or {}, idle, cached_gib, facts
        self.simulated = Simulated(self.rehearse)

    def rehearse(
        self,
        words: list[str],
        *,
        gpu: str,
        memory_bytes: int | None = None,
        reserve_bytes: int = 0,
        measures: tuple[str, ...] = (),
        facts: bool = False,
        **_: Any,
    ) -> Result:
        peaks = {
            phase: size - sum(self.effects[word].get(phase, 0.0) for word in measures)
            for phase, size in self.as_it_is.items()
        }
        allocated = int(max(peaks.values()) * GIB)
        result = result_of(words, allocated, gpu=gpu, memory_bytes=memory_bytes, reserve_bytes=reserve_bytes)
        fields: dict[str, Any] = {
            "phase_peaks": {phase: int(size * GIB) for phase, size in peaks.items()},
            "peak_phase": max(peaks, key=peaks.__getitem__),
            "measures": {word.partition(":")[0]: word not in self.idle for word in measures},
        }
        if result.out_of_memory is None:  # what is cached is given back where there is no room for it
            fields["peak_allocated_bytes"] = allocated
            room = (memory_bytes or result.card["total_bytes"]) - reserve_bytes  # type: ignore[index]
            fields["peak_total_bytes"] = min(result.peak_total_bytes + int(self.cached_gib * GIB), room)
        ending = next(
            (self.ends[word] for word in ("", *measures) if word in self.ends and (word or not measures)), None
        )
        if ending is not None:
            fields["ending"] = ending
        if facts and self.facts is not None:
            extra = sum(self.effects[word].get("flops", 0) for word in measures)
            host = sum(self.effects[word].get("host", 0) for word in measures)
            values = self.facts.to_dict() | {"flops": FLOPS + int(extra), "host_bytes": int(host * MIB)}
            fields["facts"] = Facts(**values | {"models": self.facts.models, "optimizers": self.facts.optimizers})
        return dataclasses.replace(result, **fields)

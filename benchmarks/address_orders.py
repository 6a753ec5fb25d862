"""What looking at other orders of addresses costs, and finds: `python benchmarks/address_orders.py [PART OF A NAME]`.

Each program is rehearsed once; its recording is then looked through for ties, and played in every order. Up to torch
2.11 the orders differ, from 2.12 on nothing is played in a rehearsal: the benchmark plays all the same.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dryfit.cards import find_card
from dryfit.recording.model import DeviceTrace, Events
from dryfit.rehearse import ties
from dryfit.rehearse.address_orders import play_recording
from dryfit.rehearse.allocator_settings import AllocatorSettings
from dryfit.rehearse.launch import rehearse
from dryfit.rehearse.requests import requests_of
from dryfit.rehearse.retrace import allocator_process
from dryfit.units import format_bytes
from dryfit.virtual_card import installed_torch
from dryfit.virtual_card.settings import settings_of

NOTHING, PLAIN = DeviceTrace(device=0, events=Events()), AllocatorSettings()
HERE = Path(__file__).parents[1]
LANGUAGE = str(HERE / "tests/rehearse/programs/of_language.py")
XMEM_CARD = "sm=86,sms=28,memory=12622168064"  # the RTX 3060 that xMem's runs were measured on
PROGRAMS = {
    "examples/gpt2.py --batch 8": ("rtx-4090", [str(HERE / "examples/gpt2.py"), "--batch", "8"]),
    "examples/resnet152.py": ("rtx-4090", [str(HERE / "examples/resnet152.py")]),
    "examples/llama_70b.py": ("sm=90,sms=132,memory=2000GB", [str(HERE / "examples/llama_70b.py")]),
    "distilgpt2, AdamW, 15 (xMem)": (XMEM_CARD, [LANGUAGE, "distilgpt2", "15"]),
    "gpt2, AdamW, 35 (xMem)": (XMEM_CARD, [LANGUAGE, "gpt2", "35"]),
    "T5-small, AdamW, 29 (xMem)": (XMEM_CARD, [LANGUAGE, "t5", "29"]),
}


def measure(name: str, gpu: str, program: list[str]) -> None:
    began = time.perf_counter()
    result = rehearse(program, gpu=gpu, quiet=True, observe=False)
    rehearsed = time.perf_counter() - began
    recording = result.recording
    assert recording is not None, result.ending.sentence
    began = time.perf_counter()
    tied = any(ties.may_decide(trace, recording.about.get("allocator_settings")) for trace in recording.devices)
    looked = time.perf_counter() - began
    card = find_card(gpu)
    with allocator_process() as process:
        process.play(requests_of(NOTHING, PLAIN, PLAIN), PLAIN)  # torch is imported then, as it is in a rehearsal
        began = time.perf_counter()
        played = play_recording(process, recording, result, card, settings_of(card))
        took = time.perf_counter() - began
    assert not played.why_not, played.why_not
    events = sum(len(trace.events) for trace in recording.devices)
    reserved = ", ".join(f"{order} {format_bytes(peaks.peak_reserved_bytes)}" for order, peaks in played.orders.items())
    print(
        f"| {name} | {events:,} | {rehearsed:.1f} s | {looked:.3f} s, {'ties' if tied else 'none'} | {took:.2f} s "
        f"| {reserved} |",
        flush=True,
    )


def main() -> None:
    print(f"torch {installed_torch().version}\n")
    print("| program | events | rehearsal, all of it | looking for ties | playing three orders | reserved |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for name, (gpu, program) in PROGRAMS.items():
        if not sys.argv[1:] or sys.argv[1] in name:
            measure(name, gpu, program)


if __name__ == "__main__":
    main()

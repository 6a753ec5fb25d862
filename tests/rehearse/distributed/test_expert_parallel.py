"""Expert parallel: a rank has its experts, and all of them get as many tokens."""

from __future__ import annotations

from pathlib import Path

from tests.rehearse.conftest import Rehearse

PROGRAM = (Path(__file__).parents[3] / "examples" / "distributed" / "expert_parallel.py").read_text()
WIDTH, EXPERTS, TOKENS, BLOCKS, RANKS = 512, 8, 2048, 2, 4


def test_experts_are_shared_out_and_tokens_exchanged(rehearse: Rehearse) -> None:
    done = rehearse(PROGRAM, options=("--world", str(RANKS)))
    assert done.code == 0, done.stderr
    router_bytes, expert_bytes = EXPERTS * WIDTH * 4, (2 * 4 * WIDTH * WIDTH + 5 * WIDTH) * 4
    parameter_bytes = BLOCKS * (router_bytes + EXPERTS // RANKS * expert_bytes)  # whole blocks of 512 bytes
    assert f"the model takes {parameter_bytes} bytes" in done.stdout + done.stderr
    phases = {each["phase"]: each["owners"] for each in done.result["footprint"]["steps"][2]["phases"]}
    stepping = {each["owner"]: each["size_bytes"] for each in phases["optimizer step"]}
    assert stepping["parameter"] == stepping["gradient"] == parameter_bytes
    assert stepping["optimizer state"] == 2 * parameter_bytes

    exchanges = 2 * 2 * BLOCKS - 1  # there and back, forward and backward; the data itself needs no gradient
    tokens_bytes = TOKENS * WIDTH * 4
    assert done.result["communication"] == {
        "all-to-all": {
            "calls": exchanges,
            "payload_bytes": exchanges * tokens_bytes,
            "sent_bytes": exchanges * tokens_bytes * (RANKS - 1) // RANKS,
        },
        "all-reduce": {
            "calls": BLOCKS,
            "payload_bytes": BLOCKS * router_bytes,
            "sent_bytes": BLOCKS * router_bytes * 2 * (RANKS - 1) // RANKS,
        },
    }
    assert not any(each["decides_size"] for each in done.result["unknowns"])

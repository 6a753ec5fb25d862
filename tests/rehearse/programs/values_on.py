"""Runs a program with values on (or off, with --off), and prints as its last line what it found and what was invented.

A program leaves its findings in a global dictionary `found`.
"""

import dataclasses
import json
import os
import runpy
import sys

import torch

off = sys.argv[1] == "--off"
sys.argv = sys.argv[2 if off else 1 :]
report = {"inventions": [], "failures": {}, "front_end": None}
values = None
if os.environ.get("VALUES_FRONT_END") == "backend select":
    vars(torch.library).pop("get_kernel", None)  # what older torch does not have
if not off:
    from dryfit.rehearse.inside import values as values_room
    from dryfit.virtual_card import calls

    values = values_room.install(calls.answer, calls.forget)
found = runpy.run_path(sys.argv[0], run_name="__main__")["found"]
if values is not None:
    report = {
        "inventions": [dataclasses.asdict(invention) for invention in values.inventions()],
        "failures": values.failures,
        "front_end": values.front_end,
    }
print(json.dumps({"found": found, **report}))

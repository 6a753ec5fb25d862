"""Runs programs with values on or off, each in a fork of this process, which has imported torch and nothing else.

A line of its input asks for one: its `words`, whether it is `off`, what to `assume`, its `environment`, and the files
for what it prints. The program's last line is what it has left in a global dictionary `found`, and what was invented. A
line of the output then says how it ended.
"""

import dataclasses
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch


def run(words, off, assume):
    sys.argv = words
    report = {"inventions": [], "failures": {}, "front_end": None, "fates": {}}
    values = None
    if os.environ.get("VALUES_FRONT_END") == "backend select":
        vars(torch.library).pop("get_kernel", None)  # what older torch does not have
    if not off:
        from dryfit.rehearse.inside import values as values_room
        from dryfit.virtual_card import calls

        values = values_room.install(calls.answer, calls.forget, assume)
    found = runpy.run_path(sys.argv[0], run_name="__main__")["found"]
    if values is not None:
        report = {
            "inventions": [dataclasses.asdict(invention) for invention in values.inventions()],
            "failures": values.failures,
            "front_end": values.front_end,
            "fates": values.fates,
        }
    print(json.dumps({"found": found, **report}))


for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    status = 1
    try:
        os.environ.update(asked["environment"])
        sys.path[0] = str(Path(asked["words"][0]).parent)
        for stream, file in ((sys.stdout, asked["stdout"]), (sys.stderr, asked["stderr"])):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream.fileno())
        run(asked["words"], asked["off"], asked["assume"])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # at once: taking torch apart takes a second

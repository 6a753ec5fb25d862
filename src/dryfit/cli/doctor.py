"""Say what would stop a rehearsal on this machine, and what to do about it.

Looks at the torch build, the virtual card's library and the kernel's means of keeping writes away. The exit code is
0 if a rehearsal works here, 2 if something would stop it.
"""

from __future__ import annotations

import argparse
import json

NAME = "doctor"
HELP = "say what would stop a rehearsal here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    from dryfit.rehearse.checkup import NO, check_up

    findings = check_up()
    if arguments.json:
        print(json.dumps([finding.to_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.mark:>4}  {finding.subject}: {finding.sentence}")
    return 2 if any(finding.mark == NO for finding in findings) else 0

"""Runs one of the programs beside it: entry.py NAME [ARGUMENTS ...]. One entry, so that warm rehearsals serve them all."""

import importlib
import sys

if __name__ == "__main__":
    name = sys.argv.pop(1)
    importlib.import_module(name).main(*sys.argv[1:])

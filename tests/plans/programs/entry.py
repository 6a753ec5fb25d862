"""Runs one of the programs beside it: entry.py NAME [ARGUMENTS ...]; one entry, so that warm ones serve them all."""

import importlib
import sys

if __name__ == "__main__":
    name = sys.argv.pop(1)
    importlib.import_module(name).main()

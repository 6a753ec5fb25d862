"""Runs one of the programs beside it: entry.py NAME [ARGUMENTS ...]; one entry, so that warm ones serve them all."""

import importlib
import sys

import torch  # noqa: F401  # here, so that warm rehearsals have it from the first on

if __name__ == "__main__":
    name = sys.argv.pop(1)
    importlib.import_module(name).main()

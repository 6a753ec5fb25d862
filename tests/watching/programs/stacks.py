"""Runs a program below as `entry` does, and has imported the training stacks: a warm server does that once."""

import gc
import runpy
import sys

import lightning  # noqa: F401
import torch  # noqa: F401
import transformers  # noqa: F401

if __name__ == "__main__":
    sys.argv.pop(0)
    gc.freeze()
    runpy.run_path(sys.argv[0], run_name="__main__")

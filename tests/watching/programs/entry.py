"""Runs a program below as a person runs it, by its path; one entry, so that one warm server serves them all."""

import gc
import runpy
import sys

if __name__ == "__main__":
    sys.argv.pop(0)
    gc.freeze()  # what libraries made before the program began is not looked at again and again: half of the time
    runpy.run_path(sys.argv[0], run_name="__main__")

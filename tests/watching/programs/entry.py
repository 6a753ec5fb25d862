"""Runs a program below as a person runs it, by its path; one entry, so that one warm server serves them all."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv.pop(0)
    runpy.run_path(sys.argv[0], run_name="__main__")

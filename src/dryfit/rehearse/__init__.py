"""Runs a program on a card and says what it left.

`launch.py` is the parent side (no torch), `inside/` the child side, `sandbox/` what keeps the program's writes away
from the user's files, `events.py` the lines the child writes and the parent reads, `result.py` the answer.
"""

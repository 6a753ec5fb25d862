"""The kinds of findings that are seen as a program runs, each told of what happens.

kind.py          what a kind is told, and what it answers
kept.py          growth from step to step and who keeps it: DF101 to DF109, DF113
evaluation.py    an evaluation with a graph, or that gathers its outputs on the card: DF201, DF202
errors.py        a caught exception that keeps its frames: DF109
optimizers.py    an optimizer made anew: DF110, gradients cleared too late: DF304, a schedule too fast: DF303
dataset.py       a whole dataset on the card: DF111
autocast.py      an autocast region around the loop: DF112
allocator.py     growth that no holder explains: DF114, DF115; empty_cache at each step: DF403
"""

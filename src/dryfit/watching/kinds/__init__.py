"""The kinds of findings that are seen as a program runs, each told of what happens.

kind.py           what a kind is told, and what it answers
kept.py           growth from step to step; kept_graphs.py, kept_tensors.py by what is kept: DF101 to DF108, DF113
seen.py, who.py   the figures of a growth as findings tell them; whether a holder is a metric or a hook
evaluation.py     an evaluation with a graph, or that gathers its outputs on the card: DF201, DF202
errors.py         a caught exception that keeps its frames: DF109
optimizers.py     an optimizer made anew: DF110, gradients cleared too late: DF304, a schedule too fast: DF303
dataset.py        a whole dataset on the card: DF111
autocast.py       an autocast region around the loop: DF112
allocator.py      growth that no holder explains: DF114, DF115; empty_cache at each step: DF403
"""

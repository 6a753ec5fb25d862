"""Watching a program train, on a real card or inside a rehearsal: what keeps its memory, by name and line.

    observer.py      told of the program's doings, comes to findings
    watch.py         `dryfit.watch`: the same for a live run, with the peaks of each step
    live_hooks.py    tells an observer of a live run's doings, and takes itself off again

    census.py        what lives at an equal point of the steps: tensors, and the nodes of autograd graphs
    growth.py        what grows from census to census, told from warm-up, caches and varying batches
    graphs.py        walks along grad_fn
    holders.py       who keeps an object alive, up to a name of the program's
    naming_lines.py  the line that gives that name what it holds, by the source's syntax
    kinds/           one kind of finding each, made of these

Nothing here keeps a tensor of the program's alive, runs an operator, or lets an error of its own reach the program.
"""

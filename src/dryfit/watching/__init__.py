"""Watching a program train, on a real card or inside a rehearsal: what keeps its memory, by name and line.

    observer.py       told of the program's doings, comes to findings
    watch.py          `dryfit.watch`: the same for a live run, with the peaks of each step
    live_hooks.py     tells a live run's watches of its doings, and takes itself off again
    rounds.py         when all optimizers have stepped, so that a step is over
    step_peaks.py     the peaks of each step and phase; summary.py the text, out_of_memory.py what is said of an error

    situation.py      what all kinds of findings look at
    signs.py          cheap signs that something is kept, by which to choose when to look closely
    census.py         what lives at an equal point of the steps: tensors, and a few other objects
    rising.py         sizes that go up at each of so many steps
    growth.py         what each step leaves, told from warm-up, caches and varying batches
    graphs.py         walks along grad_fn
    holders.py        who keeps an object alive, up to a name of the program's; frames.py the variables of functions
    naming_lines.py   the line that gives that name what it holds, by the source's syntax
    statements.py     what a statement does to a name; source_trees.py, source_places.py where it stands
    held.py           the two together
    kinds/            the kinds of findings, made of these

    device_memory.py, host_memory.py   what is held now
    torch_private.py                   every private name of torch that is used here

Nothing here keeps a tensor of the program's alive, runs an operator, or lets an error of its own reach the program.
"""

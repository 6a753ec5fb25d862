"""Gives a program the longest batch that its loaders can give, so that the step that would end a run hours in is seen.

`asked.py` reads what was asked for, `sizes.py` measures samples and batches, `choosing.py` says which are the longest,
`order.py` at which places they are given; these are pure. `looking.py` reads samples and index lists of a loader within
a budget, and leaves the program's random state as it was. `giving.py` is the hook on `DataLoader`.
"""

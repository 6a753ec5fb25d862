"""A program over a grid of settings, cards, worlds and measures: one table, with a row for each cell.

`grid.py` reads what is asked, `options.py` its options, `cell.py` makes cells of it; these are pure. `running.py` deals
the cells to workers through joblib; `worker.py` is what joblib calls there, `host.py` the process beside each worker
that keeps a program warm. `store.py` keeps a line for each finished cell, by which a sweep goes on after it was
stopped; `row.py` and `table.py` are the answer, `sweep.py` puts it together.
"""

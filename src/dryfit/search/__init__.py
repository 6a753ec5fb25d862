"""What fits: searches by rehearsals, never by trusting a line through them.

`words.py` puts values in place of `{batch}`, `largest.py` says what to rehearse next, `law.py` draws the line through
what was rehearsed, `effective.py` makes a global batch of micro-batches; these are pure. `rehearsing.py` runs
rehearsals in parallel and `cache.py` keeps what they found; `fit.py` puts all of it together, `found.py` is the answer.

For a plan, `choosing.py` says which measures to try, `question.py` asks of one set of them whether it fits and what it
costs, `combinations.py`, which is pure, which sets to rehearse next; `planning.py` is the search, `plan.py` puts it
together, `planned.py` is the answer.
"""

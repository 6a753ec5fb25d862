"""What reduces the memory of a training run: one file for each measure.

`measure.py` is what a measure is, `facts.py` what is known of a program when it is asked whether one applies,
`price.py` what one costs. `moments.py` is how a measure takes part in a rehearsal of a program that knows nothing of
it. `catalogue.py` lists them all. Nothing here imports torch but inside of functions.
"""

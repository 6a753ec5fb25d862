"""A program run for real and rehearsed, on one machine with a card: how far apart the figures are, as a row to send.

`driver` asks the machine which cards it has, `real_card` finds the virtual twin of one, `sides` runs the program both
ways, `comparison` sets the figures against each other, and `row` is what is kept of it. Nothing here imports torch.
"""

# DF101 history["loss"], host
"""Losses are kept for a plot, in a list within a dictionary of the module's own: a script without functions."""

import torch
from parts import batches, classifier
from torch.nn import functional

model = classifier(layers=20)
optimizer = torch.optim.Adam(model.parameters())
history = {"loss": [], "rate": []}

for inputs, targets in batches(40):
    loss = functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    history["rate"].append(optimizer.param_groups[0]["lr"])
    history["loss"].append(loss)  # <- holder

"""What the rules know of a source file, built once and read by all of them.

tree.py          the syntax tree with parents: loops, functions and branches around a node
names.py         names as written, and as the imports make them
assignments.py   what gives names their values
bindings.py      which assignments a name may come from at a place
objects.py       which names are models, optimizers, schedules, scalers, losses' functions
functions.py     functions of this file, who calls them, and what the frameworks call
grad_mode.py     whether a place runs without gradients
backward.py      the calls that walk a graph back, and the losses they walk from
torch_names.py   PyTorch's functions by what they do to a graph
tensors.py       whether an expression holds a graph
keeping.py       what a loop keeps from iteration to iteration
training.py      optimizer steps, cleared gradients, and loops that accumulate
modes.py         whether a model is in eval() mode
evaluation.py    forward passes of a model in eval() mode
"""

from dryfit.linting.flow.flow import Flow

__all__ = ["Flow"]

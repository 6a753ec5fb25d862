"""Convolution workspaces from the installed cuDNN, which is asked in a process of its own, in its mode without a card.

`library` finds it, `description` describes a card to it, and `server` starts the process when the first question comes
that no file of answers has. c/cudnn_answers.h says what is asked.
"""

from dryfit.virtual_card.cudnn.library import Oracle, oracle_for
from dryfit.virtual_card.cudnn.server import PlanServer, Running

__all__ = ["Oracle", "PlanServer", "Running", "oracle_for"]

"""`dryfit.watch`: a live run's peaks by step and phase, and what keeps its memory."""

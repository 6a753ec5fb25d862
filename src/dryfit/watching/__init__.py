"""Watches a run, real or rehearsed: peaks by phase, what grows from step to step, and who holds it."""

"""Explains an out-of-memory error, a snapshot or a recording, and what other settings would have done."""

"""Reads out-of-memory errors: their text, the numbers in it, and what it says about the cause. No torch."""

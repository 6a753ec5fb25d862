"""Finds the statically certain mistakes in training programs, from their source alone. No torch."""

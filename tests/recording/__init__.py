"""Tests of `dryfit.recording`."""

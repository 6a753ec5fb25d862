"""Rows and predictions to test with."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.arithmetic import Compared
from benchmarks.accuracy.predictions import Prediction
from benchmarks.accuracy.rows import Row

PROGRAM = "xmem_language.py"  # any that is there


def row(**changes: Any) -> Row:
    values: dict[str, Any] = {
        "id": "a",
        "family": "family",
        "program": PROGRAM,
        "arguments": "gpt2 SGD 1",
        "card": "l4",
        "torch": "2.6.0",
        "metric": "reserved",
        "measured_bytes": 1000,
        "source": "somewhere",
    }
    return Row(**{**values, **changes})


def prediction(of: Row, expected_bytes: int, *, low_bytes: int = 0, high_bytes: int = 0, **changes: Any) -> Prediction:
    values: dict[str, Any] = {
        "said": of.said,
        "low_bytes": low_bytes or expected_bytes,
        "expected_bytes": expected_bytes,
        "high_bytes": high_bytes or expected_bytes,
        "verdict": "fits",
        "unknowns": 0,
        "seconds": 1.0,
    }
    return Prediction(**{**values, **changes})


def compared(of: Row, expected_bytes: int, **changes: Any) -> Compared:
    return Compared(row=of, prediction=prediction(of, expected_bytes, **changes), version="2.6.0")

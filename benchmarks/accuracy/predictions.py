"""What the virtual card answers for the rows, kept in `predicted/torch-VERSION.json`, one line for a row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dryfit.whole_files import whole_file

from .rows import HERE, Row

PREDICTED = HERE / "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The bytes of a row's metric as a range, and the verdict on the row's card.

    `said` is what was rehearsed; `unknowns` counts what the virtual card could not know and what can change sizes.
    """

    said: str
    low_bytes: int
    expected_bytes: int
    high_bytes: int
    verdict: str
    unknowns: int
    seconds: float


Predictions = dict[str, Prediction]
"""By the id of the row."""


def versions(folder: Path = PREDICTED) -> list[str]:
    """The versions of torch that there are predictions under, oldest first."""
    found = [path.stem.removeprefix("torch-") for path in folder.glob("torch-*.json")]
    return sorted(found, key=numbers)


def numbers(version: str) -> list[int]:
    """What versions are ordered by: 2.9 comes before 2.14."""
    return [int(part) for part in re.findall(r"\d+", version)]


def load(version: str, folder: Path = PREDICTED) -> Predictions:
    """The predictions under a version of torch; none where it was not tried."""
    path = _path(version, folder)
    if not path.exists():
        return {}
    return {key: Prediction(**values) for key, values in json.loads(path.read_text()).items()}


def keep(predictions: Mapping[str, Prediction], version: str, folder: Path = PREDICTED) -> None:
    """Write them, in the order of their ids."""
    lines = [f"{json.dumps(key)}: {json.dumps(asdict(each))}" for key, each in sorted(predictions.items())]
    folder.mkdir(exist_ok=True)
    with whole_file(_path(version, folder), "predictions") as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def current(row: Row, predictions: Mapping[str, Prediction]) -> Prediction | None:
    """The prediction of a row, unless its words or its card have changed since."""
    found = predictions.get(row.id)
    return found if found is not None and found.said == row.said else None


def of_the_card(row: Row, by_version: Mapping[str, Mapping[str, Prediction]]) -> tuple[str, Prediction] | None:
    """The prediction to compare a row with: that of the torch that the card ran, else of the nearest one.

    The nearest is the oldest that is newer, and where there is none the newest; where nobody said what the card ran,
    the newest.
    """
    found = {version: each for version, of in by_version.items() if (each := current(row, of)) is not None}
    if not found:
        return None
    ordered = sorted(found, key=numbers)
    newer = [version for version in ordered if row.torch and numbers(version) >= numbers(row.torch)]
    version = newer[0] if newer else ordered[-1]
    return version, found[version]


def left_over(rows: Iterable[Row], predictions: Mapping[str, Prediction]) -> list[str]:
    """The ids of predictions that no row has any more, or that are of other words."""
    valid = {row.id for row in rows if current(row, predictions) is not None}
    return [key for key in predictions if key not in valid]


def _path(version: str, folder: Path) -> Path:
    return folder / f"torch-{version}.json"

"""Values that outlive a process, as JSON: written whole, and read back by their fields' types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from dryfit.errors import UsageError
from dryfit.plain import from_plain
from dryfit.whole_files import whole_file

_Value = TypeVar("_Value")


def write_saved(text: str, path: str | Path, *, what: str) -> None:
    """Write a value's JSON; `what` names it, as in "result".

    Raises:
        UsageError: the file cannot be written.
    """
    with whole_file(path, what) as file:
        file.write(f"{text}\n".encode())


def read_saved(kind: type[_Value], path: str | Path, *, what: str, newest: int) -> _Value:
    """Read a value that was saved as JSON with a `schema_version`; `what` names it, as in "result of dryfit run".

        read_saved(Result, "result.json", what="result of dryfit run", newest=1)

    Raises:
        UsageError: the file cannot be read, is something else, or of a newer schema than `newest`.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if values["schema_version"] > newest:
            raise UsageError(
                f"{path} has schema version {values['schema_version']}, and this dryfit knows up to {newest}; read it "
                "with the dryfit that wrote it, or a newer one."
            )
        return from_plain(kind, values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved {what}: {error}.") from error

"""What a name of this room says where the library that it is for is not installed."""

from __future__ import annotations

from dryfit.errors import UsageError


class MissingPackage(UsageError, ImportError):
    """A library is not installed; an ImportError too, so that a program which catches those goes on without it."""

    def __init__(self, what: str, library: str, package: str) -> None:
        super().__init__(
            f"{what} is for programs that train with {library}, which is not installed for this Python. Install it "
            f"(pip install {package}), or leave the callback out."
        )

"""Which protections work on this machine, for `dryfit doctor`."""

from __future__ import annotations

import os

from dryfit.rehearse.sandbox import client


def probe() -> tuple[str, ...]:
    """Run `true` in the sandbox and say in sentences what protected it, then why nothing stronger did.

    >>> probe()                                                                                  # doctest: +SKIP
    ('What the program writes goes to a layer on disk that is thrown away.', 'The network is loopback alone.', ...)
    """
    with client.start(["true"], cwd=os.getcwd(), env=os.environ) as keeper:
        protection = keeper.protection()
    return (*protection.sentences(), *protection.failures)

"""Which protections work on this machine, for `dryfit doctor`."""

from __future__ import annotations

import os

from dryfit.rehearse.sandbox import client


def probe() -> list[tuple[str, bool, str]]:
    """Run `true` in the sandbox: what protected it, and why nothing stronger did, each as (subject, strong, sentence).

    >>> probe()[1]                                                                               # doctest: +SKIP
    ('network', True, 'The network is loopback alone.')

    Strong is what the kernel sees to; what Python alone refuses is not.

    Raises:
        UsageError: no scratch folder can be made in the temporary folder.
        OSError: no process can be started.
        DryfitError: the sandbox could not be set up at all.
    """
    with client.start(["true"], cwd=os.getcwd(), env=os.environ) as keeper:
        protection = keeper.protection()
    strong = (protection.writes != "audit-hook", protection.network != "audit-hook", True)
    found = list(zip(("writes", "network", "processes"), strong, protection.sentences(), strict=True))
    return found + [("sandbox", False, failure) for failure in protection.failures]

"""Keeps a rehearsal from changing anything of the user's: files, network, processes left behind. See docs/safety.md.

`start` runs a program in the sandbox through a small keeper process; `probe` says which protections work here. In the
program's own Python, `refuse.install_as_told` does what namespaces could not.
"""

from dryfit.rehearse.sandbox.client import Keeper, start
from dryfit.rehearse.sandbox.outcome import Ended, Protection
from dryfit.rehearse.sandbox.probe import probe

__all__ = ["Ended", "Keeper", "Protection", "probe", "start"]

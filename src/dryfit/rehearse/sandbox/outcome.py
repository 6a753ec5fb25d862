"""What a sandbox kept away, and how the program in it ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What keeps a program from the real machine: `writes` and `network` by name, `sentences()` in words.

    `writes` is "layers" (on disk), "memory-layers", "read-only", "landlock", "audit-hook" or "allowed"; `network` is
    "loopback", "audit-hook" or "allowed"; `processes` is "namespace" or "reaper". `read_only` are the folders that have
    no layer where others do; `failures` says in sentences what the kernel refused on the way here.
    """

    writes: str
    network: str
    processes: str
    read_only: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """What is in force, a sentence each: writes, network, processes."""
        writes = _WRITES[self.writes]
        if self.read_only and self.writes != "read-only":
            writes += f" Writes are refused in {', '.join(self.read_only)}."
        return writes, _NETWORK[self.network], _PROCESSES[self.processes]

    def warnings(self) -> tuple[str, ...]:
        """What a person must be told in any case, a sentence each: where this is less than layers on disk and loopback.

        >>> Protection(writes="layers", network="loopback", processes="namespace").warnings()
        ()

        Writes and a network that the user allowed are no reason to warn.
        """
        writes, network, processes = self.sentences()
        found = []
        if self.writes not in ("layers", "allowed"):
            found.append(writes)
        elif self.read_only:
            found.append(f"Writes are refused in {', '.join(self.read_only)}.")
        if self.network == "audit-hook":
            found.append(network)
        if self.processes == "reaper":
            found.append(processes)
        return (*found, *self.failures)


_WRITES = {
    "layers": "What the program writes goes to a layer on disk that is thrown away.",
    "memory-layers": "What the program writes goes to a layer in memory that is thrown away.",
    "read-only": "Writes outside temporary folders are refused: all else is mounted read-only.",
    "landlock": "Writes outside temporary folders are refused by the kernel (Landlock).",
    "audit-hook": "Writes outside temporary folders are refused in Python only: the C code of extensions, and programs "
    "that this one starts, can write.",
    "allowed": "Writes are allowed: the program's files are real.",
}
_NETWORK = {
    "loopback": "The network is loopback alone.",
    "audit-hook": "Connections beyond loopback are refused in Python only: C code of extensions can connect.",
    "allowed": "The network is allowed.",
}
_PROCESSES = {
    "namespace": "The kernel ends every process of the program with it.",
    "reaper": "The keeper ends every process of the program with it; were the keeper itself killed, some could stay.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program in the sandbox ended.

    One of `exit_status`, `signal`, `stopped` (by us) and `problem` (it could not be started, or the keeper was lost: a
    sentence) is set. `peak_host_bytes` is the largest resident set that one of its processes had. `no_room` is a
    sentence where the program failed and the disk or memory that its writes went to was full by then, else "".
    """

    exit_status: int | None
    signal: int | None
    stopped: bool
    problem: str
    peak_host_bytes: int
    cpu_seconds: float
    no_room: str = ""

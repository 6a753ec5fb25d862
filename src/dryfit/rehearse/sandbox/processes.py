"""The processes below a process: which they are, what memory they hold, and ending every one of them."""

from __future__ import annotations

import os

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, parents first.

    >>> descendants(os.getpid())
    []
    """
    found: list[int] = []
    waiting = [pid]
    try:
        while waiting:
            children = _children(waiting.pop())
            found += children
            waiting += children
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return _descendants_by_parent(pid)
    return found


def program_processes(keeper: int) -> list[int]:
    """The descendants of a keeper that are the program's: not its own helpers, which share the keeper's session."""
    return [pid for pid in descendants(keeper) if (fields := _stat(pid)) and int(fields[3]) != keeper]


def resident_bytes(keeper: int) -> int:
    """Memory that the program under a keeper holds now, in bytes.

    Address space that nothing was written to does not count: not the virtual card's. One process: its resident set.
    Several: the sum of their proportional sets (`Pss` of smaps_rollup), in which pages that forked workers share count
    once; where the kernel does not tell, the sum of the resident sets, which is more.
    """
    processes = program_processes(keeper)
    if len(processes) == 1:
        return _resident_set_bytes(processes[0])
    return sum(_proportional_set_bytes(pid) for pid in processes)


def end_descendants(largest_bytes: int = 0) -> int:
    """Kill every descendant of this process, again until none is left, and return the largest resident set in bytes.

    This process must adopt orphans (`kernel.adopt_orphans`), or one whose parent has ended is out of reach.
    """
    while True:
        pids = descendants(os.getpid())
        # Asked before the first is ended: with it may end a whole namespace, whose usage the kernel hands on to none.
        largest_bytes = max([largest_bytes, *map(_largest_resident_set_bytes, pids)])
        for pid in pids:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return largest_bytes
        largest_bytes = max(largest_bytes, usage.ru_maxrss * 1024)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                raise
    return found


def _descendants_by_parent(pid: int) -> list[int]:
    everyone = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    parents = {other: int(fields[1]) for other in everyone if (fields := _stat(other))}
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        children = [child for child, its_parent in parents.items() if its_parent == parent]
        found += children
        waiting += children
    return found


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ...: the fields after the name, which itself may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _resident_set_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _largest_resident_set_bytes(pid: int) -> int:
    return _line_in_kib(f"/proc/{pid}/status", "VmHWM:") or 0


def _proportional_set_bytes(pid: int) -> int:
    found = _line_in_kib(f"/proc/{pid}/smaps_rollup", "Pss:")
    return _resident_set_bytes(pid) if found is None else found


def _line_in_kib(path: str, name: str) -> int | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None

"""Landlock: the kernel refuses this process and its children every write outside some folders, without any privilege.

It covers making, opening for writing, truncating, linking and removing; it does not cover chmod, chown and utime
(linux/landlock.h, "Current limitations" in the kernel's userspace-api/landlock.rst), so the audit hook goes with it.
"""

from __future__ import annotations

import ctypes
import os
import struct

from dryfit.rehearse.sandbox import kernel

_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
_VERSION_QUERY = 1
_RULE_PATH_BENEATH = 1

_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))  # REMOVE_DIR, REMOVE_FILE, MAKE_CHAR ... MAKE_SYM
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_RIGHTS_OF_A_FILE = _WRITE_FILE | _TRUNCATE


def version() -> int:
    """The Landlock version of this kernel; `OSError` where it is not built in or not switched on."""
    return kernel.syscall(_SYS_CREATE_RULESET, None, 0, _VERSION_QUERY)


def refuse_writes_outside(writable: list[str]) -> None:
    """Refuse, for good, this process and its children writes anywhere but in these files and folders.

    Raises:
        OSError: the kernel has no Landlock, or refused it.
    """
    found = version()
    rights = _WRITE_FILE | _REMOVE_AND_MAKE | (_REFER if found >= 2 else 0) | (_TRUNCATE if found >= 3 else 0)
    handled = ctypes.c_uint64(rights)
    ruleset = kernel.syscall(_SYS_CREATE_RULESET, ctypes.byref(handled), 8, 0)
    for path in writable:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = rights if os.path.isdir(path) else rights & _RIGHTS_OF_A_FILE
        rule = struct.pack("=Qi", allowed, place)  # struct landlock_path_beneath_attr, packed
        kernel.syscall(_SYS_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
        os.close(place)
    kernel.give_up_new_privileges()
    kernel.syscall(_SYS_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)

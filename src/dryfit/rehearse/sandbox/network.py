"""A network in which there is only this machine: loopback, answering at every address that programs call their own."""

from __future__ import annotations

import fcntl
import os
import struct

from dryfit.rehearse.sandbox import kernel

# linux/sockios.h and linux/if.h
_SIOCGIFCONF, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8912, 0x8914, 0x8916, 0x891C
_UP_AND_RUNNING = 0x1 | 0x40
_REQUEST_BYTES = 40


def own_addresses() -> list[bytes]:
    """The IPv4 addresses of this machine other than loopback, as four bytes each, in the network of this process."""
    buffer = bytearray(64 * _REQUEST_BYTES)
    used = kernel.interface_requests(_SIOCGIFCONF, buffer)
    found = [bytes(buffer[at + 20 : at + 24]) for at in range(0, used, _REQUEST_BYTES)]
    return [address for address in found if address[0] != 127]


def bring_up_loopback(addresses: list[bytes]) -> None:
    """Switch on `lo` in the network of this process and give it these addresses too.

    A program that meets its other ranks at the machine's own name or address (torchrun, MASTER_ADDR) then finds them.

    Raises:
        OSError: the kernel refused; without its own network namespace this process may not.
    """
    control = kernel.internet_socket()
    try:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _UP_AND_RUNNING))
        for number, address in enumerate(dict.fromkeys(addresses), start=1):
            name = b"lo:%d" % number
            for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, b"\xff\xff\xff\xff")):
                fcntl.ioctl(control, request, struct.pack("16sHH4s16x", name, 2, 0, value))
    finally:
        os.close(control)


def host_name_in(hosts: str) -> tuple[list[bytes], str]:
    """What /etc/hosts says of this machine's name: its IPv4 addresses, and the text to use in place of `hosts`.

    The text has the name at 127.0.0.1 if nothing was said; a name server cannot be asked from in here.
    """
    name = os.uname().nodename
    addresses, known = [], False
    for line in hosts.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if name in names:
            known = True
            parts = address.split(".")
            if len(parts) == 4 and all(part.isdigit() and int(part) < 256 for part in parts) and parts[0] != "127":
                addresses.append(bytes(map(int, parts)))
    return addresses, hosts if known else f"{hosts.rstrip()}\n127.0.0.1 {name}\n".lstrip()

"""The address of a network card of this host."""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915


def card() -> str | None:
    """An IPv4 address of this host that is not loopback; None where there is no card."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            host = socket.inet_ntoa(answer[20:24])
            if not host.startswith("127."):
                return host
    return None

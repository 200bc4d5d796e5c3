"""The secret of this user on this host, for jobs of unchanged launch scripts: processes without a
common launcher that rendezvous at the address of a network interface."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Mapping

from . import environment
from .errors import DeniedError, StorageError

_NAME = "ligament-secret"


def for_address(address: str, environ: Mapping[str, str] | None = None) -> bytes | None:
    """The job's own secret if it has one. Otherwise the user's, if `address` (host:port) is an
    address of this host and not loopback; None for other addresses."""
    environ = os.environ if environ is None else environ
    given = environment.secret(environ=environ)
    if given is not None or not _is_card(address.rpartition(":")[0].strip("[]")):
        return given
    return environment.read_secret(_file(_folder(environ)))


def _is_card(host: str) -> bool:
    """Whether the host's first address belongs to this host and is not loopback."""
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    family, kind, protocol, _, place = found[0]
    number = ipaddress.ip_address(str(place[0]).partition("%")[0])
    if number.is_loopback or number.is_unspecified:
        return False
    with socket.socket(family, kind, protocol) as probe:
        try:
            probe.bind(place)
        except OSError:
            return False
    return True


def _folder(environ: Mapping[str, str]) -> str:
    """An in-memory folder that only this user can access: the system's, or our own."""
    user = os.geteuid()
    named = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    if os.path.isdir(named):
        return named
    ours = f"/dev/shm/ligament-{user}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(ours, 0o700)
    return ours


def _file(folder: str) -> str:
    """The path of the secret in the folder; the first process creates it."""
    facts = os.lstat(folder)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise DeniedError(
            f"{folder} is not accessible only by this user (mode 700), so no secret is "
            "stored there (set LIGAMENT_SECRET_FILE to a file of at least 32 random "
            "bytes)"
        )
    path = os.path.join(folder, _NAME)
    if not os.path.exists(path):
        _make(path)
    return path


def _make(path: str) -> None:
    """Creates the secret so that it is complete before it is visible; if two processes create one,
    the first succeeds."""
    own = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
        finally:
            os.unlink(own)
    except OSError as error:
        raise StorageError(f"secret file {path!r}: {error.strerror}") from None

"""The exceptions: one class per status, each also derived from the built-in class that Python users
catch."""

from __future__ import annotations

import builtins
import errno as _errno
from typing import Any

from . import _core


class Error(RuntimeError):
    """The base class of all exceptions of Ligament. The message names the tensor, model, key or
    peer."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class InvalidError(Error, ValueError):
    """Invalid argument."""


class MismatchError(Error, ValueError):
    """Names, dtypes or shapes differ from what is stored."""


class NotFoundError(Error, KeyError):
    """No such model, tensor, plugin or place."""


class _SystemError(Error, OSError):
    _number: int | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.errno = self._number

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {"errno": self.errno}


class ExistsError(_SystemError, FileExistsError):
    """The name is already in use."""

    _number = _errno.EEXIST


class TimeoutError(_SystemError, builtins.TimeoutError):
    """The timeout expired."""

    _number = _errno.ETIMEDOUT


class PeerError(_SystemError, ConnectionError):
    """Another process is lost."""


class DeniedError(_SystemError, PermissionError):
    """No permission."""

    _number = _errno.EACCES


class StorageError(_SystemError):
    """A system call failed; `errno` is its error number."""


class CorruptError(Error):
    """Stored bytes differ from those written."""


class LimitError(Error):
    """Larger than a stated limit."""


class BusyError(Error):
    """In use by another process or thread; retry later."""


class ClosedError(Error):
    """The handle is closed, or belongs to the parent of this forked process."""


class UnsupportedError(Error, NotImplementedError):
    """Not supported by this plugin, build or machine."""


class MissingPackageError(UnsupportedError, ImportError):
    """A required package is not installed; the message contains the install command."""

    def __init__(self, who: str, package: str) -> None:
        super().__init__(f"{who} needs {package}, which is not installed: pip install {package}")


class NoMemoryError(Error, MemoryError):
    """Out of memory."""


BY_STATUS: dict[int, type[Error]] = {
    1: InvalidError,
    2: NotFoundError,
    3: ExistsError,
    4: NoMemoryError,
    5: StorageError,
    6: CorruptError,
    7: TimeoutError,
    8: ClosedError,
    9: BusyError,
    10: UnsupportedError,
    11: MismatchError,
    12: PeerError,
    13: DeniedError,
    14: LimitError,
    15: Error,
}
_core.set_errors(dict(BY_STATUS))


def missing(error: ImportError, who: str) -> ImportError:
    """The exception to raise when `who` failed to import what it needs. If the package
    is installed but fails to import, its own exception is kept."""
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module in ("", "ligament"):
        return error
    return MissingPackageError(who, module)

"""The exceptions: one class per family of statuses, each also what Python users catch."""

from __future__ import annotations

import builtins
import errno as _errno
from typing import Any

from . import _core


class Error(RuntimeError):
    """Everything that Ligament raises. The message says which tensor, model, key or peer."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class InvalidError(Error, ValueError):
    """An argument makes no sense."""


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
    """The name is taken."""

    _number = _errno.EEXIST


class TimeoutError(_SystemError, builtins.TimeoutError):
    """The deadline passed."""

    _number = _errno.ETIMEDOUT


class PeerError(_SystemError, ConnectionError):
    """Another process is gone."""


class DeniedError(_SystemError, PermissionError):
    """No permission."""

    _number = _errno.EACCES


class StorageError(_SystemError):
    """The system refused; `errno` says why."""


class CorruptError(Error):
    """Stored bytes are not what was written."""


class LimitError(Error):
    """Larger than a stated limit."""


class BusyError(Error):
    """Somebody else holds it; try later."""


class ClosedError(Error):
    """The handle is closed, or belongs to the process this one was forked from."""


class UnsupportedError(Error, NotImplementedError):
    """This plugin, build or machine cannot do it."""


class MissingPackageError(UnsupportedError, ImportError):
    """A package that the call needs is not installed; the text has the line that installs it."""

    def __init__(self, who: str, package: str) -> None:
        super().__init__(f"{who} needs {package}, which is not installed: pip install {package}")


class NoMemoryError(Error, MemoryError):
    """Memory could not be had."""


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

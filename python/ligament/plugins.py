"""Backends of shared libraries, and the instances that checkpoints use."""

from __future__ import annotations

import atexit
import os
import threading

from . import _core, credentials, place

_lock = threading.Lock()
_open: dict[tuple[str, str], _core.Checkpoint] = {}
_pid = os.getpid()


def load(path: str | os.PathLike[str]) -> str:
    """Loads a shared library and registers its backend; returns the backend's name."""
    return _core.plugin_load(os.fspath(path))


def names() -> list[str]:
    """The known backends."""
    return list(_core.backends())


def instance(backend: str, config: str) -> _core.Checkpoint:
    """The instance of this process for (backend, config), opened on first use."""
    global _pid
    backend = backend if backend in _core.backends() else place.absolute(backend)
    with _lock:
        if _pid != os.getpid():  # forked: what the parent opened is the parent's
            _open.clear()
            _pid = os.getpid()
        if (backend, config) not in _open:
            credentials.provide(f"{backend}:")
            _open[backend, config] = _core.Checkpoint(backend, config)
        return _open[backend, config]


def has_volume(backend: str) -> bool:
    """Whether checkpoints of this backend are in a store. Anything other than the name of a backend
    is a store's URI or path."""
    return _core.backends().get(backend, True)


def store_uri(backend: str, config: str) -> str:
    """The URI of the store of (backend, config)."""
    if backend in _core.backends():
        return f"{backend}:{config}"
    return place.with_options(place.absolute(backend), config)


def shared_uri(backend: str, config: str) -> str | None:
    """The URI of the store of (backend, config) if another handle can open the same store; None for
    a plugin without a store, and for memory without a name."""
    if not has_volume(backend):
        return None
    uri = store_uri(backend, config)
    return None if uri == "mem:" or uri.startswith("mem:?") else uri


def check_exists(backend: str, config: str) -> None:
    """Raises NotFoundError if (backend, config) is a place without a store, which opening would
    create."""
    if (uri := shared_uri(backend, config)) is not None:
        credentials.provide(uri)
        _core.Store(place.with_mode(uri, "r")).close()


def close() -> None:
    """Closes every instance."""
    with _lock:
        instances = list(_open.values())
        _open.clear()
    for one in instances:
        one.close()


def _load_listed() -> None:
    """Loads the plugins listed in the environment, as the command line does."""
    for path in os.environ.get("LIGAMENT_PLUGINS", "").split(os.pathsep):
        if path:
            load(path)


atexit.register(close)
_load_listed()

"""Keeps a worker's own calls coherent with the rows that its modules cache on a device.

The calls of the extension stay as fast as they are for workers without a cache: the methods are
replaced in the worker that has one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Error
from .rows import Worker

if TYPE_CHECKING:
    from .device_rows import DeviceRows

# What happens to the cached rows before a call.
_BEFORE = {
    "flush": ("pull", "pull_if_local", "pull_sample", "get_rows", "waitall"),
    "forget": ("push", "push_sums", "set", "set_rows"),
    "refresh": ("wait_sync", "flush", "barrier", "begin_setup", "end_setup", "finalize"),
}


def add_cache(worker: Worker, table: int, cache: DeviceRows) -> None:
    """A worker's cache of the table with this first key, in place of an earlier one."""
    if not worker._caches:
        _replace_calls(worker)
    worker._caches[table] = cache


def _replace_calls(worker: Worker) -> None:
    me = weakref.ref(worker)  # the worker refers to these functions
    for act, names in _BEFORE.items():
        for name in names:
            setattr(worker, name, _first(me, name, act))
    setattr(worker, "advance_clock", _advancing(me))  # noqa: B010
    setattr(worker, "close", _closing(me))  # noqa: B010


def _first(me: weakref.ref[Worker], name: str, act: str) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        worker = me()
        assert worker is not None
        worker._settle(act)
        return getattr(Worker, name)(worker, *given, **named)

    return call


def _advancing(me: weakref.ref[Worker]) -> Callable[[], int]:
    def advance_clock() -> int:
        worker = me()
        assert worker is not None
        clock = Worker.advance_clock(worker)
        for cache in worker._caches.values():
            cache.advance()
        return clock

    return advance_clock


def _closing(me: weakref.ref[Worker]) -> Callable[[], None]:
    def close() -> None:
        worker = me()
        assert worker is not None
        try:
            worker._settle("flush")
        except Error:
            pass  # as for a worker that is closed without finalize after an error
        worker._caches.clear()
        Worker.close(worker)

    return close

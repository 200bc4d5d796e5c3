"""The asynchronous saves of a Store: one at a time, each with its own memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from . import _core, tensors
from .errors import ClosedError, InvalidError

_ALIGNMENT = 4096


@dataclass(frozen=True)
class Snapshot:
    """How an asynchronous save captures the state at the call."""

    how: str | None = None  # "copy": host memory is copied, also where that seems unneeded
    room: int = 256 << 20  # bytes of host memory for copies; the rest is written before it returns
    gpu_reserve: float = 0.1  # of each device's memory (from 1 on: bytes), not to be used

    def check(self) -> None:
        """Raises an error if the arguments are invalid."""
        if self.how not in (None, "copy"):
            raise InvalidError(f"snapshot={self.how!r}: expected None or 'copy'")


class Pending(Protocol):
    """A save in the background."""

    def done(self) -> bool:
        """Whether it has ended, successfully or not."""

    def _settle(self) -> None:
        """Waits until it ends; raises a failure that has not been reported yet."""


class PendingSaves:
    """Starts saves in the background, at most one at a time, for any number of threads.

    A thread calls `settle`, `start` and `add` in one `turn`. The lock is reentrant for signal
    handlers, which may save in between: then there are two saves, each with a separate arena, and
    both are waited for.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._turn = threading.RLock()  # over all below
        self._pending: list[tuple[Pending, _core.Memory | None]] = []
        self._spare: _core.Memory | None = None  # the arena of a save that has ended
        self._closed = False

    @property
    def pending(self) -> list[Pending]:
        """Saves that have not been waited for yet."""
        return [save for save, _ in self._pending]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Prevents other threads from starting a save and from closing."""
        if os.getpid() != self._pid:  # the core refuses to save, and the lock may be held
            yield
            return
        with self._turn:
            yield

    def settle(self) -> None:
        """Waits until nothing is pending; raises each failure once."""
        if os.getpid() != self._pid:  # forked: the save is the parent's, and the lock may be held
            return
        with self._turn:
            while self._pending:
                entry = self._pending[0]
                try:
                    entry[0]._settle()
                except Exception:
                    if entry[0].done():  # else it is an interruption
                        self._forget(entry)
                    raise
                self._forget(entry)

    def close(self) -> None:
        """Settles; no save can be started afterwards."""
        if os.getpid() != self._pid:
            return
        failure: Exception | None = None
        with self._turn:
            self._closed = True
            while True:
                try:
                    self.settle()
                    break
                except Exception as error:
                    failure = failure or error
                    if self._pending and not self._pending[0][0].done():
                        break
            self._spare = None
        if failure is not None:
            raise failure

    def start(
        self,
        store: _core.Store,
        name: str,
        given: tuple[list[str], list[Any]],
        options: _core.Options,
        snapshot: Snapshot,
    ) -> tuple[_core.Ticket, _core.Batch, _core.Memory | None]:
        """Starts a save of tensors (names and values) as they are now, in this thread's turn.
        Returns the arena to `add`."""
        if self._closed:
            raise ClosedError("the store is closed")
        names, values = given
        taken, on_device = tensors.snapshot(values, snapshot.gpu_reserve)
        batch = _core.Batch(names, taken)
        copy = snapshot.how == "copy"
        flags = bytearray(b"\1" * len(batch) if copy else tensors.hold(batch, values))
        for i, late in on_device.items():
            flags[i] = late
        arena: _core.Memory | None = None
        try:
            if not any(flags):
                return store.save_start(name, batch, options), batch, None
            sizes = (n for i, n in enumerate(batch.sizes()) if flags[i] and i not in on_device)
            need = sum((size + 63) // 64 * 64 for size in sizes)
            arena = self._take(max(min(need, snapshot.room), 1), snapshot.room)
            return store.save_copy(name, batch, options, bytes(flags), arena), batch, arena
        except BaseException:
            if arena is not None:
                self._spare = arena
            batch.release(0, len(batch))
            tensors.release_soon()
            raise

    def add(self, save: Pending, arena: _core.Memory | None) -> None:
        """Registers a started save, which reads the arena until it ends."""
        self._pending.append((save, arena))

    def _take(self, size: int, limit: int) -> _core.Memory:
        """The spare arena, or a new one if it is too small or larger than allowed."""
        arena, self._spare = self._spare, None
        if arena is None or len(arena) < size or len(arena) > limit:
            del arena  # before the next one is allocated
            arena = _core.allocate(size, _ALIGNMENT)
        return arena

    def _forget(self, entry: tuple[Pending, _core.Memory | None]) -> None:
        if entry not in self._pending:  # a signal handler has waited for it
            return
        self._pending.remove(entry)
        if entry[1] is not None:
            self._spare = entry[1]

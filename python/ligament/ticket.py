"""The result of an asynchronous call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import _core, tensors

T = TypeVar("T")


class Ticket(Generic[T]):
    """An operation that runs in the background."""

    def __init__(
        self, inner: _core.Ticket, finish: Callable[[], T], watcher: threading.Thread
    ) -> None:
        self._inner = inner
        self._finish = finish
        self._watcher = watcher
        self._heard = False  # a failure has been raised to a caller

    def done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._inner.done()

    def result(self, timeout: float | None = None) -> T:
        """Waits (seconds; None: no limit) and returns the result of the call; raises its error."""
        try:
            self._inner.wait(timeout)
        except BaseException:
            self._heard = self._inner.done()
            raise
        return self._finish()

    def _settle(self) -> None:
        """Waits, also for the watcher thread; raises a failure that has not been reported yet."""
        failure: Exception | None = None
        try:
            self._inner.wait()
        except Exception as error:
            if not self._inner.done():  # raised by a signal handler
                raise
            failure = error
        self._watcher.join()
        if failure is not None and not self._heard:
            self._heard = True
            raise failure

    def cancel(self) -> None:
        """Asks it to stop; it then ends with ClosedError unless it was past its commit point."""
        self._inner.cancel()

    def __repr__(self) -> str:
        return f"<ligament.Ticket {'done' if self.done() else 'running'}>"


_STEP_BYTES = 4 << 20


def release_when_done(
    ticket: _core.Ticket, batch: _core.Batch, after: Callable[[], Any]
) -> threading.Thread:
    """Releases each tensor's snapshot soon after its bytes are gathered, and calls `after` on
    success. The thread is not a daemon: a process that ends waits for its save."""
    thread = threading.Thread(
        target=release_all, args=(ticket, batch, after), name="ligament-release"
    )
    thread.start()
    return thread


def release_all(ticket: _core.Ticket, batch: _core.Batch, after: Callable[[], Any]) -> None:
    """Does the work of `release_when_done` on this thread; does not raise failures."""
    sizes = batch.sizes()
    count, released = len(sizes), 0
    try:
        while released < count:
            ahead, step = released, 0
            while ahead < count - 1 and step + sizes[ahead] < _STEP_BYTES:
                step += sizes[ahead]
                ahead += 1
            done = min(ticket.progress(ahead), count)
            if done <= ahead:  # it ended early
                break
            batch.release(released, done)
            tensors.release_soon()
            released = done
        ticket.wait()
        after()
    except Exception:  # waiting for the ticket raises it
        pass
    finally:
        batch.release(released, count)
        tensors.release_soon()

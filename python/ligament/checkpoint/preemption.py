"""Preemption: a signal to one process that all processes of a job act on together."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any

from ..errors import InvalidError, PeerError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_GRACE_S = 5.0


class Preemption:
    """Handles the signals; previously installed handlers are still called."""

    def __init__(self) -> None:
        self._seen = threading.Event()
        if threading.current_thread() is not threading.main_thread():
            raise InvalidError(
                "call preempted() in the main thread first: only it receives signals"
            )
        for number in SIGNALS:
            self._listen(number)

    def _listen(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)

        def handler(signum: int, frame: FrameType | None) -> None:
            self._seen.set()
            if callable(before):
                before(signum, frame)

        signal.signal(number, handler)

    def here(self) -> bool:
        """Whether this process received the signal."""
        return self._seen.is_set()


class CollectiveFlag:
    """Whether any process received the signal, with the same result on all ranks at the same call.

    Each call starts a sum over all ranks and returns the result of the one that the previous call
    started, which had a whole training step to arrive: no rank waits, and the results cannot
    differ. The result is therefore one call late, and one sum is in flight after the last call.
    `settle` waits for it: torch aborts a process that exits before.
    """

    def __init__(self, timeout: float) -> None:
        import torch.distributed as dist

        self._dist = dist
        # A separate group: gloo works next to any other backend, and its messages must not mix with
        # those of training.
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=max(timeout, 1.0)))
        self._pending: tuple[Any, Any] | None = None
        self._stopped = False

    def any(self, here: bool) -> bool:
        """Called by every rank; True from the same call on, on all ranks."""
        import torch

        if self._stopped:
            return True
        told = torch.tensor([int(here)], dtype=torch.int32)
        try:
            before, self._pending = self._pending, None
            work = self._dist.all_reduce(told, group=self._group, async_op=True)
            if before is None:  # the first call has no result yet
                work.wait()
                self._stopped = bool(told.item())
                told, work = torch.zeros(1, dtype=torch.int32), None
            else:
                if before[0] is not None:
                    before[0].wait()
                self._stopped = bool(before[1].item())
            self._pending = (work, told)
            if self._stopped:
                self.settle()
        except RuntimeError as error:
            raise PeerError(f"cannot ask all ranks whether to stop: {error}") from None
        return self._stopped

    def settle(self) -> None:
        """Waits for the sum in flight. Ranks that continue together have started theirs, or soon
        will; a rank that failed may never start it, and must not delay the others."""
        before, self._pending = self._pending, None
        if before is not None and before[0] is not None:
            with suppress(RuntimeError):
                before[0].wait(timedelta(seconds=_GRACE_S))

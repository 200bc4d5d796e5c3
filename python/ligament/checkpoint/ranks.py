"""Messages between the processes of a job: what each rank holds, and results.

Everything goes through the job's own rendezvous store (torch.distributed's), as JSON under keys
that start with the number of the call. Rank 0 gathers and answers; a rank that fails sends the
error instead of its message, and rank 0 reports it to all. Every wait has a deadline, and ends
early if the awaited process is on this host and has ended.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from .. import errors
from ..errors import Error, PeerError, TimeoutError

_LOOK_S = 0.3  # how often the awaited process is checked
_FAST_S = 0.01  # the longest pause between two polls
_LEAVE_S = 5.0  # how long rank 0 waits for ranks that have not received the result
_numbers = itertools.count()


def job() -> tuple[Any, int, int] | None:
    """The store, rank and size of the torch.distributed job of this process."""
    import sys

    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    store = dist.distributed_c10d._get_default_store()
    return store, dist.get_rank(), dist.get_world_size()


def packed(error: BaseException) -> dict[str, Any]:
    """An exception as a message."""
    return {"error": [type(error).__name__, str(error)]}


def raised(message: Any, rank: int | None = None) -> Error:
    """The exception in a message; with a rank, one that names it."""
    kind, text = message["error"]
    found = getattr(errors, str(kind), None)
    if not (isinstance(found, type) and issubclass(found, Error)):
        found, text = Error, f"{kind}: {text}"
    error: Error = found(text if rank is None else f"rank {rank}: {text}")
    return error


def _process() -> list[Any]:
    """Identifies this process on its host, and the host."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            host = file.read().strip()
        return [f"{host}/{os.readlink('/proc/self/ns/pid')}", os.getpid(), _began(os.getpid())]
    except OSError:
        return ["", os.getpid(), None]


def _began(pid: int) -> str | None:
    """The start time of the process; None if it does not exist, or has ended and was not reaped
    yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Ranks:
    """The processes that write one checkpoint together."""

    advice = (
        "every rank calls save and restore, in the same order (distributed=False: this process "
        "alone)"
    )

    def __init__(
        self, timeout: float, found: tuple[Any, int, int], prefix: str | None = None
    ) -> None:
        base, self.rank, self.size = found
        self.timeout = timeout
        self._base = base  # holds a reference: the job's store may be served by this process
        self._prefix = prefix or f"ligament/checkpoint/{next(_numbers)}"
        self._store = self._own(base)
        self._processes: dict[int, list[Any]] = {}
        self._me = _process()
        self._seen: dict[int, float] = {}

    def _own(self, base: Any) -> Any:
        """A separate connection if possible: waiting must not block training."""
        import torch.distributed

        dist: Any = torch.distributed
        try:
            base = base.clone()
        except (AttributeError, RuntimeError, NotImplementedError):
            pass
        return dist.PrefixStore(self._prefix, base)

    # --- messages -------------------------------------------------------------------------------

    def put(self, key: str, message: Any) -> None:
        """Sends a message; it can be read until it is dropped."""
        try:
            self._store.set(key, json.dumps(message, separators=(",", ":")).encode())
        except RuntimeError as error:
            raise _lost(error) from None

    def drop(self, *keys: str) -> None:
        """Removes messages. A message that cannot be removed wastes only a few bytes."""
        for key in keys:
            try:
                self._store.delete_key(key)
            except (RuntimeError, NotImplementedError):
                return

    def get(self, key: str, rank: int, what: str, end: float | None = None) -> Any:
        """Waits for the message of `rank` under the key; `what` completes the error message if it
        does not arrive."""
        end, pause = end or time.monotonic() + self.timeout, 0.0002
        while not self._has(key):
            if time.monotonic() > end:
                raise self._late(rank, what)
            self._look(rank, what)
            time.sleep(pause)
            pause = min(pause * 1.4, _FAST_S)
        return self._read(key, rank)

    def _has(self, *keys: str) -> bool:
        try:
            return bool(self._store.check(list(keys)))
        except RuntimeError as error:
            raise _lost(error) from None

    def _read(self, key: str, rank: int) -> Any:
        try:
            return json.loads(self._store.get(key))
        except ValueError:
            raise PeerError(f"rank {rank} sent an invalid message") from None
        except RuntimeError as error:
            raise _lost(error) from None

    def _late(self, rank: int, what: str) -> Error:
        return TimeoutError(f"rank {rank} did not {what} within {self.timeout:g} s; {self.advice}")

    def _look(self, rank: int, what: str) -> None:
        """Raises if the awaited process is on this host and has ended."""
        now = time.monotonic()
        if now - self._seen.get(rank, 0.0) < _LOOK_S:
            return
        self._seen[rank] = now
        if rank not in self._processes and self._has(f"here/{rank}"):
            message = self._read(f"here/{rank}", rank)
            if "error" in message:
                raise raised(message, rank)
            self._processes[rank] = message["process"]
        process = self._processes.get(rank)
        if process and process[0] == self._me[0] and _began(process[1]) != process[2]:
            raise PeerError(f"rank {rank} is lost: its process ended before it could {what}")

    # --- calls ----------------------------------------------------------------------------------

    def arrive(self, error: BaseException | None) -> None:
        """Reports that this rank is ready, or why it is not; every rank calls it."""
        self.put(f"here/{self.rank}", {"process": self._me} if error is None else packed(error))

    def all_here(self) -> None:
        """Raises the error that kept a rank from opening the store."""
        for rank in range(self.size) if self.rank == 0 else (0,):
            message = self.get(f"here/{rank}", rank, "make its Checkpointer")
            if "error" in message:
                raise raised(message, rank)
            self._processes[rank] = message["process"]

    def gather(self, number: int, name: str, what: str) -> list[Any]:
        """At rank 0: the messages of all ranks under this name. Raises the first failure."""
        found: dict[int, Any] = {}
        end, pause = time.monotonic() + self.timeout, 0.0002
        while len(found) < self.size:
            missing = [rank for rank in range(self.size) if rank not in found]
            if self._has(*(f"{number}/{name}/{rank}" for rank in missing)):
                there = missing
            elif pause < _FAST_S:  # usually all of them: one request
                there = []
            else:
                there = [rank for rank in missing if self._has(f"{number}/{name}/{rank}")]
            for rank in there:
                found[rank] = self._read(f"{number}/{name}/{rank}", rank)
                if "error" in found[rank]:
                    raise raised(found[rank], rank)
            missing = [rank for rank in missing if rank not in found]
            for rank in missing:
                self._look(rank, what)
            if missing and time.monotonic() > end:
                raise self._late(missing[0], what)
            time.sleep(pause if missing else 0)
            pause = min(pause * 1.4, _FAST_S)
        return [found[rank] for rank in range(self.size)]

    def tell(self, number: int, name: str, message: Any) -> None:
        """Sends this rank's message under a name."""
        self.put(f"{number}/{name}/{self.rank}", message)

    def answer(self, number: int, name: str, make: Callable[[], list[Any]]) -> Any:
        """At rank 0: answers each rank with the result of `make` for it, or all with its failure,
        which is then returned."""
        try:
            messages = make()
        except Exception as error:
            self.answer_all(number, name, packed(error))
            return packed(error)
        for rank, message in enumerate(messages):
            self.put(f"{number}/{name}/{rank}", message)
        return None

    def answer_all(self, number: int, name: str, message: Any) -> None:
        """At rank 0: sends the same answer to all ranks."""
        for rank in range(self.size):
            self.put(f"{number}/{name}/{rank}", message)

    def heard(self, number: int, name: str, what: str, grace: float) -> Any:
        """The answer of rank 0; raises the error in it. Rank 0 may itself wait for others first:
        `grace` is how much longer than rank 0 this rank waits."""
        end = time.monotonic() + self.timeout + grace
        message = self.get(f"{number}/{name}/{self.rank}", 0, what, end)
        if "error" in message:
            raise raised(message)
        return message

    def leave(self, number: int) -> None:
        """Called by every rank at the end of a call. Rank 0 may serve the job's store and be about
        to end its process: it waits until all live ranks have received the result."""
        try:
            self.tell(number, "heard", {})
            if self.rank == 0:
                self._stay(number)
                self.forget(number, "heard")
        except Error:
            pass  # without a store no rank can be notified

    def _stay(self, number: int) -> None:
        waiting = set(range(self.size))
        end, pause = time.monotonic() + _LEAVE_S, 0.0002
        while waiting and time.monotonic() < end:
            if self._has(*(f"{number}/heard/{rank}" for rank in waiting)):
                return
            for rank in list(waiting) if pause >= _FAST_S else ():
                try:
                    self._look(rank, "hear")
                except Error:
                    waiting.discard(rank)
            time.sleep(pause)
            pause = min(pause * 1.4, _FAST_S)

    def forget(self, number: int, *names: str) -> None:
        """At rank 0: removes all messages of a call."""
        self.drop(*(f"{number}/{name}/{rank}" for name in names for rank in range(self.size)))


class Alone(Ranks):
    """A single process that has distributed tensors: it needs no store for its messages."""

    def __init__(self, timeout: float) -> None:
        self.rank, self.size, self.timeout = 0, 1, timeout
        self._said: dict[str, Any] = {}

    def put(self, key: str, message: Any) -> None:
        """Sends a message; it can be read until it is dropped."""
        self._said[key] = message

    def drop(self, *keys: str) -> None:
        """Removes messages."""
        for key in keys:
            self._said.pop(key, None)

    def _has(self, *keys: str) -> bool:
        return all(key in self._said for key in keys)

    def _read(self, key: str, rank: int) -> Any:
        return self._said[key]

    def _look(self, rank: int, what: str) -> None:
        """The process is alive."""

    def arrive(self, error: BaseException | None) -> None:
        """Nothing to wait for."""

    def all_here(self) -> None:
        """Nothing to check."""


def _lost(error: BaseException) -> PeerError:
    return PeerError(f"lost the job's rendezvous store: {error}")

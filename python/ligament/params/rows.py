"""Workers: a thread's access to the rows."""

from __future__ import annotations

import itertools
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core, tensors
from ..errors import InvalidError, UnsupportedError
from ..ticket import Ticket

if TYPE_CHECKING:
    from .node import Server


class Request(int, Ticket[None]):
    """An operation in flight; its number is its timestamp. -1: all rows were local, and it is
    done."""

    def __new__(cls, number: int, worker: Worker | None) -> Request:
        return int.__new__(cls, number)

    def __init__(self, number: int, worker: Worker | None) -> None:
        self._worker = worker

    def done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._worker is None or self._worker.is_finished(self)

    def result(self, timeout: float | None = None) -> None:
        """Waits (seconds; None: as long as the other nodes are alive) and raises the error of the
        operation."""
        if self._worker is not None:
            self._worker.wait(self, None if timeout is None else timeout * 1000)

    def cancel(self) -> None:
        """Not supported: requested rows arrive, and a push cannot be undone."""
        if not self.done():
            raise UnsupportedError("an access to rows cannot be cancelled; wait for it")

    def __repr__(self) -> str:
        return f"<ligament request {int(self)}>"


LOCAL = Request(-1, None)
_made = itertools.count()


class Worker(_core.ParamsWorker):
    """One worker of a node; only one thread at a time may use it. `pull`, `push`, `set`, `intent`
    and the other calls that this class does not define are those of the extension."""

    def __init__(self, worker_id: int, server: Server) -> None:
        if not isinstance(getattr(server, "num_threads", None), int):
            raise TypeError(f"expected a params.Server, not {server!r:.80}")
        if not 0 <= worker_id < server.num_threads:
            raise InvalidError(
                f"invalid worker {worker_id}: params.setup declared {server.num_threads} "
                f"threads per node, so workers are 0 to {server.num_threads - 1}"
            )
        self._server = server
        self._id = worker_id
        self._thread = threading.get_ident()
        self._made = next(_made)
        self._caches: dict[Any, Any] = {}  # of params.torch: rows on a device
        server._core.attach(self, worker_id, Request, LOCAL)
        server._workers.add(self)

    def get(self, keys: Any) -> Any:
        """The rows as an array (n, length), flat if their lengths differ; a torch tensor if the
        keys are one."""
        elements = self.elements(keys)
        count = keys.numel() if hasattr(keys, "numel") else _count(keys)
        shape: tuple[int, ...] = (elements,)
        if self._server._uniform(keys, count, elements):
            shape = (count, elements // count if count else self._server._first_length)
        torch = tensors.is_loaded("torch") and tensors.framework_of(keys) == "torch"
        adapter = tensors.framework("torch" if torch else "numpy")
        values = adapter.result(adapter.empty(self._server._code, shape), None)
        self.pull(keys, values)
        return values

    def _settle(self, act: str) -> None:
        """Applies `flush`, `refresh` or `forget` to the rows that are cached on devices."""
        for cache in self._caches.values():
            getattr(cache, act)()

    def get_key_size(self, key: int = 0) -> int:
        """Elements of a key's row."""
        length = self._server._core.length(key)
        if length == 0:
            raise InvalidError(f"key {key} is out of range: keys are 0 to {self.num_keys - 1}")
        return length

    @property
    def num_keys(self) -> int:
        """The number of keys; hashed: the maximum."""
        return self._server.num_keys

    @property
    def server(self) -> Server:
        """The node of this worker."""
        return self._server

    def close(self) -> None:
        """Releases the worker without waiting. Call `finalize` first, unless an error occurred."""
        self._close()
        self._server._workers.discard(self)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finalize()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<ligament.params.Worker {self._id} of {self._server!r}>"


def _count(keys: Any) -> int:
    if isinstance(keys, int):
        return 1
    size = getattr(keys, "size", None)
    return int(size) if isinstance(size, int) else len(keys)

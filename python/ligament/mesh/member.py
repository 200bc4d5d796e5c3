"""One member of a mesh: a worker, a server or the scheduler."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from operator import index
from types import TracebackType
from typing import Any, NamedTuple

from .. import _core, environment, tensors
from ..arguments import nanoseconds
from ..errors import InvalidError, NoMemoryError, PeerError, TimeoutError, UnsupportedError
from ..plural import count
from ..tensors.dtypes import BYTES
from ..ticket import Ticket

ROLES = ("worker", "server", "scheduler")
_STATES = ("awaited", "alive", "lost", "stopped")
_MODES = {"all": 0, "any": 1}
_REMEMBERED = 1024  # LIG_MESH_REQUESTS_MAX
_HAS_SCHEDULER, _TRUSTED_FABRIC, _ANY_DEVICE = 1, 2, 4  # LIG_MESH_*
_GRAPH = 1 << 62  # in the handlers of captured calls
_SENT_MS = 1000.0
_ANSWER_MS = 10000.0


class _Names(dict[int, tuple[str, ...]]):
    """Generated names, by number, for tensors without names."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def __missing__(self, count: int) -> tuple[str, ...]:
        self[count] = tuple(f"{self.what} tensor {i}" for i in range(count))
        return self[count]

    def check(self, listed: Any) -> None:
        """Rejects a single tensor: it is not a list of its rows."""
        if hasattr(listed, "shape") or not hasattr(listed, "__len__"):
            raise InvalidError(
                f"expected a list of {self.what} tensors, not one {type(listed).__qualname__}"
            )


_PUSH, _PULL, _RESPONSE = _Names("push"), _Names("pull"), _Names("response")


class Member(NamedTuple):
    """The description of a member."""

    role: str
    rank: int
    host: str
    state: str  # awaited, alive, lost, stopped
    transport: str  # between it and this member; "" for none
    incarnation: int  # how many have had this rank so far


class Handler(int):
    """A request taken by a server, for `respond`. `worker` is the sender; `pulls` are (dtype name,
    shape) of the requested tensors."""

    worker: int
    pulls: list[tuple[str, tuple[int, ...]]]


class Request(int, Ticket[None]):
    """A request in flight; its number is the handler."""

    def __new__(cls, number: int, mesh: Mesh) -> Request:
        return int.__new__(cls, number)

    def __init__(self, number: int, mesh: Mesh) -> None:
        self._mesh = mesh

    def done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._mesh._core.done(self)

    def result(self, timeout: float | None = None) -> None:
        """Waits (seconds; None: as long as the servers are alive) and raises the error of the
        request."""
        self._mesh.wait(self, None if timeout is None else timeout * 1000)

    def cancel(self) -> None:
        """Cancels the request; `result` then raises ClosedError unless it was already answered."""
        self._mesh._core.cancel(self)

    def __repr__(self) -> str:
        return f"<ligament request {int(self)}>"


Arrival = tuple[Handler, list[Any], list[int]]


def _answers(values: Sequence[Any]) -> tuple[_core.Batch, int | None]:
    """The tensors of a response for the core, and the stream that orders those on a GPU."""
    placed = tensors.exchange(values, (), True)
    names = _RESPONSE[len(values)]
    if placed is None:
        return _core.Batch(names, values), None
    return _core.Batch(names, placed.push, False, True), placed.stream


class Mesh:
    """Workers push tensors to servers, which compute on them and fill the workers' pull tensors.

    Arguments that are None are taken from the environment: the variables of DMLC and STEPMESH,
    torchrun, Slurm or PBS. `scheduler=True`, in all members: the job has a scheduler, which runs
    the rendezvous. `trusted_fabric=True` (or LIGAMENT_TRUSTED_FABRIC=1): nobody else has
    access to the network between the hosts, so `transport="auto"` may use UCX, which does not
    encrypt, if both ends declare this and have an RDMA device ("any": any device of UCX). `device`
    is the device on which a server receives tensors that workers push from a GPU: "cuda:1", "cpu";
    None: torch's current GPU if torch has been imported and there is one. `timeout_ms` limits the
    wait for the other members; None: no limit. `ligament.mesh.init` creates the default mesh of the
    process.
    """

    def __init__(
        self,
        role: str | None = None,
        rank: int | None = None,
        workers: int | None = None,
        servers: int | None = None,
        address: str | None = None,
        group_size: int | None = 1,
        secret: str | bytes | None = None,
        transport: str = "auto",
        framework: str | None = None,
        timeout_ms: float | None = 60000,
        liveness_ms: float = 10000,
        spin_us: float = 20,
        receive_bytes: int = 4 << 30,
        scheduler: bool | None = None,
        trusted_fabric: bool | str | None = None,
        device: Any = None,
    ) -> None:
        trusted, any_device = environment.trusted_fabric(trusted_fabric)
        place = environment.place(role, rank, workers, servers, address, group_size)
        if scheduler is None:  # the arguments do not say whether there will be one
            scheduler = place.scheduler is True and place.source != "arguments"
        elif place.role == "scheduler" and not scheduler:
            raise InvalidError("this process is the scheduler, but scheduler=False")
        if receive_bytes < 1:
            raise InvalidError(f"receive_bytes={receive_bytes}: expected at least 1")
        if framework is not None:
            tensors.framework(framework)
        self._framework = framework
        self._kept: dict[int, tuple[Any, ...]] = {}
        self._lent: list[Any] = []
        self._streamed: deque[int] = deque()  # requests that streams wait for
        self._graphs: dict[int, tuple[Any, ...]] = {}  # what captured requests use
        self._role = place.role
        self._pid = os.getpid()
        self._place = place
        self._core = _core.Mesh(
            role=ROLES.index(place.role),
            rank=-1 if place.rank is None else place.rank,
            workers=place.workers,
            servers=place.servers,
            group_size=place.group_size,
            address=place.address,
            transport=transport,
            secret=environment.secret(secret),
            timeout_ns=nanoseconds(timeout_ms, "timeout_ms", 1, forever=True),
            liveness_ns=nanoseconds(liveness_ms, "liveness_ms", 1),
            spin_ns=nanoseconds(spin_us, "spin_us") or -1,
            receive_bytes=receive_bytes,
            host=place.host,
            flags=_HAS_SCHEDULER * scheduler | _TRUSTED_FABRIC * trusted | _ANY_DEVICE * any_device,
            device=self._receiving(device),
        )
        self._rank = self._core.rank
        self._finalizer = weakref.finalize(self, self._core.close)

    def _receiving(self, device: Any) -> int:
        """The number of the device that a server receives on; -1: host memory."""
        if self._role != "server" or str(device) == "cpu":
            return -1
        if device is None:
            return tensors.own_device() if self._framework in (None, "torch") else -1
        if self._framework not in (None, "torch"):
            raise InvalidError(f"device={device!r} is for framework='torch'")
        return tensors.device_number(device)

    # --- workers --------------------------------------------------------------------------------

    def push_pull(
        self,
        push_tensors: Sequence[Any],
        push_keys: Sequence[int],
        pull_tensors: Sequence[Any] = (),
        pull_keys: Sequence[int] = (),
        need_event: bool = True,
    ) -> Request:
        """Pushes the tensors to every server and requests each server's part of the pull tensors
        (server-major). They are in use until `wait`. With `need_event`, tensors on a GPU are read
        after the work queued on torch's current stream; without it, they must be ready. On a
        stream that is being captured into a CUDA graph, every replay makes the request; its `wait`
        must be captured as well."""
        if type(push_tensors) is not list:
            _PUSH.check(push_tensors)
        if type(pull_tensors) is not list:
            _PULL.check(pull_tensors)
        placed = tensors.exchange(push_tensors, pull_tensors, need_event)
        stream, pushed, pulled = None, push_tensors, pull_tensors
        if placed is not None:
            stream, pushed, pulled = placed.stream, placed.push, placed.pull
        on_device = placed is not None
        push = _core.Batch(_PUSH[len(push_tensors)], pushed, False, on_device)
        pull = _core.Batch(_PULL[len(pull_tensors)], pulled, True, on_device)
        kept = self._kept
        if self._streamed:
            self._sweep()
        number = self._core.push_pull(
            push, push_keys, pull, pull_keys, kept, (push, pull, pull_tensors, placed), stream
        )
        if number & _GRAPH:
            self._graphs[number] = kept.pop(number)
        if len(kept) > _REMEMBERED:  # what is so old has ended
            del kept[next(iter(kept))]
        return Request(number, self)

    def _sweep(self) -> None:
        """Releases the tensors of requests that streams waited for and that have ended."""
        while self._streamed and self._core.done(self._streamed[0]):
            self._kept.pop(self._streamed.popleft(), None)

    def _wait_on(self, handler: int, timeout_ms: float | None, stream: Any) -> None:
        on = tensors.stream_of(stream)
        kept = self._kept.get(handler)
        self._core.wait(handler, timeout_ms, on.cuda_stream)
        if handler in self._graphs:
            self._graphs[handler][3].filled(on)
            return
        if kept is not None:
            tensors.filled(kept[2])
            if kept[3] is not None:
                kept[3].filled(on)
            self._streamed.append(handler)
        self._sweep()

    def wait(self, handler: int, timeout_ms: float | None = 10000, *, stream: Any = None) -> None:
        """Waits until every server has responded; the pull tensors are then filled. With a stream
        (of torch, or the number of a CUstream) it returns at once if they are on a GPU: the stream
        waits instead, and work that is queued on it afterwards sees them filled. If the request
        fails, the stream continues, and the next push_pull or wait raises the error."""
        if stream is None and handler in self._graphs:
            stream = tensors.current_stream()
        if stream is not None:
            self._wait_on(handler, timeout_ms, stream)
            return
        try:
            self._core.wait(handler, timeout_ms)
        except BaseException:
            with contextlib.suppress(Exception):  # a closed mesh has released them
                if self._core.done(handler):  # otherwise it is still reading and writing them
                    self._kept.pop(handler, None)
            raise
        kept = self._kept.pop(handler, None)
        if kept is not None:
            tensors.filled(kept[2])
            if kept[3] is not None:
                kept[3].filled(None)

    def get_all_handlers(self, handler: int) -> list[int]:
        """The handler and the following numbers that belong to the same call; after the wait only
        the handler."""
        return self._core.handlers(handler)

    def fetch_trace(self, handler: int) -> list[int]:
        """Eight timestamps in nanoseconds: push_pull began, request posted, arrived in the server,
        taken by get_batch, respond began, response posted, arrived here, wait notified."""
        return self._core.trace(handler)

    # --- servers --------------------------------------------------------------------------------

    def get_batch(self, timeout_ms: float | None = None, mode: str = "all") -> list[Arrival]:
        """One request of every worker in order of rank ("all"), or of each worker that has one
        ("any"), as (handler, tensors, keys). A tensor does not change while it is referenced; one
        in a registered buffer or in shared memory does not change until its request is answered."""
        if mode not in _MODES:
            raise InvalidError(f"unknown mode {mode!r}: expected 'all' or 'any'")
        make = self._maker()
        batch: list[Arrival] = []
        for number, worker, items, keys, pulls in self._core.get_batch(timeout_ms, _MODES[mode]):
            handler = Handler(number)
            handler.worker = worker
            handler.pulls = [(tensors.name_of(code), shape) for _, code, shape in pulls]
            made = [make(tensors.Fresh(code, shape, memory), None) for memory, code, shape in items]
            batch.append((handler, made, keys))
        return batch

    def _maker(self) -> Callable[[tensors.Fresh, Any], Any]:
        """Creates tensors of the requested framework. Without a request, a framework that is merely
        imported must not limit the dtypes that can arrive."""
        make: Callable[[tensors.Fresh, Any], Any]
        make = tensors.framework(self._framework or self._loaded()).result
        if self._framework is not None or self._loaded() == "numpy":
            return make
        plain = tensors.framework("numpy").result

        def either(fresh: tensors.Fresh, device: Any) -> Any:
            try:
                return make(fresh, device)
            except UnsupportedError:
                return plain(fresh, device)

        return either

    @staticmethod
    def _loaded() -> str:
        return "torch" if tensors.is_loaded("torch") else "numpy"

    def respond(self, tensors: Sequence[Any], handler: int, need_event: bool = False) -> None:
        """Answers a request: the i-th tensor fills the worker's i-th pull tensor. When it returns,
        the tensors may be overwritten (after a second without progress they are only kept alive
        until they are sent). Tensors on a GPU are read after what is queued on torch's current
        stream, and may be overwritten by what is queued on it later; `need_event` has no effect. On
        a stream that is being captured into a CUDA graph, every replay answers the oldest request
        of the same worker that was taken and not answered."""
        if type(tensors) is not list:
            _RESPONSE.check(tensors)
        batch, stream = _answers(tensors)
        if not self._core.respond(batch, handler, _SENT_MS, stream):
            self._keep(batch)

    def respond_vec(
        self, ret_buffer: Any, tensors_vec: Sequence[Any], handler_vec: Sequence[int]
    ) -> None:
        """Answers requests of one pull each with the first rows of a buffer, as many as the tensor
        at the same position has. Tries all of them, then raises the first failure."""
        if len(tensors_vec) != len(handler_vec):
            tensors = count(len(tensors_vec), "tensor")
            raise InvalidError(f"{tensors} for {count(len(handler_vec), 'handler')}")

        rows = [int(one.shape[0]) for one in tensors_vec]
        batch, stream = _answers([ret_buffer])
        sent = False
        try:
            sent = self._core.respond_rows(batch, rows, handler_vec, _SENT_MS, stream)
        finally:
            if not sent:
                self._keep(batch)

    def refuse(self, handler: int, reason: str) -> None:
        """Answers a request with an error: the worker's wait raises `UnsupportedError`."""
        self._core.refuse(handler, 10, reason)

    def _keep(self, batch: _core.Batch) -> None:
        if self._core.settle(0):
            self._lent.clear()
        else:
            self._lent.append(batch)

    def register_recv_buffer(
        self, tensor: Any, worker_ranks: Sequence[int], push_keys: Sequence[int]
    ) -> None:
        """Makes the i-th equal slice of the tensor the receive buffer for that worker and key."""
        placed = tensors.exchange((), [tensor], False)
        if placed is not None and placed.spare:
            raise InvalidError("a receive buffer on a GPU must be contiguous")
        values = [tensor] if placed is None else placed.pull
        batch = _core.Batch(("tensor",), values, True, placed is not None)
        self._core.register(batch, worker_ranks, push_keys)

    # --- all ------------------------------------------------------------------------------------

    def barrier(
        self,
        include_server: bool = True,
        include_worker: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Waits until all members of these roles have called it."""
        self._core.barrier(int(include_server) | int(include_worker) << 1, timeout_ms)

    def empty(self, shape: Sequence[int] | int, dtype: Any = "float32", device: Any = None) -> Any:
        """A tensor in shared memory: pushing it on one host copies nothing. On a GPU (`device`:
        "cuda") the same holds for servers on that GPU, which also fill it directly."""
        try:
            sizes = tuple(shape)  # type: ignore[arg-type]
        except TypeError:  # a single tensor: nothing else distinguishes it from an array of sizes
            sizes = (shape,)  # type: ignore[assignment]
        sizes = tuple(map(index, sizes))
        code = tensors.code_of_any(dtype)
        count = 1
        for size in sizes:
            if size < 0:
                raise InvalidError(f"the shape {sizes} has a negative size")
            count *= size
        if count * BYTES[code] >= 2**63:
            raise NoMemoryError(f"a tensor of shape {sizes} exceeds the address space")
        if device is not None and str(device) != "cpu":
            number = tensors.device_number(device)
            memory = self._core.empty_on(count * BYTES[code], number)
            return tensors.framework("torch").result(tensors.Fresh(code, sizes, memory), None)
        memory = self._core.empty(count * BYTES[code])
        adapter = tensors.framework(self._framework or self._loaded())
        return adapter.result(tensors.Fresh(code, sizes, memory), None)

    def members(self) -> list[Member]:
        """Servers by rank, then workers, then the scheduler."""
        return [
            Member(ROLES[role], rank, host, _STATES[state], transport, incarnation)
            for role, rank, host, state, transport, incarnation in self._core.members()
        ]

    def trace_to(self, path: str | os.PathLike[str] | None) -> None:
        """Records every request in a file in this folder from now on; None stops. `ligament trace`
        merges the files of all members into one timeline."""
        self._core.trace_to(None if path is None else os.fspath(path))

    def fileno(self) -> int:
        """For select and similar: readable when get_batch(0) or a request's done() should be
        called."""
        return self._core.fileno()

    def stats(self) -> dict[str, int]:
        """Statistics of this member."""
        return self._core.stats()

    @property
    def role(self) -> str:
        """ "worker", "server" or "scheduler"."""
        return self._role

    @property
    def rank(self) -> int:
        """Within the role."""
        return self._rank

    @property
    def workers(self) -> int:
        """The number of groups of workers, from which `get_batch` returns requests."""
        return self._place.workers

    @property
    def servers(self) -> int:
        """The number of groups of servers; a pull list has a part for each."""
        return self._place.servers

    @property
    def group_size(self) -> int:
        """The number of processes in a group."""
        return self._place.group_size

    def stop(self, timeout_ms: float | None = None) -> None:
        """Leaves after finishing the requests in flight, within ten seconds if no time is given.
        The process that runs the rendezvous serves until all have stopped or are lost."""
        began = time.monotonic()
        try:
            settled = self._core.settle(_ANSWER_MS if timeout_ms is None else timeout_ms)
            if timeout_ms is not None:
                timeout_ms = max(0.0, timeout_ms - (time.monotonic() - began) * 1000)
            self._core.linger(timeout_ms)
        finally:
            self.close()
        if not settled:
            raise TimeoutError("requests were outstanding when the mesh was stopped")

    def close(self) -> None:
        """Leaves immediately."""
        self._finalizer()
        self._kept.clear()
        self._graphs.clear()
        self._lent.clear()

    def __enter__(self) -> Mesh:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._finalizer.alive:
            self.stop()
        else:
            self.close()

    def __repr__(self) -> str:
        state = "" if self._finalizer.alive else ", closed"
        place = self._place
        return (
            f"<ligament.Mesh {self._role} {self._rank} of {count(place.workers, 'worker')} "
            f"and {count(place.servers, 'server')} at {place.address}{state}>"
        )


__all__ = ["Handler", "Member", "Mesh", "PeerError", "Request"]

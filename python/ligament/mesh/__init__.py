"""Workers and servers: the default mesh of this process. Use `ligament.Mesh` for more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import _core
from ..errors import ClosedError, ExistsError
from .member import Arrival, Handler, Member, Mesh, Request

__all__ = [
    "Handler",
    "Member",
    "Mesh",
    "Request",
    "barrier",
    "empty",
    "fetch_trace",
    "fileno",
    "get_all_handlers",
    "get_batch",
    "get_nanosecond",
    "init",
    "members",
    "push_pull",
    "refuse",
    "register_recv_buffer",
    "respond",
    "respond_vec",
    "stats",
    "stop",
    "trace_to",
    "wait",
]

_default: list[Mesh] = []


def __dir__() -> list[str]:
    return sorted(__all__)


def _mesh() -> Mesh:
    if not _default:
        raise ClosedError("this process has no mesh: call ligament.mesh.init() first")
    return _default[0]


def init(
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
    **more: Any,
) -> Mesh:
    """Joins as this process's default mesh; see `Mesh` for the arguments."""
    if _default and _default[0]._pid == os.getpid():
        raise ExistsError("this process already has a mesh (stop() it, or use ligament.Mesh)")
    _default[:] = [
        Mesh(
            role,
            rank,
            workers,
            servers,
            address,
            group_size,
            secret,
            transport,
            framework,
            timeout_ms,
            **more,
        )
    ]
    return _default[0]


def push_pull(
    push_tensors: Sequence[Any],
    push_keys: Sequence[int],
    pull_tensors: Sequence[Any] = (),
    pull_keys: Sequence[int] = (),
    need_event: bool = True,
) -> Request:
    """See `Mesh.push_pull`."""
    return _mesh().push_pull(push_tensors, push_keys, pull_tensors, pull_keys, need_event)


def wait(handler: int, timeout_ms: float | None = 10000, *, stream: Any = None) -> None:
    """See `Mesh.wait`."""
    _mesh().wait(handler, timeout_ms, stream=stream)


def get_batch(timeout_ms: float | None = None, mode: str = "all") -> list[Arrival]:
    """See `Mesh.get_batch`."""
    return _mesh().get_batch(timeout_ms, mode)


def respond(tensors: Sequence[Any], handler: int, need_event: bool = False) -> None:
    """See `Mesh.respond`."""
    _mesh().respond(tensors, handler, need_event)


def respond_vec(ret_buffer: Any, tensors_vec: Sequence[Any], handler_vec: Sequence[int]) -> None:
    """See `Mesh.respond_vec`."""
    _mesh().respond_vec(ret_buffer, tensors_vec, handler_vec)


def refuse(handler: int, reason: str) -> None:
    """See `Mesh.refuse`."""
    _mesh().refuse(handler, reason)


def barrier(
    include_server: bool = True, include_worker: bool = True, timeout_ms: float | None = None
) -> None:
    """See `Mesh.barrier`."""
    _mesh().barrier(include_server, include_worker, timeout_ms)


def register_recv_buffer(
    tensor: Any, worker_ranks: Sequence[int], push_keys: Sequence[int]
) -> None:
    """See `Mesh.register_recv_buffer`."""
    _mesh().register_recv_buffer(tensor, worker_ranks, push_keys)


def get_all_handlers(handler: int) -> list[int]:
    """See `Mesh.get_all_handlers`."""
    return _mesh().get_all_handlers(handler)


def fetch_trace(handler: int) -> list[int]:
    """See `Mesh.fetch_trace`."""
    return _mesh().fetch_trace(handler)


def get_nanosecond() -> int:
    """The clock of all timestamps."""
    return _core.nanosecond()


def stop(timeout_ms: float | None = None) -> None:
    """See `Mesh.stop`."""
    mesh = _mesh()
    _default.clear()
    mesh.stop(timeout_ms)


def members() -> list[Member]:
    """See `Mesh.members`."""
    return _mesh().members()


def empty(shape: Sequence[int] | int, dtype: Any = "float32", device: Any = None) -> Any:
    """See `Mesh.empty`."""
    return _mesh().empty(shape, dtype, device)


def trace_to(path: str | os.PathLike[str] | None) -> None:
    """See `Mesh.trace_to`."""
    _mesh().trace_to(path)


def fileno() -> int:
    """See `Mesh.fileno`."""
    return _mesh().fileno()


def stats() -> dict[str, int]:
    """See `Mesh.stats`."""
    return _mesh().stats()

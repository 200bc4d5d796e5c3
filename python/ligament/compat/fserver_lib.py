"""StepMesh's module on the mesh: everything is configured by DMLC_* and STEPMESH_* variables, one
role and one `init` a process. Tensors lie in host memory; `need_event` is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import mesh

__all__ = [
    "barrier",
    "fetch_trace",
    "get_all_handlers",
    "get_batch",
    "get_nanosecond",
    "init",
    "push_pull",
    "register_recv_buffer",
    "respond",
    "respond_vec",
    "stop",
    "wait",
]

# Flags that CUDA graphs and streams write and wait for.
_GPU_ONLY = {"SimpleNotify", "map_pinned_tensor", "seq_add_one", "wait_flag", "write_flag"}

get_nanosecond = mesh.get_nanosecond
get_all_handlers = mesh.get_all_handlers
fetch_trace = mesh.fetch_trace
register_recv_buffer = mesh.register_recv_buffer
respond_vec = mesh.respond_vec


def init() -> None:
    """Joins; returns when all are there. Tensors are torch's."""
    mesh.init(framework="torch", timeout_ms=600000)


def push_pull(
    push_tensors: Sequence[Any],
    push_keys: Sequence[int],
    pull_tensors: Sequence[Any],
    pull_keys: Sequence[int],
    need_event: bool = True,
) -> int:
    """Returns the handler."""
    return mesh.push_pull(push_tensors, push_keys, pull_tensors, pull_keys, need_event)


def wait(handler: int, timeout_ms: float = 10000) -> None:
    """Until every server has responded."""
    mesh.wait(handler, timeout_ms)


def get_batch() -> list[tuple[int, list[Any], list[int]]]:
    """One request of every worker, in order of rank."""
    return [(handler, tensors, keys) for handler, tensors, keys in mesh.get_batch()]


def respond(tensors: Sequence[Any], handler: int, need_event: bool = False) -> None:
    """Answers a request."""
    mesh.respond(tensors, handler, need_event)


def barrier(
    include_server: bool = True, include_client: bool = True, instance_barrier: bool = True
) -> None:
    """Until all of these roles have called it."""
    mesh.barrier(include_server, include_client)


def stop() -> None:
    """Leaves. A scheduler serves until all have stopped."""
    mesh.stop()


def __getattr__(name: str) -> Any:
    if name in _GPU_ONLY:
        raise AttributeError(f"fserver_lib.{name} is for CUDA graphs, which the mesh has not yet")
    raise AttributeError(f"module 'fserver_lib' has no attribute {name!r}")

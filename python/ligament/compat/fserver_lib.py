"""StepMesh's module, implemented by the mesh: everything is configured by DMLC_* and STEPMESH_*
variables, one role and one `init` per process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ligament import environment, host_secret, mesh
from ligament.errors import InvalidError
from ligament.mesh import device_flags

__all__ = [
    "SimpleNotify",
    "barrier",
    "fetch_trace",
    "get_all_handlers",
    "get_batch",
    "get_nanosecond",
    "init",
    "map_pinned_tensor",
    "push_pull",
    "register_recv_buffer",
    "respond",
    "respond_vec",
    "seq_add_one",
    "stop",
    "wait",
    "wait_flag",
    "write_flag",
]

get_nanosecond = mesh.get_nanosecond
get_all_handlers = mesh.get_all_handlers
fetch_trace = mesh.fetch_trace
register_recv_buffer = mesh.register_recv_buffer
respond_vec = mesh.respond_vec


def _device() -> str | None:
    """The GPU on which a server receives, as in StepMesh; None: torch's current one, if any."""
    gpu, torch = os.environ.get("STEPMESH_GPU", ""), sys.modules.get("torch")
    if torch is None or not gpu.isdecimal() or int(gpu) >= torch.cuda.device_count():
        return None
    return f"cuda:{int(gpu)}"


def init() -> None:
    """Returns when all members have joined. Tensors are torch's; servers receive those of GPUs on
    the one that STEPMESH_GPU names. A job without a secret at the address of a network interface of
    this host uses this user's secret."""
    secret = host_secret.for_address(environment.place().address)
    mesh.init(framework="torch", timeout_ms=600000, secret=secret, device=_device())


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
    """Waits until every server has responded."""
    mesh.wait(handler, timeout_ms)


def get_batch() -> list[tuple[int, list[Any], list[int]]]:
    """One request of every worker, in order of rank."""
    return [(handler, tensors, keys) for handler, tensors, keys in mesh.get_batch()]


def respond(tensors: Sequence[Any], handler: int, need_event: bool = False) -> None:
    """Answers a request."""
    mesh.respond(tensors, handler, need_event)


def barrier(
    include_server: bool = True,
    include_client: bool | None = None,
    instance_barrier: bool = True,
    *,
    include_worker: bool | None = None,
) -> None:
    """Waits until all members of these roles have called it. Workers are `include_client` in
    StepMesh's binding and `include_worker` in its README."""
    if None not in (include_client, include_worker) and include_client != include_worker:
        raise InvalidError(
            f"barrier: include_client={include_client} and include_worker={include_worker} are two "
            f"names of one argument (give one of them)"
        )
    workers = include_worker if include_client is None else include_client
    mesh.barrier(include_server, workers is not False)


def _stream() -> Any:
    """torch's current stream; None without a GPU."""
    cuda = sys.modules["torch"].cuda
    return cuda.current_stream() if cuda.is_initialized() else None


class SimpleNotify:
    """StepMesh's waits on CUDA streams: the current stream waits if tensors are on a GPU; otherwise
    the calling thread waits."""

    _batch: list[tuple[int, list[Any], list[int]]] | None = None

    def __init__(self) -> None:
        self._handlers: list[int] = []

    def init(self) -> None:
        """Does nothing."""

    def stream_wait_event(self, handler: int) -> None:
        """Waits for the request: the current stream does, for tensors on a GPU."""
        mesh.wait(handler, stream=_stream())
        self._handlers.append(handler)

    def wait_event_done(self) -> None:
        """Returns when the requests that streams wait for have been answered."""
        while self._handlers:
            mesh.wait(self._handlers.pop(0))

    def block_now_stream(self) -> None:
        """Does nothing: the other calls have already waited."""

    def block_now_stream_and_get_batch(self) -> None:
        """Takes a batch of requests."""
        self._batch = get_batch()

    def get_future_batch_data(self) -> list[tuple[int, list[Any], list[int]]]:
        """The batch that was taken, once."""
        if self._batch is None:
            raise InvalidError(
                "get_future_batch_data: no batch was taken "
                "(call block_now_stream_and_get_batch first)"
            )
        batch, self._batch = self._batch, None
        return batch


def stop() -> None:
    """Leaves. A scheduler serves until all have stopped."""
    mesh.stop()


def map_pinned_tensor(tensor: Any, device_index: int) -> Any:
    """The tensor in pinned host memory as a tensor on the GPU, in the same memory."""
    return device_flags.map_pinned(mesh._mesh(), tensor, device_index)


def write_flag(flag: Any, seq: Any) -> None:
    """The current stream writes the sequence number to the flag."""
    device_flags.write(mesh._mesh(), flag, seq)


def wait_flag(flag: Any, seq: Any) -> None:
    """The current stream waits until the flag is at least the sequence number. It also continues
    one second after a server is lost (on a server: the last worker), and after `stop`."""
    device_flags.wait(mesh._mesh(), flag, seq)


def seq_add_one(seq: Any) -> None:
    """The current stream adds 1 to the sequence number."""
    device_flags.add(mesh._mesh(), seq)

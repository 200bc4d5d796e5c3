"""One end of a ping-pong, for mesh.py: exchange.py CONTENDER END ADDRESS SIZES. The end `a` asks
and measures, `b` answers with as many bytes. Prints one line of JSON a size."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

Exchange = Callable[[np.ndarray, np.ndarray], None]
ROUNDS = {8: 3000, 4096: 3000, 65536: 1500, 1 << 20: 200, 64 << 20: 6}


def rounds(size: int) -> int:
    """The number of exchanges of a size."""
    return ROUNDS[size] + ROUNDS[size] // 10 + 1


def measure(sizes: list[int], exchange: Exchange) -> None:
    """The requesting end."""
    for size in sizes:
        out, back = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        times = []
        for _ in range(rounds(size)):
            start = time.perf_counter_ns()
            exchange(out, back)
            times.append(time.perf_counter_ns() - start)
        assert back[-1] == 1
        times = sorted(times[-ROUNDS[size] :])
        row = {
            "bytes": size,
            "p50_us": times[len(times) // 2] / 1e3,
            "p99_us": times[len(times) * 99 // 100] / 1e3,
            "bytes_per_s": 2 * size * len(times) / (sum(times) / 1e9),
        }
        print(json.dumps(row), flush=True)


def sizes_of(sizes: list[int]) -> Iterator[int]:
    """The answering end: every exchange's size."""
    for size in sizes:
        for _ in range(rounds(size)):
            yield size


def ligament(end: str, address: str, sizes: list[int], transport: str, shared: bool) -> None:
    """push_pull and respond."""
    import ligament as lig

    role = "worker" if end == "a" else "server"
    mesh = lig.Mesh(role, 0, 1, 1, address, transport=transport, framework="numpy")
    if shared:  # nothing moves, so that many rounds cost little
        ROUNDS.update(dict.fromkeys(ROUNDS, 3000))
    if end == "b":
        try:
            while True:
                for handler, tensors, _ in mesh.get_batch():
                    (_, shape) = handler.pulls[0]
                    mesh.respond([tensors[0][: shape[0]]], handler)
        except lig.ClosedError:
            mesh.stop()
            return
    kept: dict[int, np.ndarray] = {}

    def exchange(out: np.ndarray, back: np.ndarray) -> None:
        if shared:  # the push moves no bytes, the reply has eight
            if out.size not in kept:
                kept[out.size] = mesh.empty(out.size, "uint8")
                kept[out.size][:] = 1
            mesh.wait(mesh.push_pull([kept[out.size]], [1], [back[-8:]], [2]), None)
        else:
            mesh.wait(mesh.push_pull([out], [1], [back], [2]), None)

    measure(sizes, exchange)
    mesh.stop()


def gloo(end: str, address: str, sizes: list[int]) -> None:
    """torch.distributed send and recv."""
    import torch
    import torch.distributed as dist

    rank = int(end == "b")
    dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=2)
    if end == "b":
        for size in sizes_of(sizes):
            value = torch.empty(size, dtype=torch.uint8)
            dist.recv(value, 0)
            dist.send(value, 0)
        dist.destroy_process_group()
        return

    def exchange(out: np.ndarray, back: np.ndarray) -> None:
        dist.send(torch.from_numpy(out), 1)
        dist.recv(torch.from_numpy(back), 1)

    measure(sizes, exchange)
    dist.destroy_process_group()


def echo(value):  # type: ignore[no-untyped-def]
    """The function that torch RPC calls."""
    return value


def rpc(end: str, address: str, sizes: list[int]) -> None:
    """torch RPC over tensorpipe."""
    import torch
    from torch.distributed import rpc as remote

    host, port = address.split(":")
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": port}
    remote.init_rpc(end, rank=int(end == "b"), world_size=2)
    if end == "a":

        def exchange(out: np.ndarray, back: np.ndarray) -> None:
            answer = remote.rpc_sync("b", echo, (torch.from_numpy(out),))
            np.copyto(back, answer.numpy())

        measure(sizes, exchange)
    remote.shutdown()


def zeromq(end: str, address: str, sizes: list[int], scheme: str) -> None:
    """A pair of sockets; buffers are not copied where ZeroMQ need not."""
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.PAIR)
    place = f"tcp://{address}" if scheme == "tcp" else f"ipc:///tmp/bench-{address}"
    if end == "b":
        socket.bind(place)
        for _ in sizes_of(sizes):
            socket.send(socket.recv(copy=False), copy=False)
        socket.close()
        context.term()
        return
    socket.connect(place)

    def exchange(out: np.ndarray, back: np.ndarray) -> None:
        socket.send(out, copy=False)
        np.copyto(back, np.frombuffer(socket.recv(copy=False), np.uint8))

    measure(sizes, exchange)
    socket.close()
    context.term()


def main() -> None:
    """One end."""
    contender, end, address = sys.argv[1:4]
    sizes = [int(word) for word in sys.argv[4:]]
    run = {
        "ligament shm": lambda: ligament(end, address, sizes, "shm", False),
        "ligament shm, empty": lambda: ligament(end, address, sizes, "shm", True),
        "ligament tcp": lambda: ligament(end, address, sizes, "tcp", False),
        "gloo": lambda: gloo(end, address, sizes),
        "torch RPC": lambda: rpc(end, address, sizes),
        "ZeroMQ ipc": lambda: zeromq(end, address, sizes, "ipc"),
        "ZeroMQ tcp": lambda: zeromq(end, address, sizes, "tcp"),
    }
    run[contender]()


if __name__ == "__main__":
    main()

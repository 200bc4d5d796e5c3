#!/usr/bin/env python3
"""push_pull between two processes on one GPU: latency and bandwidth, beside the copies of the bare
device in the same process.

    bench/gpu_mesh.py [--quick] [--json FILE]

The server answers with what it was pushed. `arena` tensors are made by mesh.empty(device="cuda"):
the push copies nothing, the response once; `ready` ones are pushed with need_event=False. `torch`
tensors are copied into the arena and out of it. `stream` waits by wait(stream=) and synchronises
the stream. `staged` goes through pinned host memory over tcp. Each case runs under MPS, if
nvidia-cuda-mps-control is installed, and without it.
Latencies are the p50 of a round trip; a bandwidth is the payload of both ways over that time, as
for one way.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
sys.path.insert(0, str(HERE.parent / "tests/mesh"))
sys.path.insert(0, str(HERE / "peers"))
from bars import Bar, show  # noqa: E402

MIB = 1 << 20
WARM = 30
UNDER_MPS = "mps shm"
BARS = {"arena 1 MiB us": 30.0, "torch 64 MiB GB/s": 500.0, "graph 1 MiB us": 20.0}


def p50(count: int, work: Callable[[], Any]) -> float:
    """Microseconds."""
    for _ in range(WARM):
        work()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def serve(address: str, transport: str) -> None:
    """Echoes until the worker stops."""
    import torch
    from ligament import errors, mesh

    torch.zeros(1, device="cuda")
    mesh.init("server", 0, 1, 1, address, transport=transport, framework="torch", spin_us=1000)
    try:
        while True:
            for handler, tensors, _keys in mesh.get_batch():
                mesh.respond(tensors, handler)
    except errors.ClosedError:
        pass
    mesh.stop()


def copies(rounds: int) -> dict[str, float]:
    """The device alone: copies without Ligament."""
    import torch

    found = {}
    for size in (MIB, 64 * MIB):
        a, b = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))

        def copy(a: Any = a, b: Any = b) -> None:
            b.copy_(a)
            torch.cuda.synchronize()

        found[f"copy {size // MIB} MiB us"] = p50(rounds, copy)
    return found


def exchanges(transport: str, rounds: int) -> dict[str, float]:
    """Round trips of every kind."""
    import torch
    from ligament import mesh

    found: dict[str, float] = {}
    stream = torch.cuda.current_stream()
    kinds = ("arena", "ready", "torch", "stream") if transport == "shm" else ("staged",)
    for size in (4096, MIB, 64 * MIB):
        for kind in kinds:
            if kind in ("arena", "ready"):
                push, pull = (mesh.empty(size, "uint8", device="cuda") for _ in range(2))
            else:
                push, pull = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
            push.random_(0, 255)
            pull.zero_()
            stream.synchronize()

            def trip(kind: str = kind, push: Any = push, pull: Any = pull) -> None:
                request = mesh.push_pull([push], [1], [pull], [1], kind != "ready")
                if kind == "stream":
                    mesh.wait(request, stream=stream)
                    stream.synchronize()
                else:
                    mesh.wait(request)

            took = p50(rounds if size < 64 * MIB else rounds // 4, trip)
            assert torch.equal(push, pull), f"{kind}: wrong bytes"
            text = f"{kind} {size // MIB} MiB" if size >= MIB else f"{kind} {size // 1024} KiB"
            found[f"{text} us"] = took
            if size >= 64 * MIB:
                found[f"{text} GB/s"] = 2 * size / took / 1e3
    return found


def replays(rounds: int) -> dict[str, float]:
    """A graph of push_pull and wait, replayed."""
    import torch
    from ligament import mesh

    push, pull = (mesh.empty(MIB, "uint8", device="cuda") for _ in range(2))
    push.random_(0, 255)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mesh.wait(mesh.push_pull([push], [1], [pull], [1]))

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    took = p50(rounds, replay)
    assert torch.equal(push, pull), "graph: wrong bytes"
    return {"graph 1 MiB us": took}


def work(address: str, transport: str, rounds: int) -> None:
    """The worker: prints its figures as JSON."""
    import torch
    from ligament import mesh

    found = copies(rounds) if transport == "shm" else {}
    mesh.init("worker", 0, 1, 1, address, transport=transport, framework="torch", spin_us=1000)
    small = torch.zeros(16, device="cuda")
    for _ in range(200):  # the server opens the arena meanwhile
        mesh.wait(mesh.push_pull([small], [1], [small.clone()], [1]))
    found |= exchanges(transport, rounds)
    if transport == "shm":
        found |= replays(rounds)
    print(json.dumps({"pair": mesh.members()[0].transport, "figures": found}), flush=True)
    mesh.stop()


def run(transport: str, rounds: int, environ: dict[str, str]) -> dict[str, Any]:
    """One pair of processes."""
    from contextlib import closing

    from processes import Port

    with closing(Port()) as port:
        words = [sys.executable, __file__, "--rounds", str(rounds), "--transport", transport]
        server = subprocess.Popen([*words, "--serve", port.address], env=environ)
        try:
            done = subprocess.run(
                [*words, "--work", port.address],
                env=environ,
                stdout=subprocess.PIPE,
                text=True,
                timeout=120,
                check=True,
            )
            server.wait(30)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
    return dict(json.loads(done.stdout.splitlines()[-1]))


@contextmanager
def mps() -> Iterator[dict[str, str] | None]:
    """The environment of processes under MPS; None if it cannot be started."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        folders = {
            "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        }
        for one in folders.values():
            os.mkdir(one)
        environ = dict(os.environ, **folders)
        started = subprocess.run([control, "-d"], env=environ, check=False, timeout=30)
        try:
            yield environ if started.returncode == 0 else None
        finally:
            subprocess.run(
                [control], input="quit\n", env=environ, text=True, check=False, timeout=30
            )


def bars(results: dict[str, dict[str, float]]) -> list[Bar]:
    """The targets for a GPU under MPS."""
    found = results.get(UNDER_MPS, {})
    return [
        Bar(
            f"round trip on one GPU, {what.rsplit(' ', 1)[0]}",
            found[what],
            bar,
            what.endswith("GB/s"),
            what.split()[-1],
        )
        for what, bar in BARS.items()
        if what in found
    ]


def machine() -> dict[str, Any]:
    """The machine of the run."""
    import torch

    name = torch.cuda.get_device_name()
    return {"gpu": name, "cores": os.cpu_count(), "torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under two minutes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--transport", default="shm", help=argparse.SUPPRESS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    rounds = given.rounds or (400 if given.quick else 2000)
    if given.serve:
        serve(given.serve, given.transport)
        return
    if given.work:
        work(given.work, given.transport, rounds)
        return
    pairs: dict[str, Any] = {}
    with mps() as environ:
        if environ is not None:
            pairs[UNDER_MPS] = run("shm", rounds, environ)
    plain = dict(os.environ)
    pairs["shm"] = run("shm", rounds // 4, plain)
    pairs["tcp"] = run("tcp", rounds // 4, plain)
    for name, pair in pairs.items():
        print(f"\n{name} ({pair['pair']})")
        for what, figure in pair["figures"].items():
            print(f"  {what:22} {figure:10.1f}")
    results = {name: pair["figures"] for name, pair in pairs.items()}
    judged = [show(bar) for bar in bars(results)]
    if given.json:
        found = [bar.record() for bar in judged]
        content = {"date": time.strftime("%Y-%m-%d"), "machine": machine()}
        content |= {"results": results, "bars": found}
        given.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

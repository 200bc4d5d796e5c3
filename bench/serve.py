#!/usr/bin/env python3
"""The served store against the same store without a server, nginx, Redis, a bare TCP connection and
the disk, all in one run.

serve.py [--mib 1024] [--rounds 3] [--pairs 9] [--seconds 2] [--memory-requests N] [--json FILE]
         [--cases loads save-shm save-tcp find small]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ligament
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
import peer_servers  # noqa: E402
from bars import Bar, report  # noqa: E402

BUILT = HERE.parent / "build" / "bench"
PROGRAM = HERE.parent / "python" / "ligament" / "bin" / "ligament"
MIB = 1 << 20
TENSOR_BYTES = 16 * MIB
Model = dict[str, Any]


class Server:
    """`ligament serve` of a folder."""

    def __init__(self, place: Path) -> None:
        command = [str(PROGRAM), "serve", str(place)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.uri = "ligament://" + line.split("ligament://")[1].split()[0]

    def over(self, transport: str) -> str:
        return f"{self.uri}?transport={transport}"

    def mib(self, what: str = "VmRSS") -> float:
        """RssAnon is private memory, RssFile is mostly the mapped index of the store."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what + ":"))

    def cpu_s(self) -> float:
        """CPU time of all its threads, including ended ones (clock_getcpuclockid of Linux)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)


@contextlib.contextmanager
def serving(place: Path) -> Iterator[Server]:
    server = Server(place)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.communicate(timeout=60)


def program(name: str, *words: object) -> dict[str, Any]:
    command = [str(BUILT / name), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def interleaved(calls: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each, in seconds; every round has all of them."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(call())
    return {name: statistics.median(values) for name, values in taken.items()}


def print_rates(what: str, taken: dict[str, float], mib: int) -> None:
    rates = ", ".join(f"{name} {mib / 1024 / value:.2f}" for name, value in taken.items())
    print(f"  {what}, GiB/s: {rates}", flush=True)


# --- 1 GiB --------------------------------------------------------------------------------------


def big_model(mib: int) -> Model:
    rng = np.random.default_rng(0)
    count = mib * MIB // TENSOR_BYTES
    return {f"t{i}": rng.integers(0, 1 << 62, TENSOR_BYTES // 8) for i in range(count)}


def change(model: Model) -> None:
    """Changes every tensor, so that no part of the model is stored yet."""
    for tensor in model.values():
        tensor[0] += 1


def save_once(store: ligament.Store, model: Model) -> float:
    change(model)
    took = timed(lambda: store.save("saved", model))
    store.retire("saved")
    store.compact()
    return took


def receive_all(connection: socket.socket, into: memoryview) -> None:
    at = 0
    while at < len(into):
        got = connection.recv_into(into[at:])
        if got == 0:
            raise RuntimeError(f"the connection ended after {at} bytes of {len(into)}")
        at += got


def shared_memory(size: int) -> memoryview:
    """Memory that a fork does not copy when it is written to."""
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    return memoryview(mmap.mmap(-1, size, flags=flags))


def bare_tcp(source: memoryview, into: memoryview) -> float:
    """Copies from the memory of another process directly into this one's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            _ = source[::4096].tobytes()  # its pages are this process's before the clock starts
            with socket.create_connection(listener.getsockname()) as connection:
                connection.recv(1)
                connection.sendall(source)
            os._exit(0)
        connection, _ = listener.accept()
        with connection:
            begin = time.perf_counter()
            connection.sendall(b"x")
            receive_all(connection, into)
            took = time.perf_counter() - begin
    os.waitpid(child, 0)
    return took


def download(port: int, name: str, into: memoryview) -> float:
    """A GET that reads the body directly into memory."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        begin = time.perf_counter()
        connection.sendall(f"GET /{name} HTTP/1.0\r\nHost: bench\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        if b" 200 " not in head.splitlines()[0]:
            raise RuntimeError(head.decode())
        receive_all(connection, into)
        return time.perf_counter() - begin


def disk(folder: Path, mib: int) -> float:
    found = program("limit", folder, mib * MIB, "repeat=1")
    return float(found["write_s"][0])


def measure_save_shm(folder: Path, given: argparse.Namespace) -> list[Bar]:
    """The disk's speed varies from second to second, so each save is compared with its
    neighbour."""
    model = big_model(given.mib)
    place = folder / "save-shm"
    with (
        serving(place) as server,
        ligament.Store(place) as local,
        ligament.Store(server.over("shm")) as shm,
    ):
        stores = [("local", local), ("shm", shm)]
        for _, store in stores:
            save_once(store, model)
        pairs = []
        for number in range(given.pairs):
            order = stores if number % 2 else stores[::-1]
            pairs.append({name: save_once(store, model) for name, store in order})
    print_rates("save", {k: statistics.median(p[k] for p in pairs) for k, _ in stores}, given.mib)
    ratios = sorted(pair["local"] / pair["shm"] for pair in pairs)
    print(f"  of a local save: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    ratio = statistics.median(ratios)
    return [Bar("save throughput over shm / local save", ratio, 0.9, at_least=True)]


def measure_save_tcp(folder: Path, given: argparse.Namespace) -> list[Bar]:
    model = big_model(given.mib)
    source, into = (shared_memory(given.mib * MIB) for _ in range(2))
    with serving(folder / "save-tcp") as server, ligament.Store(server.over("tcp")) as tcp:
        calls = {
            "tcp": lambda: save_once(tcp, model),
            "bare TCP": lambda: bare_tcp(source, into),
            "disk": lambda: disk(folder, given.mib),
        }
        taken = interleaved(calls, given.rounds)
    print_rates("save", taken, given.mib)
    limit = max(taken["bare TCP"], taken["disk"])
    ratio = limit / taken["tcp"]
    return [
        Bar("save throughput over TCP / slower of bare TCP and disk", ratio, 0.9, at_least=True)
    ]


def load_calls(stores: dict[str, ligament.Store], into: Model) -> dict[str, Callable[[], float]]:
    return {
        name: lambda store=store: timed(lambda: store.load("m", into))  # type: ignore[misc]
        for name, store in stores.items()
    }


def measure_loads(folder: Path, given: argparse.Namespace) -> list[Bar]:
    model = big_model(given.mib)
    place = folder / "loads"
    with ligament.Store(place) as local:
        local.save("m", model)
        pack = max((place / "packs").iterdir(), key=lambda path: path.stat().st_size)
        buffer = shared_memory(pack.stat().st_size)
        with (
            serving(place) as server,
            ligament.Store(server.over("shm")) as shm,
            ligament.Store(server.over("tcp")) as tcp,
            peer_servers.nginx(folder / "nginx", place / "packs") as port,
        ):
            calls = load_calls({"local": local, "shm": shm, "tcp": tcp}, model)
            if port is not None:
                calls["nginx"] = lambda: download(port, pack.name, buffer)
            interleaved(calls, 1)  # from here on all find the file in the page cache
            taken = interleaved(calls, given.rounds)
    print_rates("load", taken, given.mib)
    ratio = taken["local"] / taken["shm"]
    bars = [Bar("load throughput over shm / local load", ratio, 0.95, True)]
    if "nginx" in taken:
        ratio = taken["nginx"] / taken["tcp"]
        bars.append(
            Bar("load throughput over TCP / nginx with sendfile", ratio, 0.9, at_least=True)
        )
    return bars


# --- small requests -----------------------------------------------------------------------------


def find_p50_us(place: object, options: str, reuse: bool) -> float:
    words = (place, "evolved", 1000, "queries=2000", f"options={options}", f"reuse={int(reuse)}")
    found = program("prefix_search", *words)
    if found["wrong"]:
        raise RuntimeError(f"{found['wrong']} wrong answers of a search in {place}")
    return float(found["find_p50_ms"]) * 1000


def measure_find(folder: Path) -> list[Bar]:
    place = folder / "find"
    find_p50_us(place, "fsync=0", False)
    with serving(place) as server:
        local = find_p50_us(place, "fsync=0", True)
        shm = find_p50_us(server.uri, "transport=shm", True)
        tcp = find_p50_us(server.uri, "transport=tcp", True)
    print(f"  find p50, us: local {local:.1f}, shm {shm:.1f}, tcp {tcp:.1f}", flush=True)
    return [
        Bar("find over shm, p50 minus that of a local find", shm - local, 25, unit="us"),
        Bar("find over TCP, p50 minus that of a local find", tcp - local, 50, unit="us"),
    ]


def clients(uri: str, mode: str, count: int, seconds: float) -> dict[str, Any]:
    found = program("serve_clients", uri, mode, count, seconds)
    if found["errors"]:
        print(f"  {found['errors']} errors of {count} clients ({mode})")
    return found


def measure_small(server: Server, redis: int | None, given: argparse.Namespace) -> list[Bar]:
    bars = []
    ours = {
        name: clients(server.over(name), "read", 1, given.seconds)["p50_us"]
        for name in ("shm", "tcp")
    }
    print(f"  read of 4 KiB p50, us: shm {ours['shm']:.1f}, tcp {ours['tcp']:.1f}")
    one, many = (clients(server.over("tcp"), "save", n, given.seconds)["per_s"] for n in (1, 16))
    print(f"  durable saves of 16 KiB, 1/s: one client {one:.0f}, 16 clients {many:.0f}")
    if redis is not None:
        theirs = clients(f"redis:{redis}", "read", 1, given.seconds)["p50_us"]
        print(f"  GET of 4 KiB from Redis p50, us: {theirs:.1f}")
        bars.append(Bar("read of 4 KiB over TCP, p50 / Redis", ours["tcp"] / theirs, 1))
        sets = [clients(f"redis:{redis}", "save", n, given.seconds)["per_s"] for n in (1, 16)]
        print(
            f"  SET with appendfsync always, 1/s: one client {sets[0]:.0f} (ours: "
            f"{one / sets[0]:.2f} x), 16 clients {sets[1]:.0f} (ours: {many / sets[1]:.2f} x)"
        )
    bars.append(Bar("rate of durable saves, 16 clients / 1 client", many / one, 2, at_least=True))
    return bars


def measure_many(server: Server, given: argparse.Namespace) -> list[Bar]:
    found = clients(server.over("tcp"), "mixed", 64, 2 * given.seconds)
    p50, p99 = found["p50_us"], found["p99_us"]
    print(f"  64 clients mixed: {found['per_s']:.0f}/s, p50 {p50:.0f} us, p99 {p99:.0f} us")
    before = server.mib()
    requests = clients(server.over("tcp"), "read", 8, given.memory_seconds)["requests"]
    after = server.mib()
    print(f"  server memory, MiB: {before:.1f}, after {requests} requests {after:.1f}")
    return [
        Bar("errors under mixed load of 64 clients", found["errors"], 0, unit=""),
        Bar("latency under mixed load of 64 clients, p99 / p50", p99 / p50, 20),
        Bar("server memory, after / before many requests", after / before, 1.05),
    ]


def measure_memory(folder: Path, requests: int) -> list[Bar]:
    """The server's memory over that many requests, an eighth of which are durable saves. Time
    stamps are kept of the latest 65,536 of each operation, 9 MiB in all, which fill up first: rare
    ones last."""
    done, half = 0, 0.0
    with serving(folder / "memory") as server:
        while done < requests:
            done += clients(server.over("tcp"), "mixed", 16, 10)["requests"]
            own, index = server.mib("RssAnon"), server.mib("RssFile")
            half = half or (own if 2 * done >= requests else 0)
            print(f"  {done} requests: {own:.1f} MiB, index {index:.1f} MiB", flush=True)
    growth = own - half
    return [
        Bar(f"growth of server memory in the second half of {done} requests", growth, 2, unit="MiB")
    ]


def measure_idle(server: Server, seconds: float) -> list[Bar]:
    with ligament.Store(server.uri):
        begin = server.cpu_s()
        time.sleep(seconds)
        share = (server.cpu_s() - begin) / seconds * 100
    return [Bar("processor use of an idle server with one client", share, 0.1, unit="% of a core")]


def measure_requests(folder: Path, given: argparse.Namespace) -> list[Bar]:
    with serving(folder / "small") as server, peer_servers.redis(folder / "redis") as port:
        bars = measure_small(server, port, given)
        bars += measure_many(server, given)
        bars += measure_idle(server, 3)
    return bars


CASES: dict[str, Callable[[Path, argparse.Namespace], list[Bar]]] = {
    "loads": measure_loads,
    "save-shm": measure_save_shm,
    "save-tcp": measure_save_tcp,
    "find": lambda folder, _: measure_find(folder),
    "small": measure_requests,
}


def measure(folder: Path, given: argparse.Namespace) -> list[Bar]:
    bars = [bar for case in given.cases for bar in CASES[case](folder, given)]
    if given.memory_requests:
        bars += measure_memory(folder, given.memory_requests)
    return bars


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=9, help="of saves, local and over shm")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seconds", type=float, default=2, help="of each run of small requests")
    parser.add_argument(
        "--memory-seconds", type=float, default=5, help="of requests for the server's memory"
    )
    parser.add_argument(
        "--memory-requests", type=int, default=0, help="mixed requests for the server's memory"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(f"{given.mib} MiB, {given.rounds} rounds", flush=True)
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        bars = measure(Path(folder), given)
    return report(bars, given.json)


if __name__ == "__main__":
    sys.exit(main())

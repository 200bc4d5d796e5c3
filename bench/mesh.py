"""What are the round-trip time and the throughput of a tensor?

    .venv/bin/python bench/mesh.py [--quick] [--repeat N] [--json FILE] [--realtime]

push_pull + respond from C and from Python, against gloo send/recv, torch RPC and ZeroMQ, and
against the limits of the machine: a bare ring in shared memory and a bare TCP ping-pong that wait
as ours do (20 us of looking, then sleep). TLS is measured below the mesh, in messages, against a
bare loop of SSL_write and SSL_read. Contenders take turns; a figure is the median over all repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from bars import Bar, show  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
EXCHANGE = Path(__file__).parent / "peers/exchange.py"
SIZES = (8, 4096, 65536, 1 << 20, 64 << 20)
NAMES = {8: "8 B", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB", 64 << 20: "64 MiB"}
PYTHON = (
    "ligament shm",
    "ligament shm, empty",
    "ligament tcp",
    "gloo",
    "torch RPC",
    "ZeroMQ ipc",
    "ZeroMQ tcp",
)
Figures = dict[str, dict[int, dict[str, list[float]]]]


class Bench:
    """Runs contenders and records their output."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.figures: Figures = {}
        self.encrypts = self.can_encrypt()
        self.prefix = ["chrt", "-r", "5"] if options.realtime and shutil.which("chrt") else []

    def note(self, contender: str, size: int, **values: float) -> None:
        """Adds a sample."""
        kept = self.figures.setdefault(contender, {}).setdefault(size, {})
        for name, value in values.items():
            kept.setdefault(name, []).append(value)

    def rows(self, command: list[str], other: list[str] | None = None) -> list[dict[str, float]]:
        """The output of a program, line by line; `other` runs at the same time."""
        beside = subprocess.Popen(self.prefix + other) if other else None
        done = subprocess.run(
            self.prefix + command, capture_output=True, text=True, check=False, timeout=600
        )
        if beside is not None:
            beside.wait(60)
        if done.returncode != 0:
            raise SystemExit(f"{command}\n{done.stdout}\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def python(self, contender: str, sizes: list[int]) -> None:
        """Two processes of exchange.py."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{one.getsockname()[1]}"
        words = [address, *(str(size) for size in sizes)]
        base = [sys.executable, str(EXCHANGE), contender]
        for row in self.rows([*base, "a", *words], [*base, "b", *words]):
            size = int(row.pop("bytes"))
            self.note(contender, size, **row)

    def program(self, name: str, *words: str) -> list[dict[str, float]]:
        """A program of the build."""
        return self.rows([str(Path(self.options.build) / "bench" / name), *words])

    def compiled(self) -> None:
        """C: ours and the limits."""
        for label, words in (
            ("C shm", ("shm",)),
            ("C shm, empty", ("shm", "20", "empty")),
            ("C tcp", ("tcp",)),
        ):
            for row in self.program("mesh_latency", *words):
                self.note(label, int(row.pop("bytes")), **row)
        (ring,) = self.program("ring_limit", "rounds=5000", "repeat=1")
        for size in SIZES[:3]:
            found = ring[f"ring_bell_{size}"]
            self.note("bare ring", size, p50_us=found["p50"], p99_us=found["p99"])
        for size in SIZES[3:]:
            self.note("bare ring", size, bytes_per_s=ring[f"ring_gbs_{size}"] * 1e9)
            self.note("memcpy", size, bytes_per_s=ring[f"memcpy_gbs_{size}"] * 1e9)
        self.limits("messages tcp")
        if self.encrypts:
            self.limits("messages TLS", "secret=1", bare="bare TLS")

    def limits(self, label: str, *words: str, bare: str = "bare TCP") -> None:
        """A bare connection, alternating with messages over tcp."""
        by_name = {name.replace(" ", ""): size for size, name in NAMES.items()}
        for row in self.program("mesh_limits", "rounds=1", "scheme=tcp", *words):
            size = by_name[str(row["size"])]
            for contender, kind in ((bare, "bare"), (label, "net")):
                p50, p99 = row[f"{kind}_p50_us"], row[f"{kind}_p99_us"]
                self.note(contender, size, p50_us=p50, p99_us=p99)
                if f"{kind}_gbs" in row:
                    self.note(contender, size, bytes_per_s=row[f"{kind}_gbs"] * 1e9)
            if "net_gbs" in row:
                self.note(label, size, of_bare=row["net_gbs"] / row["bare_gbs"])

    def can_encrypt(self) -> bool:
        """Whether OpenSSL is available; prints the reason if not."""
        program = Path(self.options.build) / "bench/mesh_limits"
        words = ["rounds=1", "secret=1", "probe=1"]
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"left out: TLS: {done.stderr.strip()}")
        return done.returncode == 0

    def get(self, contender: str, size: int, name: str) -> float | None:
        """The median, None where there is none."""
        found = self.figures.get(contender, {}).get(size, {}).get(name)
        return statistics.median(found) if found else None


def print_table(bench: Bench) -> None:
    """Prints the latency of small tensors and the throughput of large ones."""
    print(f"\n{'':22}" + "".join(f"{NAMES[size] + ' us':>18}" for size in SIZES[:3]), end="")
    print("".join(f"{NAMES[size] + ' GB/s':>15}" for size in SIZES[3:]))
    print(f"{'':22}" + f"{'p50 / p99':>18}" * 3)
    for contender in bench.figures:
        line = f"{contender:22}"
        for size in SIZES[:3]:
            p50, p99 = (bench.get(contender, size, name) for name in ("p50_us", "p99_us"))
            line += f"{'-':>18}" if p50 is None or p99 is None else f"{p50:9.2f} /{p99:7.1f}"
        for size in SIZES[3:]:
            rate = bench.get(contender, size, "bytes_per_s")
            line += f"{'-':>15}" if rate is None else f"{rate / 1e9:15.2f}"
        print(line)


def print_bars(bench: Bench) -> list[Bar]:
    """The targets."""
    found: list[Bar] = []
    print()

    def bar(text: str, first: float | None, second: float | None, limit: float, most: bool) -> None:
        if first is None or second is None or second == 0:
            return
        found.append(show(Bar(text, first / second, limit, not most)))

    get = bench.get
    big = 64 << 20
    for ours, limit, most in (("C shm", "bare ring", 4), ("C tcp", "bare TCP", 2)):
        small = [get(who, 8, "p50_us") for who in (ours, limit)]
        bar(f"round trip of 8 B, {ours} / {limit}", *small, most, True)
        fast = [get(who, big, "bytes_per_s") for who in (ours, limit)]
        bar(f"throughput of 64 MiB, {ours} / {limit}", *fast, 0.8, False)
    bar(
        "throughput of 64 MiB, TLS / bare SSL_write and SSL_read",
        get("messages TLS", big, "bytes_per_s"),
        get("bare TLS", big, "bytes_per_s"),
        0.9,
        False,
    )
    middle = 64 << 10
    bar(
        "round trip of 64 KiB, TLS / bare SSL_write and SSL_read",
        get("messages TLS", middle, "p50_us"),
        get("bare TLS", middle, "p50_us"),
        1.2,
        True,
    )
    mine = get("ligament shm", 8, "p50_us")
    for peer, least in (("gloo", 5), ("torch RPC", 20)):
        bar(
            f"round trip of 8 B, {peer} / ours from Python",
            get(peer, 8, "p50_us"),
            mine,
            least,
            False,
        )
    for who in ("C", "ligament"):
        large, small_us = (get(f"{who} shm, empty", size, "p50_us") for size in (big, 8))
        bar(f"round trip with mesh.empty, {who} shm: 64 MiB / 8 B", large, small_us, 1.5, True)
    return found


def main() -> None:
    """Runs everything, alternating."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, once, without torch RPC")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--only", nargs="*", help="contenders of Python")
    parser.add_argument("--json", help="every sample")
    parser.add_argument(
        "--realtime", action="store_true", help="under chrt -r, on a machine with other work (root)"
    )
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    bench = Bench(options)
    sizes = list(SIZES[:3] if options.quick else SIZES)
    names = [one for one in PYTHON if not options.only or one in options.only]
    for _ in range(1 if options.quick else options.repeat):
        bench.compiled()
        for contender in names:
            if not (options.quick and contender == "torch RPC"):
                bench.python(contender, sizes)
    print_table(bench)
    bars = [bar.record() for bar in print_bars(bench)]
    if options.json:
        samples = {"figures": bench.figures, "bars": bars}
        Path(options.json).write_text(json.dumps(samples, indent=1))


if __name__ == "__main__":
    main()

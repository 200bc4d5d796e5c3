#!/usr/bin/env python3
"""How much of UCX does the ucx transport pass on? Against ucx_perftest and bare UCX, in turns.

    .venv/bin/python bench/ucx.py [--tls tcp] [--rounds 3] [--json FILE]

All poll all the time, as ucx_perftest does, and have errors of peers reported (`-e`). A line a
size: round trip (8 B to 64 KiB) or one way (1 and 64 MiB) of ucx_perftest's active messages, of
bare UCX between endpoints that met as ours do (ucx_bare.c), ours, and the ratios of ours to each
(median over the rounds).
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from bars import skip  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"8B": 8, "4KiB": 4096, "64KiB": 65536, "1MiB": 1 << 20, "64MiB": 64 << 20}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def perftest_us(size: int, tls: str) -> float:
    """One way, as it prints it: half of a round trip."""
    environment = os.environ | {"UCX_TLS": tls, "UCX_MM_ERROR_HANDLING": "y"}
    port = str(free_port())
    count = str(5000 if size <= 65536 else 20)
    command = ["ucx_perftest", "-t", "ucp_am_lat", "-s", str(size), "-n", count, "-e", "-p", port]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **quiet) as server:
        try:
            for _ in range(100):
                done = subprocess.run(
                    [*command[:1], "127.0.0.1", *command[1:]],
                    env=environment, capture_output=True, text=True, timeout=120, check=False,
                )  # fmt: skip
                final = [line for line in done.stdout.splitlines() if line.startswith("Final")]
                if final:
                    return float(final[0].split()[2])
                time.sleep(0.05)  # it does not listen yet
        finally:
            server.kill()
    sys.exit(f"ucx_perftest does not run with UCX_TLS={tls}: {done.stderr.strip()}")


def figures_us(command: list[str | Path], tls: str, what: str) -> dict[str, float]:
    """What a program of ours prints, by size."""
    environment = os.environ | {"UCX_TLS": tls}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} does not run with UCX_TLS={tls}: {done.stderr.strip()}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["size"]: line[what] for line in lines}


def what_is_missing() -> str:
    if shutil.which("ucx_perftest") is None:
        return "ucx_perftest is not installed (Debian: ucx-utils)"
    if not list(ROOT.glob("python/ligament/lib/libligament_ucx.so")):
        return "the ucx transport is not built (Debian: libucx-dev)"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/bench/mesh_limits")
    parser.add_argument("--tls", default="tcp", help="UCX_TLS, the same for both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    missing = what_is_missing()
    if missing:
        return skip(missing, arguments.json)
    rows = {name: ([], [], []) for name in SIZES}
    tls = arguments.tls
    for _ in range(arguments.rounds):
        command = [arguments.program, "rounds=1", "scheme=ucx", "spin_us=1000000"]
        bare = figures_us([arguments.program.with_name("ucx_bare")], tls, "p50_us")
        ours = figures_us(command, tls, "net_p50_us")
        for name, size in SIZES.items():
            ways = 2 if size <= 65536 else 1
            figures = (ways * perftest_us(size, tls), bare[name], ours[name])
            for column, figure in zip(rows[name], figures, strict=True):
                column.append(figure)
    result = {}
    titles = ("perftest us", "bare us", "ligament us", "/ perftest", "/ bare")
    print(f"{'UCX_TLS=' + tls:>16}" + "".join(f"{title:>13}" for title in titles))
    for name, columns in rows.items():
        theirs, bare, ours = result[name] = tuple(map(statistics.median, columns))
        print(f"{name:>16}{theirs:13.2f}{bare:13.2f}{ours:13.2f}"
              f"{ours / theirs:13.2f}{ours / bare:13.2f}")  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps({arguments.tls: result}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

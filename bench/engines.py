#!/usr/bin/env python3
"""Stores on RADOS against `rados bench` on the same cluster, which the benchmark starts (root).

engines.py [--mib 256] [--rounds 3] [--seconds 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "peers"))
from bars import Bar, report  # noqa: E402

MIB = 1 << 20
PIECE_BYTES = 16 * MIB
ENGINES = str(ROOT / "tools/engines")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cluster() -> dict[str, str]:
    """The variables of a cluster that runs."""
    lines = output(ENGINES, "env").splitlines()
    pairs = (line.removeprefix("export ").split("=", 1) for line in lines)
    return {name.removeprefix("LIGAMENT_TEST_"): value.strip("'") for name, value in pairs}


# --- RADOS ---


class RadosBench:
    """The program `rados bench`, 16 operations in flight as it does by default."""

    def __init__(self, known: dict[str, str]):
        self.rados = ["rados", "-c", known["RADOS_CONF"], "-p", known["RADOS_POOL"]]

    def run(self, *arguments: str) -> str:
        return output(*self.rados, "bench", *arguments)

    def mib_s(self, seconds: int) -> tuple[float, float]:
        """Writes, then reads of what was written."""
        wrote = self.run(str(seconds), "write", "-b", "4M", "--no-cleanup")
        read = self.run(str(seconds), "seq")
        output(*self.rados, "cleanup")
        return tuple(float(found(text, "Bandwidth .MB/sec.")) for text in (wrote, read))

    def small_write_s(self, seconds: int) -> float:
        return float(
            found(self.run(str(seconds), "write", "-b", "4K", "-t", "1"), "Average Latency.s.")
        )


def found(text: str, what: str) -> str:
    match = re.search(what + r":\s+([0-9.]+)", text)
    assert match, f"no {what} in:\n{text}"
    return match[1]


def volume(known: dict[str, str], given: argparse.Namespace) -> dict[str, list[float]]:
    place = f"//{known['RADOS_POOL']}/bench-{uuid.uuid4().hex[:8]}"
    count = max(1, given.mib * MIB // PIECE_BYTES)
    return json.loads(
        output(
            *(str(ROOT / "build/bench/volume"), place, str(count), str(PIECE_BYTES), "repeat=1"),
            *("scheme=rados", "commits=300", f"options=conf={known['RADOS_CONF']}&grace=0"),
        )
    )


def measure_rados(known: dict[str, str], given: argparse.Namespace) -> list[Bar]:
    """The peers alternate: both see the same machine."""
    bench = RadosBench(known)
    ratios: dict[str, list[float]] = {"write": [], "read": [], "commit": []}
    for _ in range(given.rounds):
        wrote, read = bench.mib_s(given.seconds)
        small = bench.small_write_s(2)
        ours = volume(known, given)
        mib = max(1, given.mib * MIB // PIECE_BYTES) * PIECE_BYTES / MIB
        ours_write, ours_read = mib / ours["write_s"][0], mib / ours["cold_s"][0]
        commit = statistics.mean(ours["commit_s"])
        print(
            f"  MiB/s: write {ours_write:.0f} (rados bench {wrote:.0f}), read {ours_read:.0f} "
            f"({read:.0f}); commit {1e6 * commit:.0f} us (4 KiB write {1e6 * small:.0f} us)",
            flush=True,
        )
        ratios["write"].append(ours_write / wrote)
        ratios["read"].append(ours_read / read)
        ratios["commit"].append(commit / small)
    middle = {name: statistics.median(values) for name, values in ratios.items()}
    return [
        Bar("rados: packs written, of rados bench", middle["write"], 0.9, at_least=True),
        Bar("rados: packs read, of rados bench", middle["read"], 0.9, at_least=True),
        Bar("rados: commit, of a 4 KiB write", middle["commit"], 1.5),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of each run of rados bench")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: a cluster is started as root")
        if given.json:
            given.json.write_text(json.dumps({"skipped": "needs root"}))
        return 0
    subprocess.run([ENGINES, "install"], check=True)
    subprocess.run([ENGINES, "start"], check=True)
    try:
        bars = measure_rados(cluster(), given)
    finally:
        subprocess.run([ENGINES, "stop"], check=True)
    return report(bars, given.json)


if __name__ == "__main__":
    sys.exit(main())

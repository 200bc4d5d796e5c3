#!/usr/bin/env python3
"""Stores on RADOS against `rados bench`, and on S3 against a bare libcurl loop and
torch.distributed.checkpoint, on one cluster that the benchmark starts (root).

engines.py [--mib 256] [--pairs 7] [--rounds 3] [--seconds 3] [--only PART] [--json FILE]

A bar is the median of the ratios of pairs: a contender and its peer run one after the other, in
alternating order, because the machine's speed changes within seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "peers"))
from bars import Bar, report, skip  # noqa: E402

MIB = 1 << 20
PIECE_BYTES = 16 * MIB
ENGINES = str(ROOT / "tools/engines")
Measured = dict[str, float]  # MiB/s of packs, seconds of a commit


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def what_is_missing() -> str:
    if os.geteuid() != 0:
        return "a cluster is started as root"
    needed = ("ceph-mon", "ceph-osd", "ceph-mgr", "radosgw", "rados")
    programs = [name for name in needed if shutil.which(name) is None]
    if programs:
        return f"not installed: {', '.join(programs)} (tools/engines install; make build)"
    for name in ("rados", "s3"):
        if not (ROOT / f"python/ligament/lib/libligament_{name}.so").exists():
            return f"{name}:// is not built (tools/engines install; make build)"
    return ""


def start_again_with_cluster() -> None:
    """Runs this program again with the variables of a cluster, which is stopped afterwards."""
    environment = {"LIGAMENT_ENGINES": str(HERE / "out/engines"), **os.environ}
    os.execve(ENGINES, [ENGINES, "run", sys.executable, __file__, *sys.argv[1:]], environment)


def cluster() -> dict[str, str]:
    """The variables of the cluster."""
    return {
        name.removeprefix("LIGAMENT_TEST_"): value
        for name, value in os.environ.items()
        if name.startswith("LIGAMENT_TEST_")
    }


# --- RADOS ---


class RadosBench:
    """The program `rados bench`, 16 operations in flight as it does by default."""

    def __init__(self, known: dict[str, str]):
        self.rados = ["rados", "-c", known["RADOS_CONF"], "-p", known["RADOS_POOL"]]

    def run(self, *arguments: str) -> str:
        return output(*self.rados, "bench", *arguments)

    def mib_s(self, seconds: int) -> tuple[float, float]:
        """Writes, then reads the same objects."""
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


def volume(place: str, scheme: str, options: str, given: argparse.Namespace) -> Measured:
    """MiB/s of packs written and read by the volume alone, seconds of a commit."""
    count = max(1, given.mib * MIB // PIECE_BYTES)
    place = f"{place}/bench-{uuid.uuid4().hex[:8]}"
    commits = 300 if scheme == "rados" else 100
    seen = json.loads(
        output(
            *(str(ROOT / "build/bench/volume"), place, str(count), str(PIECE_BYTES), "repeat=1"),
            *(f"scheme={scheme}", f"commits={commits}", f"options={options}&grace=0"),
        )
    )
    mib = count * PIECE_BYTES / MIB
    return {
        "write": mib / seen["write_s"][0],
        "read": mib / seen["cold_s"][0],
        "commit": statistics.mean(seen["commit_s"]),
    }


def compare(pair: int, ours: Callable[[], Measured], bare: Callable[[], Measured]) -> Measured:
    """The ratios of a pair."""
    if pair % 2 == 0:
        theirs, mine = bare(), ours()
    else:
        mine, theirs = ours(), bare()
    print(
        f"  MiB/s: write {mine['write']:.0f} (bare {theirs['write']:.0f}), read "
        f"{mine['read']:.0f} ({theirs['read']:.0f}); commit {1e6 * mine['commit']:.0f} us "
        f"(4 KiB write {1e6 * theirs['commit']:.0f} us)",
        flush=True,
    )
    return {name: mine[name] / theirs[name] for name in mine}


def bars_of(scheme: str, peer: str, small: str, pairs: list[Measured]) -> list[Bar]:
    middle = {name: statistics.median(pair[name] for pair in pairs) for name in pairs[0]}
    return [
        Bar(f"{scheme}: pack write throughput / {peer}", middle["write"], 0.9, at_least=True),
        Bar(f"{scheme}: pack read throughput / {peer}", middle["read"], 0.9, at_least=True),
        Bar(f"{scheme}: commit time / {small}", middle["commit"], 1.5),
    ]


def measure_rados(known: dict[str, str], given: argparse.Namespace) -> list[Bar]:
    bench = RadosBench(known)

    def bare() -> Measured:
        wrote, read = bench.mib_s(given.seconds)
        return {"write": wrote, "read": read, "commit": bench.small_write_s(1)}

    def ours() -> Measured:
        options = f"conf={known['RADOS_CONF']}"
        return volume(f"//{known['RADOS_POOL']}", "rados", options, given)

    pairs = [compare(i, ours, bare) for i in range(given.rounds)]
    return bars_of("rados", "rados bench", "a 4 KiB write", pairs)


# --- S3 ---


def bare_s3(known: dict[str, str], given: argparse.Namespace) -> Measured:
    """libcurl alone: one object in parts of 8 MiB, 16 requests in flight, as a pack is; then small
    objects one after the other."""
    count = max(1, given.mib // 8)
    seen = json.loads(
        output(
            *(str(ROOT / "build/bench/s3_bare"), known["S3_ENDPOINT"], known["S3_BUCKET"]),
            *(f"bare-{uuid.uuid4().hex[:8]}", str(count), str(8 * MIB), "100"),
        )
    )
    mib = count * 8
    return {
        "write": mib / seen["write_s"],
        "read": mib / seen["read_s"],
        "commit": statistics.mean(seen["put_s"]),
    }


def measure_s3(known: dict[str, str], given: argparse.Namespace) -> list[Bar]:
    place, options = f"//{known['S3_BUCKET']}", f"endpoint={known['S3_ENDPOINT']}"
    pairs = [
        compare(i, lambda: volume(place, "s3", options, given), lambda: bare_s3(known, given))
        for i in range(given.pairs)
    ]
    return bars_of("s3", "a bare libcurl loop", "a 4 KiB PUT", pairs)


def measure_models(known: dict[str, str], given: argparse.Namespace) -> list[Bar]:
    place = f"{known['S3_BUCKET']}/models-{uuid.uuid4().hex[:8]}"
    seen = json.loads(
        output(
            *(sys.executable, str(HERE / "peers/s3_models.py"), place, known["S3_ENDPOINT"]),
            *("--mib", str(given.mib), "--cached-mib", str(4 * given.mib)),
            *("--rounds", str(given.rounds)),
            *(["--cache-only"] if given.only == "cache" else []),
        )
    )
    middle = {name: statistics.median(values) for name, values in seen.items()}
    print("  models, seconds:", ", ".join(f"{name} {s:.2f}" for name, s in middle.items()))
    loads = zip(seen["local_load"], seen["cached_load"], strict=True)
    cached = statistics.median(local / cached for local, cached in loads)
    bars = [Bar("s3: load throughput through the cache / local store", cached, 0.9, at_least=True)]
    if given.only == "cache":
        return bars
    if "dcp_save" not in middle:
        print("  skipped: DCP with fsspec (pip install --target bench/out/packages s3fs)")
        return bars
    for what in ("save", "load"):
        ratio = middle[f"dcp_{what}"] / middle[what]
        bars.append(Bar(f"s3: {what} time, DCP with fsspec / ours", ratio, 1.5, at_least=True))
    return bars


# Parts of the benchmark; `cache` is a part of `models`.
PARTS = {"rados": measure_rados, "s3": measure_s3, "models": measure_models}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mib", type=int, default=256, help="of a pack; the cached model has 4 x")
    parser.add_argument("--pairs", type=int, default=7, help="of runs on S3")
    parser.add_argument("--rounds", type=int, default=3, help="of rados bench and of models")
    parser.add_argument("--seconds", type=int, default=3, help="of each run of rados bench")
    parser.add_argument("--only", choices=[*PARTS, "cache"])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    missing = what_is_missing()
    if missing:
        return skip(missing, given.json)
    if "LIGAMENT_TEST_RADOS_CONF" not in os.environ:
        start_again_with_cluster()
    known = cluster()
    os.environ["AWS_ACCESS_KEY_ID"] = known["S3_KEY"]
    os.environ["AWS_SECRET_ACCESS_KEY"] = known["S3_SECRET"]
    os.environ["AWS_REGION"] = known["S3_REGION"]
    chosen = [given.only] if given.only else list(PARTS)
    bars: list[Bar] = []
    for part in chosen:
        bars += PARTS.get(part, measure_models)(known, given)
    return report(bars, given.json)


if __name__ == "__main__":
    sys.exit(main())

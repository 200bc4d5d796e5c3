#!/usr/bin/env python3
"""Saving and loading a model: Ligament, its peers and the limit of the disk, all in one run.

    bench/checkpoint.py [--quick] [--only NAME ...] [--case mixed|small|training ...]
                        [--rounds N] [--json FILE] [--folder FOLDER]

Every contender runs in a fresh process in every round, so that contenders see the same machine and
`first` is the first save of a process. A figure is the median over all rounds; every byte changes
between saves; a save ends with fsync of file and folder; cold means an emptied page cache; memory
is the peak of RssAnon + RssShmem above what it was before the call. `--only` takes contenders by
name, one of them alone for profiling: `--only ligament --case small --rounds 1`.
"""

import argparse
import json
import os
import platform
import random
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

from report import bars, draw, print_bars, print_files, print_training  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
SLOW_S = 20.0
FILE_CONTENDERS = (
    "ligament", "safetensors", "torch.save", "dcp", "dcp async",
    "tf checkpoint", "keras h5", "ligament keras",
)  # fmt: skip
TRAINING_CONTENDERS = ("ligament", "dcp async")
# These take about a millisecond per tensor: in the case of many they get a tenth of them, and the
# times are multiplied. DCP with all 50,000 runs for minutes.
SCALED = {"dcp", "dcp async", "tf checkpoint", "keras h5", "ligament keras"}
SCALE = 10
# These take about half a minute a round: one round is enough to rank them.
ONE_ROUND = {"tf checkpoint", "keras h5", "ligament keras"}
REST_MS = 500  # what changing every byte takes the others between two saves
QUICK = {"limit", "ligament", "safetensors", "dcp async"}


def mixed_sizes(total: int, count: int, largest: int, limits: tuple[int, int]) -> list[int]:
    """`count - 1` sizes spread over the limits, most of them small, and one largest."""
    low, high = limits
    rest = total - largest

    def spread(power: float) -> list[int]:
        places = [(i / (count - 2)) ** power for i in range(count - 1)]
        return [int(low * (high / low) ** p) // KIB * KIB for p in places]

    bottom, top = 0.05, 20.0
    for _ in range(60):
        middle = (bottom + top) / 2
        bottom, top = (middle, top) if sum(spread(middle)) > rest else (bottom, middle)
    sizes = spread(top) + [largest]
    random.Random(1).shuffle(sizes)
    return sizes


def make_cases(quick: bool) -> dict[str, dict[str, Any]]:
    if quick:
        mixed = mixed_sizes(64 * MIB, 61, 44 * MIB, (4 * KIB, 3 * MIB))
        small = [4 * KIB] * 5000
    else:
        mixed = mixed_sizes(1024 * MIB, 301, 710 * MIB, (4 * KIB, 12 * MIB))
        small = [4 * KIB] * 50000
    return {
        "mixed": {"phase": "files", "sizes": mixed, "saves": 2},
        "small": {"phase": "files", "sizes": small, "saves": 2},
        "training": {
            "phase": "training",
            "sizes": mixed,
            "steps": 10 if quick else 20,
            "batch": 32,
        },
    }


class Watch:
    """The peak memory of a process while measuring is requested."""

    def __init__(self, pid: int):
        self.path, self.name, self.base, self.peak = Path(f"/proc/{pid}/status"), "", 0, 0

    def read(self) -> int:
        kinds = ("RssAnon:", "RssShmem:")
        lines = self.path.read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(kinds)) * KIB

    def begin(self, name: str) -> None:
        self.name, self.base = name, self.read()
        self.peak = self.base

    def look(self) -> None:
        self.peak = max(self.peak, self.read())

    def end(self) -> float:
        self.look()
        self.name = ""
        return (self.peak - self.base) / MIB


def listen(child: Any, deadline: float, found: dict[str, list[float]]) -> bool:
    """Collects a child's events until it ends; True if it reported that it was done."""
    watch, pending, done = Watch(child.pid), b"", False
    handle = child.stdout.fileno()
    while time.monotonic() < deadline:
        ready = select.select([handle], [], [], 0.003 if watch.name else 1.0)[0]
        if watch.name:
            watch.look()
        if not ready:
            continue
        data = os.read(handle, 65536)
        if not data:
            return done
        *lines, pending = (pending + data).split(b"\n")
        for event in map(json.loads, lines):
            if "metric" in event:
                found[event["metric"]].append(event["seconds"])
            elif "sample" in event:
                watch.begin(event["sample"])
                child.stdin.write(b"\n")
                child.stdin.flush()
            elif "sampled" in event:
                found["memory " + event["sampled"]].append(watch.end())
            done = done or "done" in event
    child.kill()
    return False


def run_child(job: dict[str, Any], folder: Path, patience: float) -> dict[str, list[float]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")
    env["OMP_WAIT_POLICY"] = "PASSIVE"  # threads that spin would take the core of a save
    places = [env.get("PYTHONPATH"), str(HERE.parent / "python")]
    env["PYTHONPATH"] = os.pathsep.join(p for p in places if p)
    errors = folder.parent / "errors.txt"
    found: dict[str, list[float]] = defaultdict(list)
    with open(errors, "wb") as log:
        child = subprocess.Popen(
            [sys.executable, str(HERE / "peers" / "measure.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env,
        )  # fmt: skip
        child.stdin.write(json.dumps(dict(job, folder=str(folder))).encode() + b"\n")
        child.stdin.flush()
        done = listen(child, time.monotonic() + patience, found)
        child.wait()
    shutil.rmtree(folder, ignore_errors=True)
    if not done:
        tail = errors.read_text(errors="replace").strip().splitlines()[-1:] or ["no word"]
        print(f"\n  {job['contender']} did not finish: {tail[0]}", file=sys.stderr)
    return found


def find_limit(out: Path) -> Path | None:
    """The program of limit.c: taken from the build, or compiled here."""
    built, source = HERE.parent / "build" / "bench" / "limit", HERE / "limit.c"
    if built.exists() and built.stat().st_mtime > source.stat().st_mtime:
        return built
    program = out / "limit"
    command = [
        "cc",
        "-O2",
        "-D_GNU_SOURCE",
        "-DLIGI_HAVE_URING=1",
        "-o",
        program,
        HERE / "limit.c",
        "-luring",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"no limit: {done.stderr.strip().splitlines()[0]}", file=sys.stderr)
        return None
    return program


def run_limit(program: Path, folder: Path, total: int) -> dict[str, list[float]]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(program), str(folder), str(total), "repeat=3", f"pause={REST_MS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    times = json.loads(done.stdout)
    writes, reads = times["write_s"], times["read_s"]
    return {"first": writes[:1], "save": writes, "cold place": reads}


class Run:
    def __init__(self, args: argparse.Namespace):
        self.args, self.cases = args, make_cases(args.quick)
        self.out = HERE / "out"
        self.folder = Path(args.folder) if args.folder else self.out / "data"
        self.out.mkdir(exist_ok=True)
        self.limit = find_limit(self.out)
        self.found: dict[str, dict[str, dict[str, list[float]]]] = {}

    def contenders(self, case: str) -> list[str]:
        names = list(TRAINING_CONTENDERS if case == "training" else FILE_CONTENDERS)
        if self.limit and case != "training":
            names.insert(0, "limit")
        if self.args.only:
            names = [n for n in names if n in self.args.only]
        elif self.args.quick:
            names = [n for n in names if n in QUICK and (case == "training" or n != "dcp async")]
        return names

    def one(self, case: str, name: str) -> dict[str, list[float]]:
        job = dict(self.cases[case], contender=name, system_wide=not self.args.gentle)
        if name == "limit":
            return run_limit(self.limit, self.folder / "limit", sum(job["sizes"]))
        if case == "small" and name in SCALED:
            job["sizes"] = job["sizes"][::SCALE]
        job["repeats"] = self.args.rounds
        found = run_child(job, self.folder / "child", self.args.patience)
        if self.wants_memory(case, name, found):
            job["phase"] = "memory"
            found.update(run_child(job, self.folder / "child", self.args.patience))
        if case == "small" and name in SCALED:
            for metric, values in found.items():
                if not metric.startswith(("memory", "bytes")):
                    found[metric] = [v * SCALE for v in values]
        return found

    def wants_memory(self, case: str, name: str, found: dict[str, list[float]]) -> bool:
        """One run per contender, unless it is so slow that it would take minutes."""
        times = [t for values in found.values() for t in values]
        known = any(m.startswith("memory") for m in self.found[case][name])
        return case != "training" and not known and max(times, default=0) < SLOW_S

    def case(self, case: str) -> None:
        names = self.contenders(case)
        found = self.found[case] = {n: defaultdict(list) for n in names}
        rounds = 1 if case == "training" else self.args.rounds
        for index in range(rounds):
            for name in names:
                shown = f"{case}: round {index + 1} of {rounds}, {name}"
                print(f"\r{shown:60}", end="", file=sys.stderr, flush=True)
                if index and self.once(case, name):
                    continue
                for metric, values in self.one(case, name).items():
                    found[name][metric] += values
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr)

    def once(self, case: str, name: str) -> bool:
        """Whether one round of a contender is enough: more of them would take minutes."""
        times = [t for m, v in self.found[case][name].items() if "mem" not in m for t in v]
        known_slow = ONE_ROUND | (SCALED if case == "small" else set())
        return name in known_slow or max(times, default=0) > SLOW_S

    def medians(self) -> dict[str, dict[str, dict[str, float]]]:
        return {
            case: {
                name: {metric: statistics.median(v) for metric, v in found.items() if v}
                for name, found in contenders.items()
            }
            for case, contenders in self.found.items()
        }


def machine(folder: Path) -> dict[str, Any]:
    model = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x]
    memory = Path("/proc/meminfo").read_text().splitlines()[0].split()[1]
    return {
        "cpu": model[0].split(":")[1].strip() if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / MIB, 1),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
        "disk_free_gib": round(shutil.disk_usage(folder).free / (1 << 30), 1),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("limit", *FILE_CONTENDERS)
    parser.add_argument("--quick", action="store_true", help="small sizes, fewer peers, < 30 s")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--case", nargs="+", choices=("mixed", "small", "training"))
    parser.add_argument("--rounds", type=int, help="processes a contender (default 5)")
    parser.add_argument("--json", metavar="FILE", help="writes every sample and the bars")
    parser.add_argument("--folder", help="where to write (default bench/out/data)")
    parser.add_argument("--patience", type=float, default=900, help="seconds a process may take")
    parser.add_argument("--gentle", action="store_true", help="empties the cache of own files only")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 5)
    return args


def write(path: Path, about: dict[str, Any], run: Run) -> None:
    judged = [bar.record() for bar in bars(run.medians())]
    path.write_text(json.dumps({"machine": about, "samples": run.found, "bars": judged}, indent=1))


def main() -> None:
    args = arguments()
    run = Run(args)
    about = machine(run.out)
    print(", ".join(f"{k} {v}" for k, v in about.items()))
    for case in args.case or run.cases:
        run.case(case)
        if case == "training":
            print_training(run.cases[case], run.found[case])
        else:
            print_files(case, run.cases[case]["sizes"], run.found[case], SCALED)
        if args.json:  # after each case: a run that is stopped keeps what it has measured
            write(Path(args.json), about, run)
    shutil.rmtree(run.folder, ignore_errors=True)
    print_bars(bars(run.medians()), args.quick)
    picture = draw(run.medians(), run.out / "checkpoint.svg")
    if picture:
        print(f"picture: {picture}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Every benchmark, in at most half an hour on two cores; one table of bars at the end.

    run.py [NAME ...] [--keep MACHINE]

Each benchmark gets a limit of time and is stopped when it is over. Samples go to
bench/out/. --keep writes the bars to bench/results/MACHINE.json and makes docs/performance.md
from all the files there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT, RESULTS = HERE / "out", HERE / "results"
sys.path.insert(0, str(HERE / "peers"))
from bars import Bar, collect  # noqa: E402


@dataclass
class Program:
    arguments: tuple[str, ...]
    limit_s: int


PROGRAMS = {
    "checkpoint": Program(("--rounds", "2"), 900),
    "loads": Program(("--rounds", "3"), 120),
    "store": Program(("--rounds", "3"), 240),
    "commits": Program((), 60),
    "mesh": Program(("--repeat", "1"), 150),
    "ucx": Program(("--rounds", "1"), 60),
    "params": Program(("--repeat", "1"), 150),
    "pipe": Program((), 180),
    "pipe_step": Program(("--models", "gpt2", "resnet"), 120),
    "distributed": Program(("--mib", "512", "--rounds", "2"), 360),
}


def run(name: str, program: Program) -> dict[str, Any]:
    """What one benchmark found; `ended` says how."""
    path = OUT / f"{name}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / f"{name}.py"), *program.arguments, "--json", str(path)]
    print(f"\n== {name} (at most {program.limit_s} s)", flush=True)
    begin = time.monotonic()
    child = subprocess.Popen(command, start_new_session=True)
    try:
        status: int | None = child.wait(timeout=program.limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        status = None
    found = json.loads(path.read_text()) if path.exists() else None
    ended = "out of time" if status is None else "no result" if found is None else "ran"
    if found and "skipped" in found:
        ended = f"skipped: {found['skipped']}"
    spent = time.monotonic() - begin
    return {"ended": ended, "seconds": spent, "bars": [bar.record() for bar in collect(found)]}


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30)),
        "kernel": platform.release().split("-")[0],
        "date": datetime.date.today().isoformat(),
    }


def print_table(found: dict[str, dict[str, Any]]) -> None:
    print()
    for name, each in found.items():
        print(f"{name}: {each['ended']}, {each['seconds']:.0f} s")
        for bar in collect(each):
            what, value, limit, verdict = bar.cells()
            print(f"    {what:<62} {value:>12} {limit:>12}  {verdict}")


# --- docs/performance.md ------------------------------------------------------------------------

INTRODUCTION = """# Performance

Made by `bench/run.py --keep MACHINE` from `bench/results/*.json`; `make bench` repeats the run.
Figures are ratios within one run, against a peer or against the limit of the hardware; *limit* is a
bare C program that moves the same bytes. What each benchmark does is in
[bench/README.md](../bench/README.md). Missed bars are in bold.
"""


def section(name: str, result: dict[str, Any]) -> list[str]:
    about = result["machine"]
    lines = [
        f"\n## {name}",
        f"{about['cores']} cores of {about['processor']}, {about['memory_gib']} GiB of memory, "
        f"Linux {about['kernel']}, {about['date']}.",
    ]
    for benchmark, found in result["benchmarks"].items():
        bars = collect(found)
        if found["ended"] != "ran":
            lines += ["", f"`bench/{benchmark}.py`: {found['ended']}."]
        if bars:
            lines += [
                "",
                f"`bench/{benchmark}.py`",
                "",
                "| what | measured | bar |",
                "|---|---|---|",
            ]
            lines += [row(bar) for bar in bars]
    return lines


def row(bar: Bar) -> str:
    what, value, limit, _ = bar.cells()
    against = f" ({bar.against})" if bar.against else ""
    shown = value if bar.met else f"**{value}**"
    return f"| {what}{against} | {shown} | {limit} |"


def write_page() -> None:
    lines = [INTRODUCTION.rstrip()]
    for path in sorted(RESULTS.glob("*.json")):
        lines += section(path.stem, json.loads(path.read_text()))
    (HERE.parent / "docs" / "performance.md").write_text("\n".join(lines) + "\n")


def keep(name: str, found: dict[str, dict[str, Any]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text())["benchmarks"] if path.exists() else {}
    benchmarks = {
        each: {**before, **found}[each] for each in PROGRAMS if each in {**before, **found}
    }
    result = {"machine": machine(), "benchmarks": benchmarks}
    path.write_text(json.dumps(result, indent=1) + "\n")
    write_page()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--keep", metavar="MACHINE", help="also write bench/results/MACHINE.json")
    given = parser.parse_args()
    unknown = set(given.names) - set(PROGRAMS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))} (one of {', '.join(PROGRAMS)})")
    OUT.mkdir(exist_ok=True)
    chosen = {name: PROGRAMS[name] for name in given.names or PROGRAMS}
    found = {name: run(name, program) for name, program in chosen.items()}
    print_table(found)
    if given.keep:
        keep(given.keep, found)
    whole = all(each["ended"].startswith(("ran", "skipped")) for each in found.values())
    return 0 if whole and all(bar.met for each in found.values() for bar in collect(each)) else 1


if __name__ == "__main__":
    sys.exit(main())

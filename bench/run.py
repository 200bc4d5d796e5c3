#!/usr/bin/env python3
"""Every benchmark, in at most half an hour on two cores; one table of bars at the end.

    run.py [NAME ...] [--keep MACHINE]
    run.py --page [FILE]

Each benchmark gets a limit of time and is stopped when it is over. Samples go to
bench/out/. --keep writes the bars to bench/results/MACHINE.json and makes docs/performance.md
from all the files there, as --page does alone. Benchmarks of a GPU write their own file
(bench/results/gpu).
"""

from __future__ import annotations

import argparse
import contextlib
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
PAGE = HERE.parent / "docs" / "performance.md"
GRACE_S = 15
sys.path.insert(0, str(HERE / "peers"))
from bars import Bar, collect  # noqa: E402


@dataclass
class Program:
    arguments: tuple[str, ...]
    limit_s: int


PROGRAMS = {
    "checkpoint": Program(("--rounds", "2"), 1000),
    "loads": Program(("--rounds", "3"), 120),
    "store": Program(("--rounds", "3"), 240),
    "commits": Program((), 60),
    "mesh": Program(("--repeat", "3"), 150),
    "ucx": Program(("--rounds", "1"), 60),
    "params": Program(("--repeat", "1"), 150),
    "pipe": Program((), 180),
    "pipe_step": Program(("--models", "gpt2", "resnet"), 120),
    "engines": Program((), 180),
    "serve": Program(("--rounds", "3"), 120),
    "distributed": Program(("--mib", "512", "--rounds", "2"), 360),
}


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends a benchmark and its servers with SIGTERM, then SIGKILL."""
    os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def run(name: str, program: Program) -> dict[str, Any]:
    """The result of one benchmark; `ended` is how it ended."""
    path = OUT / f"{name}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / f"{name}.py"), *program.arguments, "--json", str(path)]
    print(f"\n== {name} (at most {program.limit_s} s)", flush=True)
    begin = time.monotonic()
    child = subprocess.Popen(command, start_new_session=True)
    try:
        status: int | None = child.wait(timeout=program.limit_s)
    except subprocess.TimeoutExpired:
        end(child)
        status = None
    found = json.loads(path.read_text()) if path.exists() else None
    ended = "out of time" if status is None else "no result" if found is None else "ran"
    if found and "skipped" in found:
        ended = f"skipped: {found['skipped']}"
    spent = time.monotonic() - begin
    return {
        "ended": ended,
        "seconds": spent,
        "date": datetime.date.today().isoformat(),
        "bars": [bar.record() for bar in collect(found)],
    }


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30)),
        "kernel": platform.release().split("-")[0],
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

`bench/run.py --keep MACHINE` generates this page from `bench/results/*.json`; `make bench` runs the
benchmarks. `A / B` is the ratio of A to B, both measured in the same run. The *limit* is a bare C
program that transfers the same bytes; the *fastest peer* is named in brackets.
[bench/README.md](../bench/README.md) describes each benchmark. Figures that miss their target are
in bold.
"""

# Headings that differ from the name of the file of results.
TITLES = {"bench": "checkpoints"}

# What the rows of a GPU benchmark mean.
LEGENDS = {
    "bench": """A model on the GPU. *Drain* is the time until an asynchronous save is complete;
*limit* is a bare program on the same disk.""",
    "mesh": """Round trips of `push_pull` between two processes on one GPU: the median, and the
payload of both directions divided by it. The columns are transports; `mps` is NVIDIA's
Multi-Process Service. The rows:

- `copy`: a copy on the device without Ligament
- `arena`: tensors made by `mesh.empty(device="cuda")`
- `ready`: the same with `need_event=False`
- `torch`: ordinary tensors
- `stream`: the same with `wait(stream=)`
- `graph`: a captured CUDA graph
- `staged`: tensors copied through host memory""",
    "params": """Time per batch of an embedding with Zipf-distributed or uniform ids, in host memory
and on the GPU. *First* are the first batches of a module, *hits* the share of ids found in the
cache.""",
}


def section(name: str, result: dict[str, Any]) -> list[str]:
    about = result["machine"]
    lines = [
        f"\n## {name}",
        f"{about['cores']} cores of {about['processor']}, {about['memory_gib']} GiB of memory, "
        f"Linux {about['kernel']}.",
    ]
    for benchmark, found in result["benchmarks"].items():
        bars = collect(found)
        if found["ended"] != "ran":
            lines += ["", f"`bench/{benchmark}.py`, {found['date']}: {found['ended']}."]
        if bars:
            lines += ["", f"`bench/{benchmark}.py`, {found['date']}", *bar_table(bars)]
    return lines


def row(bar: Bar) -> str:
    what, value, limit, _ = bar.cells()
    against = f" ({bar.against})" if bar.against else ""
    shown = value if bar.met else f"**{value}**"
    return f"| {what}{against} | {shown} | {limit} |"


def shown(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def figures(results: dict[str, dict[str, float]]) -> list[str]:
    """The measurements as a table with a column for each contender."""
    names = list(dict.fromkeys(what for each in results.values() for what in each))
    lines = ["", f"| | {' | '.join(results)} |", "|---" * (len(results) + 1) + "|"]
    for name in names:
        cells = [shown(each[name]) if name in each else "" for each in results.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def gpu_section(path: Path) -> list[str]:
    """A benchmark that runs only on the GPU machine."""
    found = json.loads(path.read_text())
    about = found["machine"]
    lines = [
        f"\n## {about['gpu']}: {TITLES.get(path.stem, path.stem)}",
        f"{about['cores']} cores, torch {about['torch']}, {found['date']}.",
    ]
    if path.stem in LEGENDS:
        lines += ["", LEGENDS[path.stem]]
    if found.get("results"):
        lines += figures(found["results"])
    return lines + bar_table(collect(found))


def bar_table(bars: list[Bar]) -> list[str]:
    return ["", "| quantity | measured | target |", "|---|---|---|", *map(row, bars)]


def write_page(page: Path = PAGE) -> None:
    lines = [INTRODUCTION.rstrip()]
    for path in sorted(RESULTS.glob("*.json")):
        lines += section(path.stem, json.loads(path.read_text()))
    for path in sorted((RESULTS / "gpu").glob("*.json")):
        lines += gpu_section(path)
    page.write_text("\n".join(lines) + "\n")


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
    parser.add_argument(
        "--page",
        nargs="?",
        type=Path,
        const=PAGE,
        metavar="FILE",
        help="only write docs/performance.md, or FILE",
    )
    given = parser.parse_args()
    if given.page:
        write_page(given.page)
        return 0
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

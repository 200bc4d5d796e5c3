"""What does an access of a row of the parameter manager cost: local, remote, and when it is
relocated?

    .venv/bin/python bench/params.py [--quick] [--repeat N] [--only PART ...] [--realtime]

Parts: local, latency, rate, intent, sample, idle, python. Limits are measured in the same run: a
bare gather and scatter-add through the same index (params_local.c), a bare ring and a bare TCP
connection that wait as ours do (ring_limit.c, mesh_limits.c). Contenders take turns; a figure is
the median over all repeats. The curve over accesses per relocation goes to out/params.svg.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from bars import Bar, show  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LENGTHS = (10, 100, 200)
ACCESSES = (1, 2, 4, 8, 16)
Figure = tuple[str, ...]


class Bench:
    """Runs programs and keeps every sample."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.samples: dict[Figure, list[float]] = {}
        self.bars: list[Bar] = []
        self.prefix = ["chrt", "-r", "5"] if options.realtime and shutil.which("chrt") else []

    def note(self, *name: str, value: float) -> None:
        """Adds a sample."""
        self.samples.setdefault(name, []).append(value)

    def get(self, *name: str) -> float | None:
        """The median, None where there is none."""
        found = self.samples.get(name)
        return statistics.median(found) if found else None

    def run(self, command: list[str]) -> list[dict[str, Any]]:
        """The lines of JSON that a program prints."""
        done = subprocess.run(
            self.prefix + command, capture_output=True, text=True, check=False, timeout=600
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def program(self, name: str, *words: str) -> list[dict[str, Any]]:
        """A program of the build."""
        return self.run([str(Path(self.options.build) / "bench" / name), *words])

    def remote(self, mode: str, **values: object) -> dict[str, Any]:
        """params_remote.c."""
        words = (f"{name}={value}" for name, value in values.items())
        (row,) = self.program("params_remote", mode, *words)
        return row

    def bar(
        self, text: str, value: float | None, limit: float, most: bool, unit: str = "x"
    ) -> None:
        """Adds a target."""
        if value is None:
            return
        self.bars.append(show(Bar(text, value, limit, not most, unit)))

    def share(self, text: str, ours: Figure, limit: Figure, least: float) -> None:
        """Adds a target relative to another figure."""
        first, second = self.get(*ours), self.get(*limit)
        if first is not None and second:
            self.bar(text, first / second, least, most=False)


# --- what is measured -----------------------------------------------------------------------------


def local(bench: Bench) -> None:
    """One process, compared with the bare loops: rows per second of a thread's CPU time."""
    ways = {"gather": "gather_mrows", "pull": "pull_mrows", "pull / gather": "pull_ratio"}
    ways |= {"scatter": "add_mrows", "push": "push_mrows", "push / scatter": "push_ratio"}
    for length in LENGTHS:
        for threads in (1, 2):
            words = [f"length={length}", f"threads={threads}"]
            words += ["mb=256", "rounds=11"] if bench.options.quick else []
            for row in bench.program("params_local", *words):
                for name, column in ways.items():
                    bench.note("local", name, str(length), str(threads), value=row[column])


def latency(bench: Bench) -> None:
    """One key, two processes."""
    for transport in ("shm", "tcp"):
        row = bench.remote("latency", transport=transport)
        for name in ("pull_p50_us", "pull_p99_us", "push_p50_us", "push_p99_us"):
            bench.note("latency", transport, name, value=row[name])
    (ring,) = bench.program("ring_limit", "rounds=5000", "repeat=1")
    bench.note("latency", "bare ring", "pull_p50_us", value=ring["ring_bell_8"]["p50"])
    bench.note("latency", "bare ring", "pull_p99_us", value=ring["ring_bell_8"]["p99"])
    for row in bench.program("mesh_limits", "rounds=1", "scheme=tcp"):
        if row["size"] == "8B":
            bench.note("latency", "bare TCP", "pull_p50_us", value=row["bare_p50_us"])
            bench.note("latency", "bare TCP", "pull_p99_us", value=row["bare_p99_us"])


def rate(bench: Bench) -> None:
    """Batches of 1000: `one` node sends requests, or `all` do."""
    quick = bench.options.quick
    for length in (100,) if quick else LENGTHS:
        for what in ("pull", "push"):
            for nodes, threads, both in ((2, 1, 0), (2, 1, 1), (2, 2, 1), (4, 1, 1)):
                if quick and (nodes, threads, both) != (2, 1, 0):
                    continue
                row = bench.remote(
                    "rate",
                    what=what,
                    nodes=nodes,
                    threads=threads,
                    both=both,
                    length=length,
                    seconds=bench.options.seconds,
                )
                who = f"{nodes} processes x {threads}, {'all request' if both else 'one requests'}"
                bench.note("rate", what, str(length), who, value=row["keys_per_s"])
    for what in ("pull", "push"):
        row = bench.remote("rate", what=what, transport="tcp", seconds=bench.options.seconds)
        bench.note(
            "rate", what, "100", "2 processes x 1, one requests, tcp", value=row["keys_per_s"]
        )


def intent(bench: Bench) -> None:
    """400,000 keys a node, homed at the other: pull, push, advance in batches of 100."""
    keys = 200_000 if bench.options.quick else 800_000
    for accesses in ACCESSES:
        base = {"accesses": accesses, "batch": 100, "keys": keys}
        here = bench.remote("intent", own=1, ahead=0, **base)
        bench.note("intent", "here", str(accesses), value=here["keys_per_s"])
        told = bench.remote("intent", own=1, ahead=bench.options.ahead, **base)
        bench.note("intent", "here, told", str(accesses), value=told["keys_per_s"])
        for once, name in ((1, "moved, once"), (0, "moved")):
            moved = bench.remote("intent", ahead=bench.options.ahead, once=once, **base)
            bench.note("intent", name, str(accesses), value=moved["keys_per_s"])
            here = moved["local"] + moved["replica"]
            bench.note("intent", f"local: {name}", str(accesses), value=here)
            bench.note("intent", "relocations", str(accesses), value=moved["relocations"])
    none = bench.remote("intent", ahead=0, accesses=1, batch=100, keys=keys)
    bench.note("intent", "none", "1", value=none["keys_per_s"])


def sample(bench: Bench) -> None:
    """Rows of 100 floats, 100 at a time."""
    for scheme in ("local", "naive", "preloc", "pool"):
        row = bench.remote("sample", what=scheme, nodes=1, batch=100, seconds=bench.options.seconds)
        bench.note("sample", scheme, "1", value=row["keys_per_processor_s"])
    row = bench.remote("sample", what="local", nodes=2, batch=100, seconds=bench.options.seconds)
    bench.note("sample", "local", "2", value=row["keys_per_s"])


def idle(bench: Bench) -> None:
    """The cost of an idle node."""
    for nodes in (2, 4):
        row = bench.remote("idle", nodes=nodes, seconds=3)
        bench.note("idle", str(nodes), value=row["idle"])


def python(bench: Bench) -> None:
    """One key per call and a thousand, compared with a thousand in C."""
    row = bench.remote("rate", nodes=1, what="pull", window=1, seconds=bench.options.seconds)
    bench.note("python", "C", "pull", value=row["keys_per_s"])
    row = bench.remote("rate", nodes=1, what="push", window=1, seconds=bench.options.seconds)
    bench.note("python", "C", "push", value=row["keys_per_s"])
    for row in bench.run([sys.executable, str(Path(__file__)), "--in-python"]):
        for name in ("one_us", "pull", "push"):
            bench.note("python", row["arrays"], name, value=row[name])


def in_python() -> None:
    """A separate process: one node, rows of 100 floats, the same key lists as in C."""
    import numpy as np
    from ligament import params

    keys, length, batch, lists = 800_000, 100, 1000, 400
    params.setup(keys, 1)
    server = params.Server(length)
    worker = params.Worker(0, server)
    for first in range(0, keys, batch):  # unwritten rows may share one page of zeros
        worker.set(np.arange(first, first + batch), np.ones((batch, length), np.float32))
    draws = np.random.default_rng(1).integers(keys, size=(lists, batch))
    arrays = {"numpy": lambda x: x}
    try:
        import torch

        arrays["torch"] = torch.from_numpy
    except ImportError:
        pass
    for name, convert in arrays.items():
        ones = [convert(row[:1].copy()) for row in draws]
        many = [convert(row.copy()) for row in draws]
        row, rows = (convert(np.zeros((n, length), np.float32)) for n in (1, batch))
        found = {"arrays": name, "one_us": 1e6 / per_second(worker.pull, ones, row)}
        found["pull"] = batch * per_second(worker.pull, many, rows)
        found["push"] = batch * per_second(worker.push, many, rows)
        print(json.dumps(found), flush=True)
    worker.finalize()
    server.shutdown()


def per_second(call: Any, lists: list[Any], values: Any) -> float:
    """Calls a second, the median of several stretches."""
    rates = []
    for _ in range(9):
        rounds, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.15:
            for keys in lists:
                call(keys, values)
            rounds += len(lists)
        rates.append(rounds / (time.perf_counter() - start))
    return statistics.median(rates)


PARTS = {
    "local": local,
    "latency": latency,
    "rate": rate,
    "intent": intent,
    "sample": sample,
    "idle": idle,
    "python": python,
}


# --- output ---------------------------------------------------------------------------------------


def millions(value: float | None) -> str:
    """Keys a second."""
    return f"{'-':>9}" if value is None else f"{value / 1e6:9.2f}"


def print_tables(bench: Bench) -> None:
    """Prints all medians, one table per part."""
    get = bench.get
    if get("local", "pull", "100", "1"):
        print("\nlocal, M rows/s     gather     pull        %  scatter     push        %")
        for length in LENGTHS:
            for threads in (1, 2):
                line = f"{length:4} floats x {threads}   "
                for limit, ours in (("gather", "pull"), ("scatter", "push")):
                    names = (limit, ours, f"{ours} / {limit}")
                    found = [get("local", name, str(length), str(threads)) or 0 for name in names]
                    line += f"{found[0]:9.2f}{found[1]:9.2f}{found[2]:9.0%}"
                print(line)
    if get("latency", "shm", "pull_p50_us"):
        print("\none key, us      pull p50      p99 push p50      p99")
        for who in ("shm", "bare ring", "tcp", "bare TCP"):
            found = [
                get("latency", who, f"{what}_{p}_us")
                for what in ("pull", "push")
                for p in ("p50", "p99")
            ]
            print(f"{who:16}" + "".join(f"{'-':>9}" if x is None else f"{x:9.2f}" for x in found))
    rates = sorted({name[1:] for name in bench.samples if name[0] == "rate"})
    if rates:
        print("\nremote, M keys/s, batches of 1000, 4 in flight")
        for what, length, who in sorted(rates, key=lambda r: (r[0], int(r[1]), r[2])):
            print(f"{what} {length:>4} floats, {who:34}{millions(get('rate', what, length, who))}")
    if get("intent", "moved", "8"):
        print(
            "\nintent, M keys/s   local + intent | sig. once    %    local | each time    %", end=""
        )
        print("    local  relocations")
        for n in map(str, ACCESSES):
            here, told = (get("intent", name, n) or 1 for name in ("here", "here, told"))
            line = f"{n:>3} accesses  {millions(here)}{millions(told)} "
            for name in ("moved, once", "moved"):
                moved, near = (get("intent", which, n) or 0 for which in (name, f"local: {name}"))
                line += f"{millions(moved)}{moved / here:9.0%}{near:9.2%}"
            print(f"{line}{get('intent', 'relocations', n):13,.0f}")
        print(f"  1, no intent                    {millions(get('intent', 'none', '1'))}")
    for scheme in ("local", "naive", "preloc", "pool"):
        if get("sample", scheme, "1"):
            print(f"sampling, {scheme:8} 1 process  {millions(get('sample', scheme, '1'))} M/s")
    if get("python", "C", "pull"):
        print("\nPython         one key, us   pull M/s   push M/s, batches of 1000")
        for who in ("C", "numpy", "torch"):
            one = get("python", who, "one_us")
            print(
                f"{who:14}{'-' if one is None else f'{one:.2f}':>12}"
                f"  {millions(get('python', who, 'pull'))}  {millions(get('python', who, 'push'))}"
            )


def print_bars(bench: Bench) -> None:
    """The targets."""
    print()
    get = bench.get
    for length in ("100", "200"):
        for threads in ("1", "2"):
            for name, least in (("pull / gather", 0.8), ("push / scatter", 0.7)):
                text = f"rate of local {name}, rows of {length} floats, threads: {threads}"
                bench.bar(text, get("local", name, length, threads), least, False)
    bench.bar(
        "remote pull of one key over shm, p50", get("latency", "shm", "pull_p50_us"), 5, True, "us"
    )
    ours, bare = get("latency", "tcp", "pull_p50_us"), get("latency", "bare TCP", "pull_p50_us")
    if ours and bare:
        bench.bar("remote pull of one key over tcp, p50 / bare TCP", ours / bare, 2.5, True)
    for what in ("pull", "push"):
        found = get("rate", what, "100", "2 processes x 1, one requests")
        bench.bar(
            f"rate of remote {what}, rows of 400 bytes", found and found / 1e6, 4, False, "M/s"
        )
    for n in ("8", "16"):
        for name, said in (("moved, once", "signalled once"), ("moved", "signalled each time")):
            text = f"intent {said}, {n} accesses"
            bench.bar(f"{text}: share of local", get("intent", f"local: {name}", n), 0.99, False)
            ours, here = ("intent", name, n), ("intent", "here", n)
            bench.share(f"{text}: rate / local rows only", ours, here, 0.6)
    found = get("sample", "local", "1")
    bench.bar("rate of sampling, scheme local", found and found / 1e6, 6, False, "M/s")
    for nodes in ("2", "4"):
        bench.bar(f"share of a core used while idle, {nodes} nodes", get("idle", nodes), 0.01, True)
    for who in ("numpy", "torch"):
        bench.bar(
            f"time of a Python pull of one key, {who}", get("python", who, "one_us"), 2, True, "us"
        )
        bench.share(
            f"rate of Python pulls of 1000 keys, {who} / C",
            ("python", who, "pull"), ("python", "C", "pull"), 0.8,
        )  # fmt: skip


def draw(bench: Bench, path: Path) -> None:
    """Speed and locality over accesses per relocation."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    def curve(name: str) -> list[float]:
        return [bench.get("intent", name, str(n)) or 0 for n in ACCESSES]

    figure, panel = plt.subplots(figsize=(7, 4.2))
    here = curve("here")
    for name, label, style in (
        ("moved, once", "intent signalled once per key", "o-"),
        ("moved", "intent signalled for each access", "^-"),
    ):
        speed = [moved / most for moved, most in zip(curve(name), here, strict=True)]
        panel.semilogx(ACCESSES, speed, style, base=2, label=f"speed / purely local run, {label}")
    local_share = curve("local: moved")
    panel.semilogx(ACCESSES, local_share, "s--", base=2, label="accesses that were local")
    panel.axhline(0.6, color="tab:blue", alpha=0.4, linestyle=":")
    panel.axhline(0.99, color="tab:green", alpha=0.4, linestyle=":")
    panel.set(
        xlabel="accesses per relocation",
        title="Rows relocated ahead of use (400-byte rows, 2 processes)",
        ylim=(0, 1.08),
        xticks=ACCESSES,
        xticklabels=ACCESSES,
    )
    panel.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    panel.grid(True, which="major", alpha=0.3)
    panel.legend(loc="upper left", bbox_to_anchor=(0.01, 0.92))
    figure.tight_layout()
    figure.savefig(path)
    print(f"\n{path}")


def main() -> int:
    """Runs everything, alternating."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once, fewer rows and cases")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of each rate")
    parser.add_argument("--ahead", type=int, default=200, help="clocks between intent and access")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--json", help="every sample, and the bars")
    parser.add_argument("--realtime", action="store_true", help="under chrt -r (root)")
    parser.add_argument("--in-python", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_python:
        in_python()
        return 0
    if options.quick:
        options.repeat, options.seconds = 1, min(options.seconds, 0.5)
    bench = Bench(options)
    for _ in range(options.repeat):
        for part in options.only:
            PARTS[part](bench)
    print_tables(bench)
    print_bars(bench)
    (HERE / "out").mkdir(exist_ok=True)
    if "intent" in options.only:
        draw(bench, HERE / "out/params.svg")
    if options.json:
        samples = {" / ".join(name): values for name, values in bench.samples.items()}
        Path(options.json).write_text(
            json.dumps({"samples": samples, "bars": [b.record() for b in bench.bars]}, indent=1)
        )
    return 0 if all(bar.met for bar in bench.bars) else 1


if __name__ == "__main__":
    sys.exit(main())

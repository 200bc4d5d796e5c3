#!/usr/bin/env python3
"""The model store: search, incremental save, load of a prefix, many small models; each against its
limit or its peer in the same run."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ligament
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from bars import Bar, show  # noqa: E402

BUILT = HERE.parent / "build" / "bench"
MIB = 1 << 20
TINY = {"x": np.zeros(1)}


def program(name: str, *words: object) -> list[dict[str, Any]]:
    """The lines of JSON that one of the C programs prints."""
    command = [str(BUILT / name), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def median(values: list[float]) -> float:
    return statistics.median(values)


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def told(what: str, value: float, bar: float, unit: str) -> dict[str, Any]:
    return show(Bar(what, value, bar, unit=unit)).record()


# --- the search ---------------------------------------------------------------------------------


def search(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """How the search grows, on both populations."""
    print("\nsearch for the longest common prefix, ms (60 layers a model)")
    print("  population   models   find p50   find p99   scan p50   wrong   open   RssAnon MiB")
    rows: list[dict[str, Any]] = []
    for population in ("evolved", "shared"):
        place = folder / population
        rows += program("prefix_search", place, population, *args.models)
        shutil.rmtree(place, ignore_errors=True)
        for row in rows:
            if row["population"] == population:
                print(
                    f"  {population:<10} {row['models']:8} {row['find_p50_ms']:10.3f} "
                    f"{row['find_p99_ms']:10.3f} {row['scan_p50_ms']:10.3f} {row['wrong']:7} "
                    f"{row['open_ms']:6.1f} {row['rss_anon_mib']:8.1f}"
                )
    bars = [
        told(
            f"search p50, {row['models']} models, population {row['population']}",
            row["find_p50_ms"],
            bar,
            "ms",
        )  # fmt: skip
        for row in rows
        for models, bar in ((10_000, 1.0), (100_000, 5.0))
        if row["models"] == models
    ]
    wrong = sum(row["wrong"] for row in rows)
    bars.append(told("searches whose result differs from a linear scan", wrong, 0, ""))
    most = max(rows, key=lambda row: row["models"])
    opened = f"time to open a store of {most['models']} models"
    bars.append(told(opened, most["open_ms"] / 1e3, 0.5, "s"))
    bars.append(told("RssAnon after opening and one search", most["rss_anon_mib"], 100, "MiB"))
    return {"rows": rows, "bars": bars}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6.5, 4))
    for population, colour in (("evolved", "tab:blue"), ("shared", "tab:orange")):
        mine = [row for row in rows if row["population"] == population]
        counts = [row["models"] for row in mine]
        panel.loglog(
            counts,
            [row["find_p50_ms"] for row in mine],
            "o-",
            color=colour,
            label=f"{population}: find",
        )
        panel.loglog(
            counts,
            [row["scan_p50_ms"] for row in mine],
            "s--",
            color=colour,
            alpha=0.5,
            label=f"{population}: scan in memory",
        )
    panel.set(xlabel="stored models", ylabel="ms (p50)", title="Longest common prefix")
    panel.grid(True, which="major", alpha=0.3)
    panel.legend()
    figure.tight_layout()
    figure.savefig(path)
    print(f"  {path}")


# --- a model with few changes -------------------------------------------------------------------


def big_tree(count: int, size: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {f"l{i}.w": rng.integers(0, 1 << 62, size // 8) for i in range(count)}


def incremental(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """5 % of the bytes have changed since the parent was saved."""
    count, size = args.mib // 4, 4 * MIB
    tree = big_tree(count, size)
    changed = max(count // 20, 1)
    saves, hashes, writes, commits = [], [], [], []
    with ligament.Store(folder / "incremental") as store:
        store.save("m0", tree)
        for number in range(1, args.rounds + 1):
            for i in range(changed):
                tree[f"l{(number * changed + i) % count}.w"] += 1
            before = store.stats()["stored_bytes"]
            parent = f"m{number - 1}"
            saves.append(timed(lambda n=number, p=parent: store.save(f"m{n}", tree, parent=p)))  # type: ignore[misc]
            written = store.stats()["stored_bytes"] - before
            hashes += program("hash_limit", count * size, "threads=2", "repeat=1")[0]["hash_s"]
            writes += program("limit", folder, changed * size, "repeat=1")[0]["write_s"]
            commits.append(timed(lambda n=number: store.save(f"tiny{n}", TINY)))  # type: ignore[misc]
    limit = median(hashes) + median(writes) + median(commits)
    print(f"\na model of {count * size / MIB:.0f} MiB, 5 % changed, saved with its parent")
    print(
        f"  save {median(saves):.3f} s; hash of all {median(hashes):.3f} s + write of the changed "
        f"{median(writes):.3f} s + commit {median(commits):.3f} s = {limit:.3f} s"
    )
    allowed = changed * size * 1.01 + 64 * 1024 + 64 * count
    bars = [
        told("5 % changed: save time / hash + write + commit", median(saves) / limit, 1.4, "x"),
        told("5 % changed: bytes written / bytes allowed", written / allowed, 1.0, "x"),
    ]
    shutil.rmtree(folder / "incremental", ignore_errors=True)
    return {"save_s": saves, "hash_s": hashes, "write_s": writes, "commit_s": commits, "bars": bars}


# --- the prefix alone ---------------------------------------------------------------------------


def chain(count: int, last: str) -> ligament.Graph:
    names = [f"l{i}" for i in range(count)]
    marks = [(name, "layer" if i < count // 2 else last) for i, name in enumerate(names)]
    return ligament.Graph(marks, list(zip(names, names[1:], strict=False)))


def forget(folder: Path) -> None:
    """Takes the files out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm_read(path: Path, into: dict[str, Any]) -> float:
    """Plain reads of as many bytes from a file in the page cache, into the same memory."""
    begin = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        for value in into.values():
            file.readinto(value)
    return time.perf_counter() - begin


def prefix_load(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Half of a model's layers are in common with the asking one."""
    count, size = args.mib // 4, 4 * MIB
    place = folder / "prefix"
    colds, warms, limits, plain = [], [], [], []
    with ligament.Store(place) as store:
        store.save("m", big_tree(count, size), graph=chain(count, "old"))
        match = store.find(chain(count, "new"))
        into = {name: np.ones(size // 8, np.int64) for name in match.tensors}
        pack = next(place.rglob("*.pack"))
        bare = ("limit", folder, len(into) * size, "repeat=1", f"file={pack}")
        program(*bare)
        for _ in range(args.rounds):
            forget(place)
            colds.append(timed(lambda: store.load(match, into=into)))
            limits += program(*bare)[0]["read_s"]
        for _ in range(args.rounds):
            warm_read(pack, into)
            warms.append(timed(lambda: store.load(match, into=into)))
            plain.append(warm_read(pack, into))
    cold, warm = median(colds) / median(limits), median(warms) / median(plain)
    print(f"\nload of a prefix: {len(into) * size / MIB:.0f} of {count * size / MIB:.0f} MiB")
    print(
        f"  cold {median(colds):.3f} s, limit {median(limits):.3f} s; "
        f"warm {median(warms):.3f} s, plain reads {median(plain):.3f} s"
    )
    bars = [
        told("cold load time of a prefix / limit", cold, 1.3, "x"),
        told("warm load time of a prefix / plain reads", warm, 1.3, "x"),
    ]
    shutil.rmtree(place, ignore_errors=True)
    return {"cold_s": colds, "warm_s": warms, "limit_s": limits, "plain_s": plain, "bars": bars}


# --- many small models --------------------------------------------------------------------------


def small(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Durable saves of models of 20 tensors of 256 bytes, one after the other."""
    tree = {f"l{i}.w": np.full(64, i, np.float32) for i in range(20)}
    each = sum(value.nbytes for value in tree.values())
    with ligament.Store(folder / "small") as store:
        ours = timed(lambda: [store.save(f"m{i}", tree) for i in range(args.small)])
        catalog = store.stats()["stored_bytes"] / args.small - each
    shutil.rmtree(folder / "small", ignore_errors=True)
    print(f"\n{args.small} small models ({each} bytes), each durable")
    print(f"  ligament: {args.small / ours:.0f} a second, {catalog:.0f} bytes besides the tensors")
    found = {"models": args.small, "ligament_s": ours, "catalog_bytes": catalog}
    try:
        from safetensors.numpy import save_file
    except ImportError:
        return found
    place = folder / "files"
    place.mkdir()

    def one(number: int) -> None:
        path = place / f"m{number}.safetensors"
        save_file(tree, path)
        for opened in (path, place):
            handle = os.open(opened, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)

    theirs = timed(lambda: [one(i) for i in range(args.small)])
    used = sum(path.stat().st_blocks * 512 for path in place.iterdir()) / args.small - each
    print(f"  safetensors: {args.small / theirs:.0f} a second, {used:.0f} bytes besides on disk")
    shutil.rmtree(place)
    return {**found, "safetensors_s": theirs, "safetensors_bytes": used}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", default=["search", "incremental", "prefix", "small"])
    parser.add_argument("--models", nargs="+", type=int, default=[1000, 3000, 10_000, 30_000])
    parser.add_argument("--full", action="store_true", help="also 100,000 models, 10,000 small")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--small", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one beside bench/")
    parser.add_argument("--json", type=Path, help="every sample")
    args = parser.parse_args()
    if args.quick:
        args.models, args.mib, args.small, args.rounds = [300, 1000], 64, 200, 3
    if args.full:
        args.models, args.small = [*args.models, 100_000], 10_000
    return args


def main() -> int:
    args = arguments()
    if not (BUILT / "prefix_search").exists():
        print("no programs: run `make` first", file=sys.stderr)
        return 1
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=args.folder or out))
    cases = {"search": search, "incremental": incremental, "prefix": prefix_load, "small": small}
    found: dict[str, Any] = {}
    try:
        for name in args.case:
            found[name] = cases[name](folder, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "search" in found:
        draw(found["search"]["rows"], out / "prefix.svg")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

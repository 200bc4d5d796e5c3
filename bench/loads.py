#!/usr/bin/env python3
"""Loads of one model again and again, and by several processes: the first from the disk, later ones
from the page cache. Against safetensors (load and copy into place) in the same run.

    loads.py [--mib 512] [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import safetensors.numpy

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from bars import Bar, show  # noqa: E402

MIB = 1 << 20
TENSOR_MIB = 16
PROCESSES = 4
Tensors = dict[str, np.ndarray[Any, Any]]


def tensors(mib: int) -> Tensors:
    random = np.random.default_rng(1)
    return {
        f"t{i}": random.integers(0, 255, TENSOR_MIB * MIB, dtype=np.uint8)
        for i in range(mib // TENSOR_MIB)
    }


def drop_caches(folder: Path) -> None:
    """Evicts the files of a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def disk_bytes() -> int:
    """The bytes that this process has read from disks, including the kernel's read-ahead."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def peer_load(path: Path, out: Tensors) -> None:
    for name, value in safetensors.numpy.load_file(path).items():
        np.copyto(out[name], value)


def quiet(folder: Path) -> None:
    """Waits until the cached part of the packs no longer grows."""
    before = -1
    while (now := cached(folder)) != before:
        before = now
        time.sleep(0.3)


def cached(folder: Path) -> int:
    done = subprocess.run(
        ["fincore", "-b", "-n", "-o", "RES", *map(str, (folder / "packs").iterdir())],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return sum(map(int, done.stdout.split()))


def repeated(folder: Path, mib: int, rounds: int) -> dict[str, float]:
    model = tensors(mib)
    ligament.Store(folder / "store").save("model", model)
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(model, path)
    out = {name: np.ones_like(value) for name, value in model.items()}
    times: dict[str, list[float]] = {"first": [], "past the cache": [], "second": [], "peer": []}
    peer_load(path, out)
    for _ in range(rounds):
        for name, query in (("past the cache", "?direct=1"), ("first", "")):
            store = ligament.Store(f"{folder}/store{query}")
            drop_caches(folder / "store")
            times[name].append(timed(partial(store.load, "model", into=out)))
        quiet(folder / "store")
        times["second"].append(timed(partial(store.load, "model", into=out)))
        times["peer"].append(timed(lambda: peer_load(path, out)))
    assert all(np.array_equal(out[name], model[name]) for name in model)
    return {name: statistics.median(values) for name, values in times.items()}


def child(place: str, mib: int) -> None:
    out = {name: np.ones_like(value) for name, value in tensors(mib).items()}
    store = ligament.Store(place)
    print("ready", flush=True)
    sys.stdin.readline()
    before = disk_bytes()
    spent = timed(lambda: store.load("model", into=out))
    print(json.dumps({"seconds": spent, "bytes": disk_bytes() - before}), flush=True)
    os._exit(0)


def together(folder: Path, mib: int, count: int) -> tuple[float, int]:
    """Seconds until the last of `count` processes has the model, and bytes read from the disk."""
    command = [sys.executable, __file__, "--child", str(folder / "store"), "--mib", str(mib)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for each in running:
        assert each.stdout is not None and each.stdout.readline() == "ready\n"
    drop_caches(folder / "store")
    for each in running:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    answers = [json.loads(each.communicate()[0]) for each in running]
    return max(each["seconds"] for each in answers), sum(each["bytes"] for each in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="where files go; default: beside this program")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.mib)
    with tempfile.TemporaryDirectory(dir=args.folder or Path(__file__).parent) as place:
        folder = Path(place)
        times = repeated(folder, args.mib, args.rounds)
        for name, seconds in times.items():
            print(f"  {name:<20} {seconds * 1e3:8.1f} ms")
        alone = [together(folder, args.mib, 1) for _ in range(args.rounds)]
        four = [together(folder, args.mib, PROCESSES) for _ in range(args.rounds)]
    one, all_four = (statistics.median(each[0] for each in runs) for runs in (alone, four))
    read = statistics.median(each[1] for each in four) / (args.mib * MIB)
    bars = [
        Bar(
            "second load time / safetensors' warm load and copy", times["second"] / times["peer"], 1
        ),
        Bar("first load time / load with direct=1", times["first"] / times["past the cache"], 1.03),
        Bar(f"cold load time, {PROCESSES} processes at once / 1 process", all_four / one, 2.2),
        Bar(f"bytes read by {PROCESSES} processes / size of the model", read, 1.1),
    ]
    for bar in bars:
        show(bar)
    if args.json:
        args.json.write_text(
            json.dumps({"times": times, "bars": [bar.record() for bar in bars]}, indent=1)
        )
    sys.exit(0 if all(bar.met for bar in bars) else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A model on a GPU, saved and loaded: Ligament, its peers and the limit of the disk, in one run.

    bench/gpu.py [--quick] [--gib N] [--folder FOLDER] [--json FILE]

8 GiB of bfloat16 in 282 tensors. Ligament comes first, so that its first asynchronous save is the
first one of the process. Durable means to the end of fsync of files and folders. A warm load finds
its files in the page cache, a cold one does not (root empties it). What was loaded is compared with
what was saved, on the device. `--quick` takes one round and stays below three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import ligament  # noqa: E402
from bars import Bar, show  # noqa: E402

LAYERS, VOCABULARY = 35, 28672
PIECE = 16 << 20


def model(gib: float) -> dict[str, torch.Tensor]:
    """A transformer's tensors, of about that many bytes."""
    width = int(2880 * (gib / 8) ** 0.5) // 32 * 32
    wide = width * 7 // 2
    shapes = {"embedding": (VOCABULARY, width), "norm": (width,)}
    for layer in range(LAYERS):
        attention = {f"layer{layer}.{name}": (width, width) for name in "qkvo"}
        dense = {"up": (wide, width), "gate": (wide, width), "down": (width, wide)}
        shapes |= attention | {f"layer{layer}.{name}": shape for name, shape in dense.items()}
        shapes[f"layer{layer}.norm"] = (width,)
    torch.manual_seed(0)
    return {
        name: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        for name, shape in shapes.items()
    }


def step(tensors: dict[str, torch.Tensor], square: torch.Tensor) -> None:
    """Changes every parameter, after some work."""
    for _ in range(10):
        square = square @ square * 1e-4
    torch._foreach_mul_(list(tensors.values()), 1.0078125)


def timed(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def sync(folder: Path) -> None:
    """Makes all files of a folder durable."""
    for place, _, files in os.walk(folder):
        for name in [*files, "."]:
            fd = os.open(Path(place) / name, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def warm(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(PIECE):
                    pass


def disk_limit(folder: Path, bytes_: int) -> tuple[float, float]:
    """Seconds to write the bytes past the page cache and to sync them, and to read them: by
    bench/limit.c where it was built, else by threads."""
    program = HERE.parent / "build/bench/limit"
    if program.exists():
        command = [program, folder, str(bytes_ // PIECE * PIECE), "repeat=1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found = json.loads(done.stdout)
            return found["write_s"][0], found["read_s"][0]
        print(f"bench/limit failed: {done.stderr.strip()}")
    return limit_by_threads(folder, bytes_)


def limit_by_threads(folder: Path, bytes_: int) -> tuple[float, float]:
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    path = folder / "limit"
    memory = mmap.mmap(-1, PIECE)
    memory.write(os.urandom(PIECE))
    offsets = range(0, bytes_ // PIECE * PIECE, PIECE)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    os.posix_fallocate(fd, 0, bytes_)
    with ThreadPoolExecutor(8) as pool:
        begin = time.perf_counter()
        list(pool.map(lambda at: os.pwrite(fd, memory, at), offsets))
        os.fsync(fd)
        wrote = time.perf_counter() - begin
        drop_caches()
        spaces = [mmap.mmap(-1, PIECE) for _ in range(64)]
        begin = time.perf_counter()
        list(pool.map(lambda at: os.preadv(fd, [spaces[at // PIECE % 64]], at), offsets))
        read = time.perf_counter() - begin
    os.close(fd)
    path.unlink()
    return wrote, read


def host_bytes() -> int:
    """The peak host memory of this process, without files."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Results(dict[str, dict[str, float]]):
    def note(self, who: str, what: str, value: float) -> None:
        self.setdefault(who, {})[what] = value
        print(f"{who:<12} {what:<34} {value:8.3f}", flush=True)


@contextmanager
def folder_for(root: Path, name: str) -> Iterator[Path]:
    """A folder that is removed before the next contender begins."""
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    for name, value in a.items():
        bits = b[name].view(torch.int16)
        assert b[name].is_cuda and torch.equal(value.view(torch.int16), bits), name


def run_ligament(root: Path, tensors: dict[str, torch.Tensor], results: Results) -> None:
    total = sum(t.nbytes for t in tensors.values())
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        step(tensors, square)
    quiet = statistics.median(timed(lambda: step(tensors, square)) for _ in range(5))
    results.note("ligament", "a training step, s", quiet)
    with folder_for(root, "ligament") as folder:
        store = ligament.Store(folder / "store")
        before = host_bytes()
        for word in ("first", "second"):
            expected = {name: t.clone() for name, t in tensors.items()} if word == "first" else {}
            tickets: list[Any] = []

            def save_and_step(word: str = word, tickets: list[Any] = tickets) -> None:
                tickets.append(store.save(word, tensors, wait=False))
                step(tensors, square)

            lost = timed(save_and_step) - quiet
            results.note("ligament", f"{word} async save: time lost, s", lost)
            drained = timed(tickets[0].result)
            results.note("ligament", f"{word} async save: drain, s", drained)
            if expected:
                same(expected, store.load(word, framework="torch", device="cuda"))
            del expected
            store.retire(word)
        step(tensors, square)
        results.note("ligament", "durable save, s", timed(lambda: store.save("m", tensors)))
        changed = list(tensors.values())[3 : 3 + max(1, len(tensors) // 100)]
        torch._foreach_mul_(changed, 1.5)
        results.note(
            "ligament", "1 % changed, s", timed(lambda: store.save("n", tensors, parent="m"))
        )
        into = {name: torch.empty_like(t) for name, t in tensors.items()}
        drop_caches()
        results.note("ligament", "load cold, s", timed(lambda: store.load("n", into=into)))
        same(tensors, into)
        warm(folder)
        loads = [timed(lambda: store.load("n", into=into)) for _ in range(5)]
        print("warm loads, s:", *(f"{seconds:.3f}" for seconds in loads))
        results.note("ligament", "load warm, s", statistics.median(loads))
        results.note("ligament", "load warm, GB/s", total / statistics.median(loads) / 1e9)
        into.clear()
        made: dict[str, Any] = {}

        def load_new() -> None:
            made.update(store.load("n", framework="torch", device="cuda"))

        loads = [timed(load_new) for _ in range(3)]
        same(tensors, made)
        results.note("ligament", "load new warm, s", statistics.median(loads))
        results.note("ligament", "load new warm, GB/s", total / statistics.median(loads) / 1e9)
        results.note("ligament", "host memory above, MiB", (host_bytes() - before) / (1 << 20))
        store.close()


def run_peer(
    root: Path,
    name: str,
    tensors: dict[str, torch.Tensor],
    results: Results,
    calls: tuple[Callable[[Path], Any], Callable[[Path, dict[str, torch.Tensor]], Any]],
) -> None:
    save, load = calls
    with folder_for(root, name.replace(".", "-")) as folder:

        def durably() -> None:
            save(folder)
            sync(folder)

        results.note(name, "durable save, s", timed(durably))
        into = {key: torch.empty_like(value) for key, value in tensors.items()}
        drop_caches()
        results.note(name, "load cold, s", timed(lambda: load(folder, into)))
        same(tensors, into)
        warm(folder)
        results.note(name, "load warm, s", timed(lambda: load(folder, into)))


def copy_all(loaded: dict[str, torch.Tensor], into: dict[str, torch.Tensor]) -> None:
    torch._foreach_copy_(list(into.values()), [loaded[name] for name in into])


def run_peers(root: Path, tensors: dict[str, torch.Tensor], results: Results) -> None:
    run_peer(
        root, "safetensors", tensors, results,
        (
            lambda folder: save_file(tensors, folder / "m.safetensors"),
            lambda folder, into: copy_all(load_file(folder / "m.safetensors", "cuda"), into),
        ),
    )  # fmt: skip
    run_peer(
        root, "torch.save", tensors, results,
        (
            lambda folder: torch.save(tensors, folder / "m.pt"),
            lambda folder, into: copy_all(
                torch.load(folder / "m.pt", map_location="cuda", weights_only=True), into
            ),
        ),
    )  # fmt: skip
    run_peer(
        root, "dcp", tensors, results,
        (
            lambda folder: dcp.save(tensors, checkpoint_id=folder / "m"),
            lambda folder, into: dcp.load(into, checkpoint_id=folder / "m"),
        ),
    )  # fmt: skip


def run_dcp_async(root: Path, tensors: dict[str, torch.Tensor], results: Results) -> None:
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    step(tensors, square)
    quiet = statistics.median(timed(lambda: step(tensors, square)) for _ in range(3))
    with folder_for(root, "dcp-async") as folder:
        waiting = []

        def save_and_step() -> None:
            waiting.append(dcp.async_save(tensors, checkpoint_id=folder / "m"))
            step(tensors, square)

        lost = timed(save_and_step) - quiet
        results.note("dcp async", "first async save: time lost, s", lost)
        results.note("dcp async", "first async save: drain, s", timed(waiting[0].result))


def bars(results: Results) -> list[Bar]:
    own, limit = results["ligament"], results["limit"]
    return [
        Bar(
            "training time lost to the first asynchronous save",
            own["first async save: time lost, s"] * 1e3,
            30,
            unit="ms",
        ),
        Bar(
            "training time lost to the second asynchronous save",
            own["second async save: time lost, s"] * 1e3,
            30,
            unit="ms",
        ),
        Bar("durable save time / disk", own["durable save, s"] / limit["write, s"], 1.15),
        Bar("save time, 1 % of the tensors changed", own["1 % changed, s"], 0.15, unit="s"),
        Bar("warm load throughput, in place", own["load warm, GB/s"], 25, True, "GB/s"),
        Bar("warm load throughput, new tensors", own["load new warm, GB/s"], 25, True, "GB/s"),
        Bar("cold load time / disk", own["load cold, s"] / limit["read, s"], 1.15),
        Bar("host memory used besides the model", own["host memory above, MiB"], 256, unit="MiB"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--folder", type=Path, default=Path("bench/out/gpu"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/gpu.py: no GPU found")
        return 1
    arguments.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    tensors = model(arguments.gib)
    total = sum(t.nbytes for t in tensors.values())
    gpu = torch.cuda.get_device_name()
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{gpu}, {os.cpu_count()} cores, {versions}")
    print(f"{len(tensors)} tensors, {total / (1 << 30):.2f} GiB", flush=True)
    results = Results()
    for number in range(1 if arguments.quick else 3):
        run_ligament(arguments.folder, tensors, results)
        wrote, read = disk_limit(arguments.folder, total)
        results.note("limit", "write, s", wrote)
        results.note("limit", "read, s", read)
        run_peers(arguments.folder, tensors, results)
        if number == 0:
            place = f"file://{arguments.folder.resolve()}/group"
            torch.distributed.init_process_group("gloo", init_method=place, rank=0, world_size=1)
        run_dcp_async(arguments.folder, tensors, results)
    judged = [show(bar) for bar in bars(results)]
    print(f"{time.perf_counter() - begin:.0f} s in all")
    if arguments.json:
        about = {"gpu": gpu, "cores": os.cpu_count(), "torch": torch.__version__, "bytes": total}
        date = time.strftime("%Y-%m-%d")
        found = [bar.record() for bar in judged]
        content = {"date": date, "machine": about, "results": results, "bars": found}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(bar.met for bar in judged) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Worker processes grow a population of architectures in one served store, without training. The
program starts the server, and stops it as EvoStore's scripts do.

    python examples/python/served_population.py STORE [--workers N] [--candidates N] [--layers N]
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ligament.transfer import TransferMethods
from population import Architecture, generate, graph_of, mutate, weights_of


@contextlib.contextmanager
def serving(store: str, address_file: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts `ligament serve` and waits until it has written its address file."""
    command = [sys.executable, "-m", "ligament", "serve", store, "--allow-shutdown"]
    command += ["--address-file", str(address_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise SystemExit(f"the server did not start: status {process.wait()}")
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def work(address_file: Path, worker: int, candidates: int, layers: int) -> None:
    """Mutates one of this worker's models and inherits from the best match of any worker."""
    rng = random.Random(worker)
    mine: list[Architecture] = [generate(rng, layers)]
    methods = TransferMethods(hosts=address_file)
    store = methods.models
    for number in range(candidates):
        one = mutate(rng.choice(mine), rng)
        graph = graph_of(one)
        match = store.find(graph)
        tree = weights_of(one, store.load(match) if match else {})
        score = {"val_acc": rng.random()}
        store.save(f"worker-{worker}/{number}", tree, graph=graph, match=match, metrics=score)
        mine.append(one)
    methods.close()


def run_workers(address_file: Path, workers: int, candidates: int, layers: int) -> None:
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=work, args=(address_file, worker, candidates, layers))
        for worker in range(workers)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    failed = [worker for worker, process in enumerate(running) if process.exitcode]
    if failed:
        raise SystemExit(f"workers {failed} failed")


def report(methods: TransferMethods, seconds: float) -> None:
    count = len(methods.models)
    inherited = sum(1 for model in methods.models.models() if model.parent)
    print(f"{count} models in {seconds:.1f} s, {inherited} of them with inherited layers")
    for name in ("find", "save"):
        stamps = methods.get_time_stamps(name)
        times = [(b - a) / 1e6 for a, b in zip(stamps[::2], stamps[1::2], strict=True)]
        if times:
            middle = statistics.median(times)
            print(f"{name} on the server: {len(times)} calls, {middle:.2f} ms (p50)")


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs worker processes that share a served store.")
    parser.add_argument("store", help="a path or URI; ?fsync=0 is faster but not durable")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=25, help="models per worker")
    parser.add_argument("--layers", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address_file = Path(folder) / "address"
        with serving(given.store, address_file) as server:
            begin = time.perf_counter()
            run_workers(address_file, given.workers, given.candidates, given.layers)
            methods = TransferMethods(hosts=address_file)
            report(methods, time.perf_counter() - begin)
            methods.shutdown()
            status = server.wait()
    print(f"the server exited with status {status}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())

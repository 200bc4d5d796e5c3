"""Searches for a good network by evolution. Each candidate finds its best ancestor in the store,
inherits the shared layers, trains the others, and saves only what it did not inherit.

Several processes share one store and communicate only through it.

    python examples/python/evolve.py [FOLDER] [--candidates N] [--workers N]
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ligament
from lineage import Birth, draw

FEATURES, CLASSES, SAMPLES = 8, 8, 4000
STEPS, BATCH, RATE = 60, 64, 5e-3
POPULATION, STARTERS, TOURNAMENT = 16, 4, 4
WIDTHS = (64, 96, 128, 192, 256)
YOUNG = datetime.timedelta(seconds=2)
BAR = 30

Genome = list[list[Any]]  # [width, activation] of each hidden layer


# --- the search space ----------------------------------------------------------------------------


def make_data() -> tuple[Any, Any, Any, Any]:
    """Points classified by a random network."""
    import torch

    generator = torch.Generator().manual_seed(7)
    points = torch.randn(SAMPLES, FEATURES, generator=generator)
    first = torch.randn(FEATURES, 16, generator=generator) / FEATURES**0.5
    second = torch.randn(16, CLASSES, generator=generator)
    labels = ((points @ first * 2).sin() @ second).argmax(1)
    split = SAMPLES * 3 // 4
    return points[:split], labels[:split], points[split:], labels[split:]


def network(genome: Genome) -> Any:
    from torch import nn

    layers: list[Any] = []
    before = FEATURES
    for width, activation in genome:
        layers += [nn.Linear(before, width), getattr(nn, activation)()]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, CLASSES))


def random_genome(rng: random.Random) -> Genome:
    count = rng.randint(2, 4)
    return [[rng.choice(WIDTHS), rng.choice(("ReLU", "Tanh", "GELU"))] for _ in range(count)]


def mutated(genome: Genome, rng: random.Random) -> Genome:
    """Applies one change, more often near the end: layers before it can be inherited."""
    child = [list(layer) for layer in genome]
    at = max(rng.randrange(len(child)), rng.randrange(len(child)))
    what = rng.choice(("width", "activation", "add", "remove"))
    if what == "add" and len(child) < 6:
        child.insert(at + 1, [rng.choice(WIDTHS), rng.choice(("ReLU", "Tanh", "GELU"))])
    elif what == "remove" and len(child) > 2:
        del child[at]
    elif what == "activation":
        child[at][1] = rng.choice([a for a in ("ReLU", "Tanh", "GELU") if a != child[at][1]])
    else:
        child[at][0] = rng.choice([width for width in WIDTHS if width != child[at][0]])
    return child


def train(model: Any, data: tuple[Any, Any, Any, Any], frozen: set[str], seed: int) -> float:
    """Trains for a few steps, without the layers in `frozen`. Returns the accuracy on held-out
    data."""
    import torch

    points, labels, test_points, test_labels = data
    for name, module in model.named_children():
        module.requires_grad_(name not in frozen)
    free = [parameter for parameter in model.parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(free, lr=RATE) if free else None
    for _ in range(STEPS if optimizer else 0):
        batch = torch.randint(0, len(points), (BATCH,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(points[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        return (model(test_points).argmax(1) == test_labels).float().mean().item()


# --- a worker ------------------------------------------------------------------------------------


class Worker:
    """Picks a good model, mutates it and evaluates the result, until asked to stop."""

    def __init__(self, place: str, number: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.store = ligament.Store(place)
        self.number = number
        self.rng = random.Random(number)
        self.data = make_data()

    def choose(self) -> Genome:
        """A mutation of the best of a few models; a random genome while there are few models."""
        living = self.store.models()
        if len(living) < STARTERS:
            return random_genome(self.rng)
        some = self.rng.sample(living, min(TOURNAMENT, len(living)))
        best = max(some, key=lambda model: model.metrics["val_acc"])
        return mutated(best.meta, self.rng)

    def candidate(self, index: int) -> dict[str, Any]:
        import torch

        genome, seed = self.choose(), self.number * 10000 + index
        torch.manual_seed(seed)
        model = network(genome)
        started = time.perf_counter()
        alone = train(model, self.data, set(), seed)
        alone_s = time.perf_counter() - started

        torch.manual_seed(seed)
        model = network(genome)
        match = self.store.find(model)
        frozen: set[str] = set()
        if match:
            self.store.load(match, into=model)
            # The last inherited layer is trained further, those before it are frozen.
            weighted = [name for name in match.layers if int(name) % 2 == 0]
            frozen = set(weighted[:-1])
        started = time.perf_counter()
        accuracy = train(model, self.data, frozen, seed)
        train_s = time.perf_counter() - started
        name = f"{self.number}-{index}"
        saved = self.store.save(
            name, model, match=match, metrics={"val_acc": accuracy}, meta=genome
        )
        return {
            "name": name,
            "parent": match.model.name if match else None,
            "shared": len(match) if match else 0,
            "layers": len(model),
            "accuracy": accuracy,
            "alone": alone,
            "train_s": train_s,
            "alone_s": alone_s,
            "bytes": saved.bytes,
            "own_bytes": saved.own_bytes,
            "retired": self.cull(),
        }

    def cull(self) -> list[str]:
        """Retires the worst models, except recent ones, which their creators still use. Another
        worker may have retired them first."""
        living = self.store.models(order="-val_acc")
        now, gone = datetime.datetime.now(datetime.UTC), []
        for model in living[POPULATION:]:
            if now - model.created < YOUNG:
                continue
            try:
                self.store.retire(model)
                gone.append(model.name)
            except ligament.NotFoundError:
                pass
        return gone

    def run(self, count: int) -> None:
        print(json.dumps({"ready": self.number}), flush=True)
        for index in range(count):
            print(json.dumps(self.candidate(index)), flush=True)
        stamps = self.store.get_time_stamps("find")["find"]
        finds = [(b - a) / 1e6 for a, b in zip(stamps[::2], stamps[1::2], strict=True)]
        print(json.dumps({"finds": finds}), flush=True)
        self.store.close()


# --- the main process -----------------------------------------------------------------------------


class Watch:
    """Starts the workers and collects their reports."""

    def __init__(self, total: int) -> None:
        self.total, self.births, self.finds = total, [], []
        self.lock = threading.Lock()  # guards the fields above
        self.live = sys.stdout.isatty()
        self.failed = 0

    def follow(self, command: list[str]) -> None:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                with self.lock:
                    self.take(json.loads(line))
            self.failed += child.wait() != 0

    def take(self, what: dict[str, Any]) -> None:
        if "finds" in what:
            self.finds += what["finds"]
        elif "name" in what:
            self.births.append(what)
            self.show()

    def show(self) -> None:
        count = len(self.births)
        if not self.live and count % 20 and count != self.total:
            return
        filled = count * BAR // self.total
        best = max(birth["accuracy"] for birth in self.births)
        alone = max(birth["alone"] for birth in self.births)
        text = (
            f"  [{'#' * filled}{'.' * (BAR - filled)}] {count:3}/{self.total}"
            f"  best {best:6.1%}  without transfer {alone:6.1%}"
        )
        end = "\n" if count == self.total or not self.live else ""
        print(("\r" if self.live else "") + text, end=end, flush=True)


def mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def size(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


def table(rows: list[tuple[str, str, str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    rule = "+-" + "-+-".join("-" * width for width in widths) + "-+"
    print(rule)
    for i, row in enumerate(rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("| " + " | ".join(cells) + " |")
        if i == 0:
            print(rule)
    print(rule)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def report(watch: Watch, store: ligament.Store) -> list[tuple[str, str, str]]:
    births = watch.births
    heirs = [birth for birth in births if birth["parent"]]
    shared = mean([birth["shared"] / birth["layers"] for birth in heirs])
    full, own = sum(b["bytes"] for b in births), sum(b["own_bytes"] for b in births)
    first, last = births[: len(births) // 4], births[-(len(births) // 4) :]
    rows = [("", "with transfer", "without")]

    def accuracy(title: str, some: list[dict[str, Any]], how: Any) -> None:
        values = (how([b[key] for b in some]) for key in ("accuracy", "alone"))
        rows.append((title, *(f"{value:.1%}" for value in values)))

    accuracy("best accuracy", births, max)
    accuracy("mean accuracy, first quarter", first, mean)
    accuracy("mean accuracy, last quarter", last, mean)
    times = (mean([b[key] for b in heirs]) * 1e3 for key in ("train_s", "alone_s"))
    rows.append(("training a candidate", *(f"{ms:.0f} ms" for ms in times)))
    rows.append(("bytes written for all candidates", size(own), size(full)))
    living = sum(model.bytes for model in store.models())
    there = store.stats()["stored_bytes"]
    rows.append((f"the {len(store)} live models, with the catalog", size(there), size(living)))
    rows.append(("layers inherited from the parent", f"{shared:.0%}", "none"))
    half, most = percentile(watch.finds, 0.5), percentile(watch.finds, 0.99)
    rows.append(("a search (p50, p99)", f"{half:.2f} ms, {most:.2f} ms", ""))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs an evolutionary search on one store.")
    parser.add_argument("folder", nargs="?", help="folder to keep; by default a temporary one")
    parser.add_argument("--candidates", type=int, default=80)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", nargs=3, metavar=("STORE", "NUMBER", "COUNT"), help="internal")
    given = parser.parse_args()
    if given.work:
        Worker(given.work[0], int(given.work[1])).run(int(given.work[2]))
        return 0
    started = time.perf_counter()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="ligament-evolve-"))
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "store"
    shutil.rmtree(place, ignore_errors=True)
    print(f"{given.candidates} candidates, {given.workers} processes, one store: {place}")
    watch = Watch(given.candidates)
    shares = [given.candidates // given.workers] * given.workers
    shares[0] += given.candidates % given.workers
    with ligament.Store(place) as store:
        threads = [
            threading.Thread(
                target=watch.follow,
                args=([sys.executable, __file__, "--work", str(place), str(i), str(count)],),
            )
            for i, count in enumerate(shares, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if watch.failed or not watch.births:
            print("a worker failed")
            return 1
        print()
        table(report(watch, store))
        problems = store.check().problems
        print("the store is " + ("intact" if not problems else f"DAMAGED: {problems[:3]}"))
    retired = {name for birth in watch.births for name in birth["retired"]}
    births = [
        Birth(
            b["name"], b["parent"], b["accuracy"], b["own_bytes"], b["bytes"], b["name"] in retired
        )
        for b in watch.births
    ]
    spare = Path(tempfile.gettempdir()) / "ligament-lineage.svg"
    picture = folder / "lineage.svg" if given.folder else spare
    picture.write_text(draw(births))
    print(f"lineage: {picture}     {time.perf_counter() - started:.0f} s")
    if not given.folder:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())

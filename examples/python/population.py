"""Fills a store with a population of architectures, without training, as a search over thousands of
candidates would.

    python examples/python/population.py STORE [--generated N] [--evolved N] [--layers N]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from typing import Any

import ligament
import numpy as np

WIDTHS = (16, 24, 32, 48, 64)
KINDS = ("dense", "dense", "dense", "relu", "tanh", "norm", "dropout")
RECENT = 200

Architecture = list[tuple[str, int]]  # (kind, width) of each layer, in a chain


def generate(rng: random.Random, count: int) -> Architecture:
    """A chain of random layers."""
    return [(rng.choice(KINDS), rng.choice(WIDTHS)) for _ in range(count)]


def mutate(parent: Architecture, rng: random.Random) -> Architecture:
    """Changes, adds or removes one layer."""
    child = list(parent)
    at = rng.randrange(len(child))
    what = rng.choice(("change", "add", "remove"))
    if what == "remove" and len(child) > 2:
        del child[at]
    elif what == "add":
        child.insert(at, (rng.choice(KINDS), rng.choice(WIDTHS)))
    else:
        child[at] = (rng.choice(KINDS), rng.choice(WIDTHS))
    return child


def graph_of(layers: Architecture) -> ligament.Graph:
    """A graph built by hand, without a framework."""
    names = [f"l{i}" for i in range(len(layers))]
    marked = [(name, f"{kind}-{width}") for name, (kind, width) in zip(names, layers, strict=True)]
    return ligament.Graph(marked, list(zip(names, names[1:], strict=False)))


def weights_of(layers: Architecture, inherited: dict[str, Any]) -> dict[str, Any]:
    """A few numbers for each layer with weights; inherited values are kept."""
    made = {
        f"l{i}.w": np.full(width, i, np.float32)
        for i, (kind, width) in enumerate(layers)
        if kind in ("dense", "norm")
    }
    made.update(inherited)
    return made


class Bar:
    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.live = sys.stderr.isatty()
        self.start = self.shown = time.monotonic()

    def step(self) -> None:
        self.done += 1
        now = time.monotonic()
        if self.live and (now - self.shown > 0.1 or self.done == self.total):
            self.shown = now
            filled = 30 * self.done // self.total
            rate = self.done / (now - self.start)
            bar = "#" * filled + "." * (30 - filled)
            end = "\n" if self.done == self.total else ""
            print(f"\r{self.title} [{bar}] {rate:5.0f}/s", end=end, file=sys.stderr, flush=True)


def fill(store: ligament.Store, generated: int, evolved: int, layers: int) -> list[float]:
    """Saves generated models, then evolved ones, each derived from one of the best. Returns the
    times of the searches in ms."""
    rng = random.Random(1)
    recent: list[Architecture] = []
    bar = Bar("generated", generated)
    for number in range(generated):
        one = generate(rng, layers)
        tree, score = weights_of(one, {}), {"val_acc": rng.random()}
        store.save(f"generated/{number}", tree, graph=graph_of(one), metrics=score)
        recent = [*recent[-RECENT:], one]
        bar.step()
    bar = Bar("evolved  ", evolved)
    for number in range(evolved):
        one = mutate(rng.choice(recent), rng) if recent else generate(rng, layers)
        graph = graph_of(one)
        match = store.find(graph)
        tree = weights_of(one, store.load(match) if match else {})
        score = {"val_acc": rng.random()}
        store.save(f"evolved/{number}", tree, graph=graph, match=match, metrics=score)
        recent = [*recent[-RECENT:], one]
        bar.step()
    stamps = store.get_time_stamps("find")["find"]
    return [(b - a) / 1e6 for a, b in zip(stamps[::2], stamps[1::2], strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Fills a store with architectures.")
    parser.add_argument(
        "store", nargs="?", default="mem:", help="a path or URI; ?fsync=0 is faster but not durable"
    )
    parser.add_argument("--generated", type=int, default=600)
    parser.add_argument("--evolved", type=int, default=100)
    parser.add_argument("--layers", type=int, default=40)
    given = parser.parse_args()
    started = time.perf_counter()
    with ligament.Store(given.store) as store:
        finds = fill(store, given.generated, given.evolved, given.layers)
        stats = store.stats()
    seconds = time.perf_counter() - started
    count = given.generated + given.evolved
    print(f"{count} models in {seconds:.1f} s, {count / max(seconds, 1e-9):.0f} per second")
    print(
        f"{stats['stored_bytes'] / max(stats['models'], 1):.0f} bytes per model, with the catalog"
    )
    if finds:
        print(f"search: {statistics.median(finds):.2f} ms (p50), {max(finds):.2f} ms (maximum)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

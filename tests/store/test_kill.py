"""Processes that search, save and retire at once, and are killed at any point."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import Graph, Store

LAYERS, WIDTH = 6, 4096  # 32 KiB a layer: large enough to lie in packs
POPULATION = 12


def graph_of(marks: list[int]) -> Graph:
    names = [f"l{i}" for i in range(len(marks))]
    layers = [(name, str(mark)) for name, mark in zip(names, marks, strict=True)]
    return Graph(layers, list(zip(names, names[1:], strict=False)))


def generation(store: Store, rng: random.Random) -> None:
    """One candidate: it inherits a prefix, and writes down what each of its layers must hold."""
    marks = [rng.randrange(3) for _ in range(LAYERS)]
    graph = graph_of(marks)
    match = store.find(graph, lease_s=60)
    inherited: dict[str, Any] = store.load(match) if match else {}
    values = {f"l{i}.w": np.full(WIDTH, rng.random()) for i in range(LAYERS)} | inherited
    meta = {name: float(value[0]) for name, value in values.items()}
    name = f"{os.getpid()}-{rng.getrandbits(40):x}"
    score = {"val_acc": rng.random()}
    store.save(name, values, graph=graph, match=match, meta=meta, metrics=score)
    for model in store.models(order="-val_acc")[POPULATION:]:
        try:
            store.retire(model)
        except ligament.NotFoundError:
            pass  # another was quicker
    if rng.random() < 0.1:
        store.compact()


def work(place: str, seed: int, told: int) -> None:
    rng = random.Random(seed)
    with Store(place) as store:
        while True:
            generation(store, rng)
            os.write(told, b"!")


def start(place: str, seed: int, told: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(place, seed, told)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return child


def sound(place: str) -> int:
    """Every model holds what it says; gives how many there are."""
    with Store(place) as store:
        assert store.check().problems == []
        for model in store.models():
            loaded, said = store.load(model), model.meta
            assert set(loaded) == set(said)
            for name, value in loaded.items():
                assert (value == said[name]).all(), (model.name, name)
        return len(store)


def kills(place: str, rounds: int, every: int) -> None:
    rng = random.Random(3)
    with Store(place) as store:  # so that it exists, and no process is killed while creating it
        generation(store, rng)
    seen = 0
    for number in range(rounds):
        heard, told = os.pipe()
        children = [start(place, 2 * number + i, told) for i in range(2)]
        os.close(told)
        if number % 2:  # in the other rounds they may not even have begun
            os.read(heard, 1)
        time.sleep(rng.uniform(0.002, 0.08))
        for child in children:
            os.kill(child, signal.SIGKILL)
        ends = [os.waitpid(child, 0)[1] for child in children]
        os.close(heard)
        assert all(map(os.WIFSIGNALED, ends)), "a worker failed on its own"
        if number % every == every - 1:
            seen = sound(place)
    assert seen >= POPULATION


def test_killed_at_any_point(tmp_path: Path) -> None:
    kills(f"{tmp_path / 'store'}?fsync=0", 60, 15)


@pytest.mark.soak
def test_killed_very_often(tmp_path: Path) -> None:
    kills(str(tmp_path / "store"), 200, 20)


def test_a_forked_child_lets_go_of_nothing(tmp_path: Path) -> None:
    tree = {"l0.w": np.arange(1 << 15)}
    with Store(tmp_path / "store") as store:
        store.save("m", tree, graph=graph_of([1]))
        match = store.find(graph_of([1]))
        child = os.fork()
        if child == 0:
            match.release()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        store.retire("m")
        store.compact()
        assert np.array_equal(store.load(match)["l0.w"], tree["l0.w"])


def test_the_lease_of_a_dead_process_ends(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        store.save("m", {"l0.w": np.arange(1 << 15)}, graph=graph_of([1]))
        ready, said = os.pipe()
        child = os.fork()
        if child == 0:
            with Store(tmp_path / "store") as mine:
                match = mine.find(graph_of([1]))
                os.write(said, b"!" if match else b"?")
                time.sleep(60)
            os._exit(0)
        assert os.read(ready, 1) == b"!"
        store.retire("m")
        store.compact()
        held = list((tmp_path / "store").rglob("*.pack"))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert len(held) == 1, "what a living process holds stays"
        store.compact()
        assert not list((tmp_path / "store").rglob("*.pack"))

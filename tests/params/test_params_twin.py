"""Random calls on one node and on several, compared with a dict that does the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from ligament import params
from nodes import Nodes, together


class Twin:
    """Rows as they should be."""

    def __init__(self, lengths: list[int], dtype: str) -> None:
        self.rows = {key: np.zeros(length, dtype) for key, length in enumerate(lengths)}

    def push(self, keys: list[int], values: Any) -> None:
        for key, part in self._parts(keys, values):
            self.rows[key] = self.rows[key] + part

    def set(self, keys: list[int], values: Any) -> None:
        for key, part in self._parts(keys, values):
            self.rows[key] = part.copy()

    def _parts(self, keys: list[int], values: Any) -> Any:
        at = 0
        for key in keys:
            size = len(self.rows[key])
            yield key, values[at : at + size]
            at += size

    def pull(self, keys: list[int]) -> Any:
        return np.concatenate([self.rows[key] for key in keys] or [np.empty(0)])


def storm(kv: params.Worker, twin: Twin, mine: list[int], dtype: str, seed: int) -> None:
    """Random accesses of keys that only this worker touches; whole numbers: sums are exact."""
    rng = random.Random(seed)
    pending: list[tuple[Any, Any, list[int], Any]] = []
    for _ in range(300):
        keys = [rng.choice(mine) for _ in range(rng.randrange(0, 6))]
        size = sum(len(twin.rows[key]) for key in keys)
        values = np.array([rng.randrange(-9, 9) for _ in range(size)]).astype(dtype)
        later = rng.random() < 0.5
        act = rng.choice(["push", "push", "set", "pull", "pull", "intent", "local"])
        if act == "intent":
            kv.intent(keys, kv.current_clock() + rng.randrange(3), kv.current_clock() + 5)
            kv.advance_clock()
        elif act == "pull":
            expected = twin.pull(keys)
            ticket = kv.pull(np.array(keys, "i8"), values, later)
            pending.append((ticket, values, keys, expected))
        elif act == "local":
            if kv.pull_if_local(keys, values):
                assert (values == twin.pull(keys)).all()
        else:
            getattr(kv, act)(np.array(keys, "i8"), values, later)
            getattr(twin, act)(keys, values.copy())
            values[:] = 99  # it is ours again
        while pending and (rng.random() < 0.3 or len(pending) > 20):
            ticket, got, keys, expected = pending.pop(rng.randrange(len(pending)))
            kv.wait(ticket)
            assert (got == expected).all(), (keys, got, expected)
    kv.waitall()
    for _, got, keys, expected in pending:
        assert (got == expected).all(), (keys, got, expected)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("seed", range(3))
def test_one_node(alone: Any, dtype: str, seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randrange(1, 40) for _ in range(30)]
    _, kv = alone(lengths, 30, dtype=dtype)
    twin = Twin(lengths, dtype)
    storm(kv, twin, list(range(30)), dtype, seed)
    assert (kv.get(np.arange(30)) == twin.pull(list(range(30)))).all()


@pytest.mark.parametrize("techniques", ["all", "replication_only", "relocation_only"])
@pytest.mark.parametrize("count", [2, 3])
def test_several_nodes(nodes: Any, techniques: str, count: int) -> None:
    lengths = [1 + key % 7 for key in range(60)]
    party: Nodes = nodes(count, lengths, 60, threads=2, dtype="int64", use_techniques=techniques)
    twin = Twin(lengths, "int64")

    def work(kv: params.Worker, node: int, number: int) -> None:
        me = node * 2 + number
        storm(kv, twin, [key for key in range(60) if key % (2 * count) == me], "int64", me)
        kv.flush()
        kv.barrier()
        assert (kv.get(np.arange(60)) == twin.pull(list(range(60)))).all()
        kv.barrier()

    party.run(work)
    party.finish()


@pytest.mark.parametrize("techniques", ["all", "replication_only", "relocation_only"])
def test_sums_of_all_are_exact(nodes: Any, techniques: str) -> None:
    party: Nodes = nodes(2, 5, 40, threads=2, dtype="int32", use_techniques=techniques)

    def work(kv: params.Worker, node: int, number: int) -> Any:
        rng = np.random.default_rng(node * 2 + number)
        total = np.zeros((40, 5), "i4")
        for step in range(200):
            keys = rng.integers(0, 40, 8)
            values = rng.integers(-5, 5, (8, 5)).astype("i4")
            kv.intent(rng.integers(0, 40, 8), step + 2, step + 6)
            kv.push(keys, values, bool(step % 2))
            np.add.at(total, keys, values)
            kv.advance_clock()
        kv.waitall()
        kv.flush()
        kv.barrier()
        got = kv.get(np.arange(40))
        kv.barrier()
        return total, got

    results = party.run(work)
    expected = sum(total for total, _ in results)
    for _, got in results:
        assert (got == expected).all()
    party.finish()


def test_the_same_first_values_on_any_number_of_nodes(nodes: Any, alone: Any) -> None:
    init = {"name": "normal", "std": 2.0, "seed": 9}
    _, kv = alone(3, 30, init=init)
    party: Nodes = nodes(3, 3, 30, init=init)
    values = party.run(lambda worker, node, number: worker.get(np.arange(30)))
    assert all((one == kv.get(np.arange(30))).all() for one in values)


def test_saved_by_two_loaded_by_one_and_three(nodes: Any, alone: Any, tmp_path: Any) -> None:
    options: dict[str, Any] = {"optimizer": {"name": "adagrad", "lr": 0.5}}
    tables = {"user": (30, 3), "item": (20, 2)}
    two: Nodes = nodes(2, tables, None, **options)
    keys = np.arange(50)

    def learn(kv: params.Worker, node: int, number: int) -> Any:
        kv.push(keys[node::2], np.ones(sum(3 if k < 30 else 2 for k in keys[node::2]), "f4"))
        kv.flush()
        kv.barrier()
        return kv.get(keys)

    saved = two.run(learn)[0]
    together([lambda one=one: one.save(tmp_path / "s", "epoch/1") for one in two.servers])
    three: Nodes = nodes(3, tables, None, **options)
    server, kv = alone(tables, None, **options)
    together([lambda one=one: one.load(tmp_path / "s", "epoch/1") for one in three.servers])
    server.load(tmp_path / "s", "epoch/1")
    for got in [*three.run(lambda worker, node, number: worker.get(keys)), kv.get(keys)]:
        assert (got == saved).all()

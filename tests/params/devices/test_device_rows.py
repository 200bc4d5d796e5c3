"""Rows cached on a device: the same as without a cache. The device is the CPU; test_params_gpu.py
has the same on a GPU."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import params
from nodes import Nodes, together

torch = pytest.importorskip("torch")

from ligament.params.slot_map import DenseSlots, SortedSlots  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

OPTIMIZERS: list[dict[str, Any] | None] = [
    None,
    {"name": "sgd", "lr": 0.3},
    {"name": "sgd", "lr": 0.3, "weight_decay": 0.1},
    {"name": "adagrad", "lr": 0.3, "eps": 1e-8, "weight_decay": 0.1},
    {"name": "rowwise_adagrad", "lr": 0.3},
    {"name": "adam", "lr": 0.3},
]
# Square roots and powers are torch's, and squares of a row are summed in another order.
ROUNDED = ("adagrad", "rowwise_adagrad", "adam")
STATE = {"adagrad": 4, "rowwise_adagrad": 1, "adam": 9}
ROWS, LENGTH, CACHED = 60, 4, 24


class Pair:
    """The same rows twice: with a cache, and without."""

    def __init__(self, alone: Any, optimizer: dict[str, Any] | None, **options: Any) -> None:
        given = {"optimizer": optimizer, "init": {"name": "uniform", "low": -1.0, "high": 1.0}}
        shapes = {"other": (7, LENGTH), "rows": (ROWS, LENGTH)}
        made = [alone(shapes, None, **(given | options)) for _ in range(2)]
        self.servers, self.workers = zip(*made, strict=True)
        rate = {"lr": 0.7} if optimizer is None else {}
        sizes = (CACHED, 0)
        self.lists = [
            params.torch.Embedding(
                ROWS, LENGTH, server, "rows", padding_idx=3, device_rows=size, **rate
            )
            for server, size in zip(self.servers, sizes, strict=True)
        ]
        self.bags = [
            params.torch.EmbeddingBag(
                ROWS, LENGTH, server, "rows", mode="mean", device_rows=size, **rate
            )
            for server, size in zip(self.servers, sizes, strict=True)
        ]
        name = optimizer["name"] if optimizer else ""
        self.close = (lambda a, b: torch.allclose(a, b, atol=1e-5)) if name in ROUNDED else None
        self.state = STATE.get(name, 0)

    def both(self, call: Any) -> None:
        """`call(server, worker, embedding, bag)` gives the same twice."""
        each = zip(self.servers, self.workers, self.lists, self.bags, strict=True)
        cached, plain = [call(*one) for one in each]
        if plain is not None:
            same = self.close or torch.equal
            assert same(cached, plain), (cached - plain).abs().max()

    def all_rows(self, server: Any, worker: Any, *_: Any) -> Any:
        """Values and state."""
        keys = torch.arange(7, 7 + ROWS)
        values, state = torch.empty(ROWS, LENGTH), torch.empty(ROWS, self.state)
        worker.get_rows(keys, values, state)
        return torch.cat((values, state), 1)


def train(ids: Any, weights: Any, table: Any) -> Any:
    rows = table(ids)
    (rows * weights[: rows.numel()].view(rows.shape)).sum().backward()
    return rows.detach()


def act(pair: Pair, rng: random.Random, place: Any) -> None:
    count = rng.choice([1, 3, 10, 10, 10, 80])  # 80: there may be no room for so many
    ids = torch.tensor([min(rng.randrange(ROWS), rng.randrange(ROWS)) for _ in range(count)])
    values = torch.randn(8 + 8 * count, LENGTH).view(-1)
    keys = ids.unique() + 7
    part = values[: keys.numel() * LENGTH].view(-1, LENGTH)
    acts: list[Any] = [
        lambda s, w, e, b: train(ids, values, e),
        lambda s, w, e, b: train(ids, values, e),
        lambda s, w, e, b: train(ids.view(-1, 1), values, b),
        lambda s, w, e, b: train(ids.repeat(2).view(2, -1), values, b),
        lambda s, w, e, b: e(ids).detach(),
        lambda s, w, e, b: w.get(keys),
        lambda s, w, e, b: e.rows(ids),
        lambda s, w, e, b: e.prefetch(ids),
        lambda s, w, e, b: w.push(keys, part) and None,
        lambda s, w, e, b: w.set(keys, part) and None,
        lambda s, w, e, b: w.advance_clock() and None,
        lambda s, w, e, b: setattr(s, "lr", 0.1 + count / 100),
        lambda s, w, e, b: s.save(place, f"m{s is pair.servers[0]}"),
    ]
    pair.both(rng.choice(acts if rng.random() < 0.3 else acts[:5]))


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: str(o and o["name"]))
@pytest.mark.parametrize("seed", range(2))
def test_random_twins(alone: Any, tmp_path: Any, optimizer: Any, seed: int) -> None:
    torch.manual_seed(seed)
    rng = random.Random(seed)
    pair = Pair(alone, optimizer)
    for _ in range(120):
        act(pair, rng, tmp_path / "store")
    cache = pair.workers[0]._caches[7]
    assert cache.stats["evictions"] and cache.stats["hits"] and cache.stats["written"]
    pair.both(pair.all_rows)


@pytest.mark.parametrize("optimizer", OPTIMIZERS[1:], ids=lambda o: str(o["name"]))
def test_saved_and_loaded_in_the_middle(alone: Any, tmp_path: Any, optimizer: Any) -> None:
    """Training that is saved, continued and loaded again begins where it was saved."""
    torch.manual_seed(3)
    batches = [torch.randint(0, ROWS, (12,)) for _ in range(10)]
    weights = torch.randn(200)
    pair = Pair(alone, optimizer)
    for ids in batches[:5]:
        pair.both(lambda s, w, e, b, ids=ids: train(ids, weights, e))
    pair.both(lambda s, w, e, b: s.save(tmp_path / f"{s is pair.servers[0]}", "m"))
    pair.both(lambda s, w, e, b: train(batches[5], weights, e))
    pair.both(lambda s, w, e, b: s.load(tmp_path / f"{s is pair.servers[0]}", "m"))
    for ids in batches[5:]:
        pair.both(lambda s, w, e, b, ids=ids: train(ids, weights, e))
    pair.both(pair.all_rows)


def test_rows_are_written_back_by_those_who_leave(alone: Any, tmp_path: Any) -> None:
    server, kv = alone(2, 50, optimizer={"name": "sgd", "lr": 1.0})
    ours = params.torch.Embedding(50, 2, server, device_rows=50)
    ours(torch.arange(20)).sum().backward()
    cache = kv._caches[0]
    assert cache.stats == {"hits": 0, "misses": 20, "evictions": 0, "written": 0}
    kv.close()
    other = params.Worker(0, server)
    assert (other.get(torch.arange(20)) == -1).all() and not kv._caches
    ours(torch.arange(20)).sum().backward()
    other.finalize()
    server.save(tmp_path / "store", "m")
    found = ligament.Store(tmp_path / "store").load("m")["values"]
    assert (found[:20] == -2).all() and (found[20:] == 0).all()


def test_one_cache_for_a_table(alone: Any) -> None:
    """Modules of one worker see each other's updates at once."""
    server, kv = alone({"a": (9, 2), "b": (9, 2)}, None, optimizer={"name": "sgd", "lr": 1.0})
    one = params.torch.Embedding(9, 2, server, "b", device_rows=9)
    other = params.torch.EmbeddingBag(5, 2, server, "b")
    apart = params.torch.Embedding(9, 2, server, "a", device_rows=9)
    ids = torch.tensor([1, 1, 4])
    one(ids).sum().backward()
    assert other(ids.view(1, 3)).tolist() == [[-5, -5]] and len(kv._caches) == 1
    assert apart(ids).tolist() == [[0, 0]] * 3 and len(kv._caches) == 2


def test_a_row_may_be_evicted_before_its_backward(alone: Any) -> None:
    server, _ = alone(2, 50, optimizer={"name": "sgd", "lr": 1.0})
    ours = params.torch.Embedding(50, 2, server, device_rows=10)
    first = ours(torch.arange(10))
    second = ours(torch.arange(10, 20))
    (first.sum() + second.sum()).backward()
    assert (ours.rows()[:20] == -1).all() and (ours.rows()[20:] == 0).all()


def test_gradients_of_ids_that_share_memory(alone: Any) -> None:
    server, _ = alone(2, 50, optimizer={"name": "sgd", "lr": 1.0})
    ours = params.torch.Embedding(50, 2, server, device_rows=50)
    ids = torch.arange(8)
    first, second = ours(ids[:4]), ours(ids[::2])
    first.sum().backward()
    assert ours.rows(ids)[:, 0].tolist() == [-1, -1, -1, -1, 0, 0, 0, 0]
    second.sum().backward()
    assert ours.rows(ids)[:, 0].tolist() == [-2, -1, -2, -1, -1, 0, -1, 0]


def test_places_of_another_type(alone: Any) -> None:
    """They are converted into memory that lasts until the kernels have read it."""
    pair = Pair(alone, None)
    ids, gradients = torch.arange(16) % 5, torch.randn(8, LENGTH)
    for worker, module in zip(pair.workers, pair.lists, strict=True):
        places = (torch.arange(16) % 8).to(torch.int32 if module is pair.lists[0] else torch.int64)
        module._push(worker, ids, gradients, places)
    pair.both(pair.all_rows)


class Operations(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_cached_ids_wait_for_the_device_once(alone: Any, optimizer: str) -> None:
    """The operations with results in host memory; sorting has one, too. Kernels have none."""
    server, kv = alone(2, 50, optimizer={"name": optimizer, "lr": 1.0})
    ours = params.torch.EmbeddingBag(50, 2, server, device_rows=50)
    ids = torch.arange(24).view(8, 3) % 7
    ours(ids)
    with Operations() as found:
        ours(ids).sum().backward()
    kernels = kv._caches[0]._kernels is not None
    assert found.counts["_local_scalar_dense"] == (not kernels)
    assert not (kernels and {"index_add_", "index_select", "_embedding_bag"} & set(found.counts))
    assert not {"_unique2", "nonzero", "sort"} & set(found.counts)


def test_ids_of_a_module_that_uses_a_part_of_the_table(alone: Any) -> None:
    server, kv = alone(2, 50, optimizer={"name": "sgd", "lr": 1.0})
    whole = params.torch.Embedding(50, 2, server, device_rows=50)
    part = params.torch.Embedding(20, 2, server, device_rows=50)
    whole(torch.arange(50)).sum().backward()
    assert (part(torch.arange(20)) == -1).all() and len(kv._caches) == 1
    for module, count in ((whole, 50), (part, 20)):
        for wrong in (-1, -51, count, 2**40):
            with pytest.raises(
                ligament.InvalidError, match=f"id {wrong} is out of range: .*{count - 1}"
            ):
                module(torch.tensor([3, wrong]))


def test_hashed_ids(alone: Any) -> None:
    server, kv = alone(2, 50, hashed=True, optimizer={"name": "sgd", "lr": 1.0})
    ours = params.torch.Embedding(50, 2, server, device_rows=4)
    ids = torch.tensor([2**40, 7, 2**40, 9, 2**55])
    for _ in range(3):
        ours(ids).sum().backward()
        ours(torch.tensor([1, 2])).sum().backward()
    assert ours.rows(ids)[:, 0].tolist() == [-6, -3, -6, -3, -3]
    assert kv._caches[0].stats["evictions"]


def test_invalid_sizes(alone: Any) -> None:
    server, _ = alone(2, 10)
    for wrong in ({"device_rows": -1}, {"device_rows": 1.5}, {"device_clocks": 0}):
        with pytest.raises(ligament.InvalidError, match="device_"):
            params.torch.Embedding(10, 2, server, **wrong)


@pytest.mark.parametrize("kind", ["dense", "sorted"])
def test_slot_maps(kind: str) -> None:
    device = torch.device("cpu")
    tested = DenseSlots(40, device) if kind == "dense" else SortedSlots(device)
    twin: dict[int, int] = {}
    rng = random.Random(1)
    for turn in range(200):
        absent = [i for i in range(40) if i not in twin]
        some = rng.sample(absent, rng.randrange(len(absent) + 1) // 2)
        slots = [rng.randrange(100) for _ in some]
        tested.put(torch.tensor(some, dtype=torch.int64), torch.tensor(slots, dtype=torch.int64))
        twin.update(zip(some, slots, strict=True))
        gone = rng.sample(sorted(twin), rng.randrange(len(twin) + 1))
        tested.remove(torch.tensor(gone, dtype=torch.int64))
        for one in gone:
            del twin[one]
        if turn % 50 == 49:
            tested.clear()
            twin.clear()
        found = tested.find(torch.arange(40)).tolist()
        assert found == [twin.get(i, -1) for i in range(40)]


@pytest.mark.parametrize("clocks", [1, 3])
@pytest.mark.parametrize("optimizer", [None, {"name": "sgd", "lr": 0.5}])
def test_sums_of_several_nodes_are_exact(nodes: Any, optimizer: Any, clocks: int) -> None:
    """Whole numbers: every gradient of every worker counts once, wherever it was cached."""
    party: Nodes = nodes(2, 3, 40, threads=2, optimizer=optimizer)
    rate = {} if optimizer else {"lr": 0.5}

    def work(kv: params.Worker, node: int, number: int) -> Any:
        options = {"device_rows": 15, "device_clocks": clocks, **rate}
        ours = params.torch.Embedding(40, 3, kv, **options)
        rng = np.random.default_rng(2 * node + number)
        total = torch.zeros(40, 3)
        loader = [torch.from_numpy(rng.integers(0, 40, 10)) for _ in range(60)]
        for ids in params.torch.ahead(loader, lambda ids: {ours: ids}, 4, worker=kv):
            weights = torch.from_numpy(rng.integers(-4, 5, (10, 3))).float()
            (ours(ids) * weights).sum().backward()
            total.index_add_(0, ids, weights)
        assert kv._caches[0].stats["evictions"]
        kv.flush()
        kv.barrier()
        seen = ours(torch.arange(10)).detach()
        rows = ours.rows()
        kv.barrier()
        assert torch.equal(seen, rows[:10])
        return total, rows

    results = party.run(work)
    expected = sum(total for total, _ in results) * -0.5
    for _, rows in results:
        assert torch.equal(rows, expected)
    party.finish()


@pytest.mark.parametrize("optimizer", OPTIMIZERS[2:], ids=lambda o: str(o["name"]))
def test_workers_in_turn_see_what_they_see_without(nodes: Any, optimizer: Any) -> None:
    """To the bit: the owner of a row makes the same steps in the same order."""
    init = {"name": "uniform", "low": -1.0, "high": 1.0}
    parties = [nodes(2, LENGTH, ROWS, optimizer=optimizer, init=init) for _ in range(2)]
    workers = [[kv for (kv,) in party.workers] for party in parties]
    tables = [
        [params.torch.Embedding(ROWS, LENGTH, kv, device_rows=size) for kv in listed]
        for listed, size in zip(workers, (CACHED, 0), strict=True)
    ]
    rng = random.Random(5)
    torch.manual_seed(5)
    for turn in range(40):
        node = turn % 2
        for _ in range(rng.randrange(1, 4)):
            count = rng.choice([1, 10, 80])
            ids = torch.randint(0, ROWS, (count,))
            weights = torch.randn(2, count, LENGTH)
            seen = []
            for own in tables:
                first, second = own[node](ids), own[node](ids.flip(0))
                (second * weights[1]).sum().backward()
                (first * weights[0]).sum().backward()
                seen.append(torch.cat((first, second, own[node](ids))).detach())
            assert torch.equal(*seen), (seen[0] - seen[1]).abs().max()
        if rng.random() < 0.2:
            parties[0].servers[node].lr = parties[1].servers[node].lr = 0.1 + turn / 100
        for listed in workers:
            listed[node].advance_clock()
            listed[node].flush()
    stats = workers[0][0]._caches[0].stats
    assert stats["evictions"] and stats["hits"] and stats["written"]
    assert torch.equal(tables[0][0].rows(), tables[1][1].rows())


@pytest.mark.parametrize("name", ["adagrad", "rowwise_adagrad", "adam"])
def test_every_gradient_is_a_step_of_its_own(nodes: Any, tmp_path: Any, name: str) -> None:
    """Whole numbers: squares and counts are exact in the saved state, in whatever order the workers
    push, and are not those of sums of gradients."""
    party: Nodes = nodes(2, 2, 40, threads=2, optimizer={"name": name, "lr": 0.5})

    def work(kv: params.Worker, node: int, number: int) -> Any:
        ours = params.torch.Embedding(40, 2, kv, device_rows=15, device_clocks=3)
        rng = np.random.default_rng(2 * node + number)
        squares, steps = torch.zeros(40, 2), torch.zeros(40)
        loader = [torch.from_numpy(rng.integers(0, 40, 10)) for _ in range(60)]
        for ids in params.torch.ahead(loader, lambda ids: {ours: ids}, 4, worker=kv):
            weights = torch.from_numpy(2 * rng.integers(-4, 5, (10, 2))).float()
            (ours(ids) * weights).sum().backward()
            sums = torch.zeros(40, 2).index_add_(0, ids, weights)
            squares += sums * sums
            steps[ids.unique()] += 1
        assert kv._caches[0].stats["evictions"]
        kv.flush()
        kv.barrier()
        return squares, steps

    results = party.run(work)
    together([lambda one=one: one.save(tmp_path / "store", "m") for one in party.servers])
    found = ligament.Store(tmp_path / "store").load("m")
    squares, steps = (sum(each) for each in zip(*results, strict=True))
    if name == "adam":
        assert found["values.step"].ravel().tolist() == steps.tolist()
    else:
        expected = squares if name == "adagrad" else squares.mean(1)
        assert found["values.sum"].ravel().tolist() == expected.ravel().tolist()
    party.finish()


def test_the_loss_of_a_node_is_reported(nodes: Any) -> None:
    """Cached rows that cannot be written back: an error, not a hang and not silence."""
    party: Nodes = nodes(2, 3, 40, optimizer={"name": "sgd", "lr": 0.5}, liveness_ms=2000)
    (kv,), _ = party.workers
    ours = params.torch.Embedding(40, 3, kv, device_rows=40)
    ours(torch.arange(40)).sum().backward()
    party.servers[1].close()
    with pytest.raises(ligament.Error) as caught:
        for _ in range(1000):  # the first pushes may still be accepted
            ours(torch.arange(40)).sum().backward()
            kv.flush()
    assert isinstance(caught.value, ligament.PeerError)

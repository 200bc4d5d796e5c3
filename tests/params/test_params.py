"""The Python surface of the parameter manager, in one process."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import ligament
import ml_dtypes
import numpy as np
import pytest
from ligament import params
from nodes import together

torch = pytest.importorskip("torch")


def test_push_adds_pull_copies_set_replaces(alone: Any) -> None:
    server, kv = alone()
    keys = np.array([7, 3, 7])
    assert kv.push(keys, np.arange(12, dtype="f4")) == -1
    values = np.empty((3, 4), "f4")
    assert kv.pull(keys, values) == -1
    twice = np.arange(4) + np.arange(8, 12)
    assert values.tolist() == [[*twice], [4, 5, 6, 7], [*twice]]
    kv.set(np.array([3]), np.full(4, 9, "f4"))
    assert kv.get([3]).tolist() == [[9, 9, 9, 9]]
    assert (server.stats()["pulls"], server.stats()["pushes"], server.stats()["sets"]) == (4, 3, 1)


def test_what_keys_and_values_may_be(alone: Any) -> None:
    _, kv = alone()
    ones = np.ones(8, "f4")
    kv.push([1, 2], ones)
    kv.push((1, 2), torch.ones(2, 4))
    kv.push(torch.tensor([1, 2]), ones.reshape(2, 2, 2))
    kv.push(np.array([[1], [2]]), torch.ones(8, requires_grad=True))
    kv.push(1, ones[:4])
    kv.push(np.array([9, 1, 9, 2])[1::2], np.ones((4, 4), "f4")[::2])  # gaps are packed
    kv.push([], np.empty(0, "f4"))
    kv.push([1, 2], ones.astype(">f4"))  # and turned round
    kv.push(keys=[2], vals=ones[:4], asynchronous=True)
    kv.push([2], ones[:4], **{"async": True})
    assert kv.get([1, 2]).tolist() == [[7] * 4, [8] * 4]
    out = torch.zeros(2, 4)
    kv.pull(torch.tensor([1, 2]), out)
    assert out.tolist() == [[7] * 4, [8] * 4] and out._version == 1
    assert isinstance(kv.get(torch.tensor([1])), torch.Tensor)
    assert kv.get(1).shape == (1, 4) and kv.get([]).shape == (0, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int64"])
def test_dtypes(alone: Any, dtype: str) -> None:
    server, kv = alone(3, 10, dtype=dtype)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    kv.push([4, 5], np.arange(6).astype(kind))
    kv.push([5], torch.full((3,), 2, dtype=getattr(torch, dtype)))
    assert kv.get([4, 5]).astype("f8").tolist() == [[0, 1, 2], [5, 6, 7]]
    assert kv.get([4]).dtype == np.dtype(kind) and server.dtype == dtype


def test_tickets(alone: Any) -> None:
    _, kv = alone()
    values = np.empty(4, "f4")
    ticket = kv.pull([1], values, True)
    assert ticket == -1 and isinstance(ticket, ligament.Ticket) and ticket.done()
    ticket.result(1.0)
    ticket.cancel()
    kv.wait(ticket)
    kv.wait(-1, 10)
    kv.waitall()
    kv.waitall(timeout_ms=10)
    assert kv.is_finished(ticket) and kv.is_finished(ts=ticket) and "-1" in repr(ticket)


def test_clocks_and_intent(alone: Any) -> None:
    _, kv = alone()
    assert kv.current_clock() == 0
    assert kv.intent(np.array([1, 2]), kv.current_clock() + 1) == -1
    assert kv.intent([5], 1, 100) == kv.intent(torch.tensor([5]), start=1, end=2) == -1
    kv.advance_clock()
    assert kv.current_clock() == 1
    for call in (kv.wait_sync, kv.flush, kv.barrier, kv.begin_setup, kv.end_setup):
        call()
        call(timeout_ms=60000)


def test_lengths_by_key(alone: Any) -> None:
    lengths = torch.ones(10) * 2  # as the original's example has it: float32
    lengths[4] = 5
    server, kv = alone(lengths, 10)
    kv.push([3, 4], np.arange(7, dtype="f4"))
    assert kv.get([4, 3]).tolist() == [2, 3, 4, 5, 6, 0, 1]
    assert kv.get([3, 5]).shape == (2, 2)
    assert (kv.get_key_size(), kv.get_key_size(4), kv.num_keys) == (2, 5, 10)
    with pytest.raises(ligament.InvalidError, match="9"):
        kv.get_key_size(10)
    assert server.tables == {"values": (10, 0)}


def test_tables(alone: Any) -> None:
    server, kv = alone({"user": (10, 2), "item": (5, 3)}, None)
    assert (server.offset("user"), server.offset("item"), server.num_keys) == (0, 10, 15)
    kv.push([1, server.offset("item") + 1], np.arange(5, dtype="f4"))
    assert kv.get([11]).tolist() == [[2, 3, 4]] and kv.get([1, 2]).shape == (2, 2)
    assert kv.get([1, 11]).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ligament.NotFoundError, match="user"):
        server.offset("none")
    assert "item" in repr(server) and "Worker 0" in repr(kv)


def test_optimizers_against_torch(alone: Any) -> None:
    makers: dict[str, Callable[..., Any]] = {
        "sgd": torch.optim.SGD,
        "adagrad": torch.optim.Adagrad,
        "adam": torch.optim.Adam,
    }
    for name, make in makers.items():
        options: dict[str, Any] = {"lr": 0.1} if name == "sgd" else {"lr": 0.1, "eps": 1e-8}
        _, kv = alone(6, 3, optimizer={"name": name, **options})
        weight = torch.nn.Parameter(torch.zeros(6))
        optimizer = make([weight], **options)
        for step in range(4):
            weight.grad = torch.linspace(-1, 2, 6) * (step + 1)
            optimizer.step()
            kv.push([1], weight.grad)
        assert torch.allclose(kv.get(torch.tensor([1]))[0], weight.detach(), atol=1e-5), name


@pytest.mark.parametrize("pair", [[0.5, 0.6], np.array([0.5, 0.6]), torch.tensor([0.5, 0.6])])
def test_betas_are_any_two_numbers(alone: Any, pair: Any) -> None:
    _, kv = alone(6, 3, optimizer={"name": "adam", "lr": 0.1, "betas": pair})
    kv.push([1], np.ones(6, "f4"))
    assert np.allclose(kv.get([1]), -0.1)


def test_learning_rates(alone: Any) -> None:
    sgd = {"name": "sgd", "lr": 1.0}
    server, kv = alone(
        {"a": (2, 1), "b": (2, 1), "c": (2, 1)}, None, optimizer={"a": sgd, "b": sgd}
    )
    server.lr = 0.5
    kv.push([0, 2, 4], np.ones(3, "f4"))
    assert kv.get([0, 2, 4]).ravel().tolist() == [-0.5, -0.5, 1]
    server.lr = {"b": 0.25}
    kv.push([0, 2], np.ones(2, "f4"))
    assert kv.get([0, 2]).ravel().tolist() == [-1, -0.75]
    assert server.lr["b"] == 0.25 and server.lr["a"] == 0.5
    with pytest.raises(ligament.NotFoundError):
        server.lr = {"a": 9.0, "none": 1.0}
    with pytest.raises(ligament.InvalidError):
        server.lr = "fast"
    assert server.lr["a"] == 0.5


def test_first_values(alone: Any) -> None:
    init = {"name": "uniform", "low": -2.0, "high": -1.0, "seed": 3}
    _, kv = alone(50, 20, init=init)
    values = kv.get(np.arange(20))
    assert (values >= -2).all() and (values < -1).all() and len(np.unique(values)) > 900
    _, other = alone(50, 20, init=init)
    assert (other.get(np.arange(20)) == values).all()
    _, other = alone(50, 20, init=init | {"seed": 4})
    assert (other.get(np.arange(20)) != values).any()
    _, normal = alone(500, 20, init={"name": "normal", "mean": 5.0, "std": 0.1})
    assert abs(normal.get(np.arange(20)).mean() - 5) < 0.05
    server, kv = alone({"a": (2, 2), "b": (2, 2)}, None, init={"a": 3, "b": "zeros"})
    assert kv.get([0, 2]).tolist() == [[3, 3], [0, 0]]


def test_hashed_keys(alone: Any) -> None:
    server, kv = alone(2, 50, hashed=True, init={"name": "constant", "value": 1.0})
    keys = np.array([2**40 + 7, 5, 2**55 - 1])
    kv.push(keys, np.arange(6, dtype="f4"))
    assert kv.get(keys[::-1].copy()).tolist() == [[5, 6], [3, 4], [1, 2]]
    assert kv.get([123456789]).tolist() == [[1, 1]]


def test_sampling(alone: Any) -> None:
    for scheme in ("naive", "preloc", "pool", "local"):
        server, kv = alone(1, 100)
        kv.push(np.arange(100), np.arange(100, dtype="f4"))
        server.enable_sampling_support(scheme, True, "uniform", 20, 60)
        sample = kv.prepare_sample(50, kv.current_clock())
        keys, values = np.zeros(30, "i8"), np.zeros((30, 1), "f4")
        kv.pull_sample(sample, keys, values)
        assert (keys >= 20).all() and (keys < 60).all() and (values[:, 0] == keys).all()
        with pytest.raises(ligament.LimitError):
            kv.pull_sample(sample, keys, values)
        more, rows = torch.zeros(20, dtype=torch.int64), torch.zeros(20)
        kv.pull_sample(sample, more, rows, False)
        assert (rows == more).all()
        kv.finish_sample(kv.prepare_sample(5, 1, 3))


def test_samples_by_weight_and_without_replacement(alone: Any) -> None:
    server, kv = alone(1, 10)
    weights = np.zeros(10)
    weights[[2, 3, 7]] = [1, 2, 1]
    server.enable_sampling_support("naive", False, weights)
    keys, values = np.zeros(3, "i8"), np.zeros(3, "f4")
    kv.pull_sample(kv.prepare_sample(3, 0), keys, values)
    assert sorted(keys.tolist()) == [2, 3, 7]
    server, kv = alone(1, 1000)
    server.enable_sampling_support("local", True, "log-uniform", 0, 1000)
    keys, values = np.zeros(1000, "i8"), np.zeros(1000, "f4")
    kv.pull_sample(kv.prepare_sample(1000, 0), keys, values)
    assert (keys < 100).mean() > 0.5


def test_save_and_load(alone: Any, tmp_path: Any) -> None:
    tables = {"user": (20, 3), "item": (10, 2)}
    options: dict[str, Any] = {"optimizer": {"user": {"name": "adagrad"}}}
    server, kv = alone(tables, None, **options)
    kv.push(np.arange(30), np.linspace(0, 1, 80, dtype="f4"))
    server.save(tmp_path / "s", "epoch/1")
    before = kv.get(np.arange(20))
    kv.push(np.arange(30), np.ones(80, "f4"))
    with ligament.Store(tmp_path / "s") as store:
        saved = store.load("epoch/1")
        assert saved["user"].shape == (20, 3) and (saved["user"] == before).all()
        server.save(store, "epoch/2")
    server.load(tmp_path / "s", "epoch/1")
    assert (kv.get(np.arange(20)) == before).all()
    other, there = alone(tables, None, **options)
    other.load(tmp_path / "s", "epoch/2")
    server.load(tmp_path / "s", "epoch/2")
    for one in (kv, there):  # the optimizer's state came with the rows
        one.push([3], np.ones(3, "f4"))
    assert (there.get([3]) == kv.get([3])).all()
    with pytest.raises(ligament.NotFoundError):
        server.load(tmp_path / "s", "none")
    wrong, _ = alone({"user": (20, 4), "item": (10, 2)}, None)
    with pytest.raises(ligament.MismatchError):
        wrong.load(tmp_path / "s", "epoch/1")


def test_threads_are_workers(alone: Any) -> None:
    server, first = alone(8, 50, threads=3)
    workers = [first, params.Worker(1, server), params.Worker(2, server)]
    keys, ones = np.arange(50), np.ones((50, 8), "f4")

    def work(kv: params.Worker) -> None:
        for _ in range(200):
            kv.push(keys, ones)
        kv.barrier()
        assert (kv.get(keys) == 600).all()
        kv.finalize()

    together([lambda one=one: work(one) for one in workers])


def test_a_worker_belongs_to_one_thread_at_a_time(alone: Any) -> None:
    server, kv = alone(threads=2)
    waiting = threading.Event()
    heard: list[BaseException] = []

    def wait() -> None:
        waiting.set()
        try:
            kv.barrier()  # the other worker never comes
        except ligament.Error as error:
            heard.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    waiting.wait()
    with pytest.raises(ligament.BusyError, match="one thread at a time"):
        while True:
            kv.push([1], np.ones(4, "f4"))
    server.close()  # ends the wait
    thread.join(30)
    assert not thread.is_alive() and isinstance(heard[0], ligament.ClosedError)


def test_the_worker_of_a_thread(alone: Any) -> None:
    server, kv = alone(threads=3)
    assert server.worker() is kv
    (other,) = together([lambda: server.worker()])
    assert other is not kv
    third = params.Worker(2, server)
    assert server.worker() is third
    meet = threading.Barrier(2)  # both are alive, and one worker is left for them
    with pytest.raises(ligament.InvalidError, match="num_threads"):
        together([lambda: [server.worker(), meet.wait()]] * 2)
    meet.abort()


def test_the_worker_of_a_thread_that_has_ended(alone: Any) -> None:
    server, kv = alone()
    kv.close()
    go = threading.Event()
    heard: list[Any] = []

    def later() -> None:
        go.wait()
        server.worker().push([1], np.ones(4, "f4"))
        heard.append(server.worker().get([1]).tolist())

    second = threading.Thread(target=later)
    second.start()  # before the first ends: its number is another
    together([lambda: server.worker().push([1], np.ones(4, "f4"))])
    go.set()
    second.join()
    assert heard == [[[2] * 4]]


def test_handles(alone: Any) -> None:
    server, kv = alone()
    with pytest.raises(ligament.Error):
        params.Worker(0, server)  # taken
    gone = weakref.ref(kv)
    del kv
    gc.collect()
    assert gone() is None
    with params.Worker(0, server) as kv:
        kv.push([1], np.ones(4, "f4"))
    with pytest.raises(ligament.ClosedError):
        kv.push([1], np.ones(4, "f4"))
    server.shutdown()
    server.shutdown()  # has left already
    server.close()
    assert "closed" in repr(server)
    with pytest.raises(ligament.ClosedError):
        server.stats()
    with pytest.raises(ligament.ClosedError):
        params.Worker(0, server)
    with params.Server(4, setup=params.setup(10, 1)) as server:
        kv = params.Worker(0, server)
        kv.finalize()
    with pytest.raises(ligament.ClosedError):
        kv.current_clock()


def test_without_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("DMLC_", "SLURM_", "PBS_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(params.node, "_setup", [])
    with params.Server({"a": (10, 2)}) as server:
        assert server.num_threads == 1 and server.my_rank() == 0 and server.num_nodes == 1
        assert (server.worker().get([3]) == 0).all()
        server.barrier()
    with params.Server([1, 2, 3]) as server:
        assert server.num_keys == 3
    with pytest.raises(ligament.InvalidError, match="setup"):
        params.Server(4)


def test_a_forked_child_is_told(alone: Any) -> None:
    server, kv = alone()
    kv.push([1], np.ones(4, "f4"))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for call in (kv.advance_clock, kv.current_clock, lambda: kv.get([1])):
                with pytest.raises(ligament.ClosedError, match="forked"):
                    call()
            server.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert kv.get([1]).tolist() == [[1] * 4]


def test_stats(alone: Any) -> None:
    server, kv = alone()
    kv.push([1, 2], np.ones(8, "f4"))
    kv.pull([1], np.empty(4, "f4"))
    kv.intent([4, 5], 3)
    stats = server.stats()
    assert stats["local"] == 3 and stats["local_percent"] == 100 and stats["replica_percent"] == 0
    assert stats["relocations"] == stats["bytes"] == 0 and stats["intents"] == 2
    server.reset_stats()
    assert server.stats()["pulls"] == 0 and server.stats()["rows_owned"] == 100

"""Saving in the background: the state at the call, bit for bit."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import _core

torch = pytest.importorskip("torch")
nn = torch.nn


def net(size: int = 300) -> Any:
    return nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))


def step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, model[0].in_features)).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("snapshot", [None, "copy"])
@pytest.mark.parametrize("foreach", [False, True])
def test_training_goes_on(store: ligament.Store, snapshot: str | None, foreach: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=foreach)
    for i in range(4):
        want = {k: v.clone() for k, v in model.state_dict().items()}
        ticket = store.save(f"m{i}", model, wait=False, snapshot=snapshot)
        for _ in range(3):
            step(model, optimizer)
        saved = ticket.result(60)
        assert saved.name == f"m{i}" and ticket.done()
        back = store.load(f"m{i}", framework="torch")
        assert all(torch.equal(back[k], want[k]) for k in want)
        assert any(not torch.equal(back[k], v) for k, v in model.state_dict().items())


OWN = ["own", "inside", "part"]  # what torch allocated is shared, the rest is copied


def test_memory_that_torch_did_not_allocate(store: ligament.Store, tmp_path: Path) -> None:
    array = np.arange(100_000, dtype=np.float32)
    np.save(tmp_path / "x.npy", array)
    saved = {
        "numpy": torch.from_numpy(array.copy()),
        "shared": torch.arange(100_000.0).share_memory_(),
        "mapped": torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c")),
        "own": torch.arange(100_000.0),
        "array": array.copy(),
        "strided": torch.from_numpy(array.copy())[::2],
        "inside": torch.arange(200_000.0)[100_000:] - 100_000,
        "part": torch.arange(-7.0, 100_000.0)[7:],
    }
    flags = ligament.tensors.hold(_core.Batch(list(saved), list(saved.values())), [*saved.values()])
    assert [name for name, flag in zip(saved, flags, strict=True) if not flag] == OWN
    ticket = store.save("m", saved, wait=False)
    for value in saved.values():
        value[:] = -1
    ticket.result(60)
    back = store.load("m")
    for name in saved:
        want = array[::2] if name == "strided" else array
        assert np.array_equal(back[name], want), name


@pytest.mark.parametrize("room", [1, 1000, 300_000, 1 << 30])
def test_the_arena_bounds_the_copies(store: ligament.Store, room: int) -> None:
    rng = np.random.default_rng(0)
    saved = {
        f"t{i}": rng.random(size) for i, size in enumerate([10, 9000, 0, 70_000, 5, 30_000] * 3)
    }
    want = {name: value.copy() for name, value in saved.items()}
    ticket = store.save("m", saved, wait=False, snapshot="copy", snapshot_bytes=room)
    for value in saved.values():
        value[:] = -1
    ticket.result(60)
    store.wait()
    arena = store._saves._spare
    assert arena is not None and len(arena) <= max(room, 1)
    back = store.load("m")
    assert all(np.array_equal(back[name], want[name]) for name in want)


def test_the_arena_is_reused(store: ligament.Store) -> None:
    value = {"x": np.zeros(100_000)}
    arenas = []
    for name in ("a", "b"):
        store.save(name, value, wait=False)
        store.wait()
        arenas.append(store._saves._spare)
    assert arenas[0] is not None and arenas[0] is arenas[1]


def test_a_snapshot_shares_memory_until_it_is_written(files: ligament.Store) -> None:
    model = net()
    values = list(model.parameters())
    before = [torch._C._data_address(v) for v in values]
    batch = _core.Batch([str(i) for i in range(len(values))], values)
    flags = ligament.tensors.hold(batch, values)
    assert batch.addresses() == before  # no copy was made
    assert [bool(f) for f in flags] == [v.nbytes < 2048 for v in values]
    ticket = files.save("m", model, wait=False)
    ticket.result(60)
    files.close()
    assert [torch._C._data_address(v) for v in model.state_dict().values()] == before


def test_the_main_thread_releases_shared_memory(
    files: ligament.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch corrupts memory if one thread releases it while another writes to the tensor."""
    lazy_clone, by = torch._lazy_clone, []

    def observed(value: Any) -> Any:
        clone = lazy_clone(value)
        weakref.finalize(clone.untyped_storage(), lambda: by.append(threading.get_ident()))
        return clone

    monkeypatch.setattr(torch, "_lazy_clone", observed)
    files.save("m", [torch.zeros(1 << 20) for _ in range(3)], wait=False).result(60)
    files.wait()
    assert by == [threading.get_ident()] * 3


def test_a_second_snapshot_shares_memory() -> None:
    """While the first one exists: those of two stores may overlap."""
    values = [torch.zeros(1 << 20), torch.nn.Parameter(torch.zeros(1 << 20))]
    batches = [_core.Batch(["a", "b"], values) for _ in range(3)]
    assert [ligament.tensors.hold(batch, values) for batch in batches] == [bytes(2)] * 3


def test_the_release_of_memory_calls_no_mode_of_the_program() -> None:
    """It runs between any two instructions of the main thread."""
    seen = []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    value = torch.zeros(1 << 20)
    storage = weakref.ref(value.untyped_storage())
    batch = _core.Batch(["a"], [value])
    assert ligament.tensors.hold(batch, [value]) == b"\0"
    with Seen():
        del value
        batch.release(0, 1)
        ligament.tensors.release_soon()
    assert storage() is None
    assert seen == []


def test_a_save_that_cannot_start_keeps_no_memory(files: ligament.Store) -> None:
    value = torch.zeros(1 << 20)
    storage = weakref.ref(value.untyped_storage())
    with pytest.raises(ligament.InvalidError):
        files.save("", [value], wait=False)
    del value
    gc.collect()
    assert storage() is None


def test_other_threads_share_no_memory() -> None:
    values = [torch.zeros(1 << 20)]
    batch = _core.Batch(["a"], values)
    flags: list[int] = []
    thread = threading.Thread(target=lambda: flags.extend(ligament.tensors.hold(batch, values)))
    thread.start()
    thread.join()
    assert flags == [1]


def test_snapshots_are_dropped(files: ligament.Store) -> None:
    class Owner:
        def __init__(self) -> None:
            self.value = np.arange(1 << 20)

        @property
        def __array_interface__(self) -> Any:
            return self.value.__array_interface__

    owners = [Owner() for _ in range(3)]
    alive = [weakref.ref(owner.value) for owner in owners]
    ticket = files.save("m", {str(i): owner for i, owner in enumerate(owners)}, wait=False)
    del owners
    ticket.result(60)
    files.wait()  # the thread that lets go has ended too
    gc.collect()
    assert all(ref() is None for ref in alive)


def test_a_second_save_waits_for_the_first(store: ligament.Store) -> None:
    tickets = [store.save(f"m{i}", {"x": np.full(200_000, i)}, wait=False) for i in range(5)]
    assert all(ticket.done() for ticket in tickets[:-1])
    store.save("last", {"x": np.zeros(1)})
    assert all(ticket.done() for ticket in tickets) and len(store) == 6


def fail_later(store: ligament.Store) -> Any:
    """A save in the background that will fail, or None when it was refused at the call."""
    store.save("m", {"x": np.zeros(3)})
    try:
        return store.save("m", {"x": np.ones(3)}, wait=False)
    except ligament.ExistsError:
        return None


def test_failure_is_raised_at_the_next_save(store: ligament.Store) -> None:
    if fail_later(store) is not None:
        with pytest.raises(ligament.ExistsError, match="'m'"):
            store.save("n", {"x": np.zeros(1)})
    store.save("n", {"x": np.zeros(1)})  # raised once
    assert store.load("m")["x"].sum() == 0


def test_failure_is_raised_by_close() -> None:
    store = ligament.Store("mem:")
    if fail_later(store) is not None:
        with pytest.raises(ligament.ExistsError, match="'m'"):
            store.close()
    store.close()
    with pytest.raises(ligament.ClosedError):
        len(store)


def test_failure_is_heard_once(store: ligament.Store) -> None:
    ticket = fail_later(store)
    if ticket is not None:
        for _ in range(2):
            with pytest.raises(ligament.ExistsError, match="'m'"):
                ticket.result(60)
    store.wait()  # the ticket has already reported it
    store.save("n", {"x": np.zeros(1)})


def test_close_waits_and_raises(tmp_path: Path) -> None:
    store = ligament.Store(tmp_path / "s")
    store.save("m", {"x": np.arange(500_000)}, wait=False)
    store.close()
    with ligament.Store(tmp_path / "s", mode="r") as reader:
        assert reader.load("m")["x"][-1] == 499_999


def test_timeouts_and_repr(store: ligament.Store) -> None:
    ticket = store.save("m", {"x": np.zeros(3_000_000)}, wait=False)
    try:
        ticket.result(timeout=0)
    except TimeoutError as error:
        assert isinstance(error, ligament.TimeoutError)
    with pytest.raises(ValueError):
        ticket.result(timeout=-1)
    ticket.result(60)
    assert "done" in repr(ticket) and ticket.result(0).name == "m"


def test_many_threads_save_and_load(store: ligament.Store) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(5):
                store.save(f"{number}/{i}", {"x": np.full(1000, number)})
                assert store.load(f"{number}/{i}")["x"][0] == number
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(store) == 30


def test_a_process_that_ends_finishes_its_save(tmp_path: Path, script: Any) -> None:
    code = """
import sys, numpy as np, ligament
store = ligament.Store(sys.argv[1])
store.save("m", {"x": np.arange(3_000_000)}, wait=False)
"""
    done = script(code, tmp_path / "s")
    assert done.returncode == 0, done.stderr
    with ligament.Store(tmp_path / "s") as store:
        assert store.load("m")["x"][-1] == 2_999_999

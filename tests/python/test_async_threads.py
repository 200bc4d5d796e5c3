"""Asynchronous saves from several threads on one Store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import _core
from ligament.checkpoint import Checkpointer

THREADS, ROUNDS = 4, 6


def in_threads(work: Callable[[int], None], count: int = THREADS) -> None:
    """Runs work(0), work(1), ... at once and raises the first failure."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def values(kind: str, number: int) -> dict[str, Any]:
    arrays = {f"t{i}": np.full(30_000 + 1000 * i, number, np.float32) for i in range(4)}
    if kind == "numpy":
        return arrays
    torch = pytest.importorskip("torch")
    made = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return made if kind == "from_numpy" else {name: t.clone() for name, t in made.items()}


@pytest.mark.parametrize("snapshot_bytes", [100_000, 256 << 20])
@pytest.mark.parametrize(
    ("kind", "snapshot"), [("numpy", None), ("from_numpy", None), ("torch", "copy")]
)
def test_every_thread_gets_its_own_bytes(
    store: ligament.Store, kind: str, snapshot: str | None, snapshot_bytes: int
) -> None:
    how = {"wait": False, "snapshot": snapshot, "snapshot_bytes": snapshot_bytes}

    def work(thread: int) -> None:
        for i in range(ROUNDS):
            number = thread * ROUNDS + i
            mine = values(kind, number)
            store.save(str(number), mine, **how)
            for tensor in mine.values():
                tensor[:] = -1

    in_threads(work)
    store.wait()
    wrong = [
        name
        for name in store
        for tensor in store.load(name).values()
        if not np.array_equal(tensor, np.full_like(tensor, int(name)))
    ]
    assert len(store) == THREADS * ROUNDS and not wrong


def test_checkpointers_in_threads(store: ligament.Store) -> None:
    def work(thread: int) -> None:
        with Checkpointer(store) as checkpointer:
            for i in range(ROUNDS):
                number = thread * ROUNDS + i
                mine = values("numpy", number)
                checkpointer.save(number, model=mine, wait=False)
                for tensor in mine.values():
                    tensor[:] = -1

    in_threads(work)
    for model in store.models():
        number = int(model.name.removeprefix("step-"))
        assert all((t == number).all() for t in store.load(model)["model"].values()), number
    assert len(store) == THREADS * ROUNDS


class Held:
    """A store whose saves end when told to."""

    def __init__(self, store: ligament.Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = self.most = 0
        self.go = threading.Event()
        self.started = threading.Semaphore(0)
        lock = threading.Lock()
        inner = store._core

        class Core:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def save_copy(core, *args: Any) -> Any:  # noqa: N805
                with lock:
                    self.running += 1
                    self.most = max(self.most, self.running)
                return Ticket(inner.save_copy(*args))

        class Ticket:
            def __init__(self, ticket: _core.Ticket) -> None:
                self.ticket = ticket
                self.ended = False
                held.started.release()

            def wait(self, seconds: float | None = None) -> None:
                self.ticket.wait(seconds)
                held.go.wait()
                with lock:
                    held.running -= not self.ended
                    self.ended = True

            def done(self) -> bool:
                return held.go.is_set() and self.ticket.done()

            def progress(self, *args: Any) -> int:
                return self.ticket.progress(*args)

        held = self
        monkeypatch.setattr(store, "_core", Core())


def test_one_save_at_a_time(store: ligament.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's save waits for the one in the background."""
    held = Held(store, monkeypatch)
    store.save("first", values("numpy", 1), wait=False)
    held.started.acquire()
    threads = [
        threading.Thread(
            target=store.save, args=(str(i), values("numpy", i)), kwargs={"wait": False}
        )
        for i in range(3)
    ]
    for thread in threads:
        thread.start()
    assert held.running == 1
    held.go.set()
    for thread in threads:
        thread.join()
    store.wait()
    assert held.most == 1 and len(store) == 4


def test_every_failure_is_raised_once(store: ligament.Store) -> None:
    """However many threads save: a failure is heard by one of them, and none is lost."""
    store.save("taken", values("numpy", 0))
    raised: list[str] = []
    lock = threading.Lock()
    started = []

    def work(thread: int) -> None:
        for _ in range(ROUNDS):
            try:
                ticket = store.save("taken", values("numpy", thread), wait=False)
            except ligament.ExistsError as error:
                with lock:
                    raised.append(str(error))
            else:
                with lock:
                    started.append(ticket)

    in_threads(work)
    try:
        store.wait()
    except ligament.ExistsError as error:
        raised.append(str(error))
    store.wait()
    assert all(ticket.done() for ticket in started)
    # Each call either was refused, raised the failure of the save before it, or began one.
    assert len(raised) + len(started) >= THREADS * ROUNDS
    assert len(raised) >= len(started)
    assert all(tensor.sum() == 0 for tensor in store.load("taken").values())


def test_close_waits_for_saves_of_other_threads(tmp_path: Path) -> None:
    """What a ticket was given for is stored, whenever another thread closes the store."""
    for attempt in range(5):
        store = ligament.Store(tmp_path / str(attempt))
        tickets: dict[str, Any] = {}

        def work(thread: int, store: Any = store, tickets: Any = tickets) -> None:
            if thread == 0:
                while not tickets:
                    pass
                store.close()
                return
            for i in range(100):
                try:
                    name = f"{thread}/{i}"
                    tickets[name] = store.save(name, values("numpy", thread), wait=False)
                except ligament.ClosedError:
                    return

        in_threads(work, 3)
        names = {name: ticket.result(60).name for name, ticket in tickets.items()}
        assert all(name == saved for name, saved in names.items())
        with ligament.Store(tmp_path / str(attempt), mode="r") as reader:
            assert set(reader) == set(tickets)


def test_a_wait_that_is_interrupted_forgets_nothing(
    store: ligament.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = store.save("m", values("numpy", 1), wait=False)
    settle = type(ticket)._settle

    def interrupted(_: Any) -> None:
        monkeypatch.setattr(type(ticket), "_settle", settle)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(ticket), "_settle", interrupted)
    monkeypatch.setattr(type(ticket), "done", lambda _: False)
    with pytest.raises(KeyboardInterrupt):
        store.wait()
    monkeypatch.undo()
    assert store._saves.pending == [ticket]
    store.wait()
    assert store._saves.pending == []

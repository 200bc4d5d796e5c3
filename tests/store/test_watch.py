"""Store.watch: changes in commit order, without gaps."""

from __future__ import annotations

import datetime
import subprocess
import sys
import threading

import ligament
import numpy
import pytest

SOON = 60.0  # longer than any wait that ends by an event


@pytest.fixture
def watchable(store: ligament.Store) -> ligament.Store:
    """A store of each kind whose volume keeps events."""
    try:
        store.watch().close()
    except ligament.UnsupportedError as error:
        pytest.skip(str(error))
    return store


def save(store: ligament.Store, name: str, value: int = 1, **options: object) -> ligament.Model:
    return store.save(name, {"x": numpy.full(10, value)}, **options)  # type: ignore[arg-type, no-any-return]


def told(watch: ligament.Watch) -> list[tuple[str, str, str | None]]:
    return [(event.kind, event.name, event.other) for event in watch]


def test_kinds(watchable: ligament.Store) -> None:
    store = watchable
    watch = store.watch(timeout=0)
    assert told(watch) == []
    first = save(store, "m")
    store.alias("prod", "m")
    second = save(store, "m", 2, replace=True)
    store.update("m", tags={"a": "b"})
    store.update("m", name="n")
    store.check(repair=True)
    store.compact()
    store.alias("prod", None)
    store.alias("best", "n")
    store.retire("n")
    events = list(watch)
    assert [(e.kind, e.name, e.other, e.id, e.more) for e in events] == [
        ("saved", "m", None, first.id, 0),
        ("alias", "prod", "m", first.id, 0),
        ("replaced", "m", None, second.id, 1),
        ("alias", "prod", "m", second.id, 0),
        ("updated", "m", None, second.id, 0),
        ("updated", "n", "m", second.id, 0),
        ("alias", "prod", None, None, 0),
        ("alias", "best", "n", second.id, 0),
        ("retired", "n", None, second.id, 1),
        ("alias", "best", None, None, 0),
    ]
    versions = [event.version for event in events]
    assert versions == sorted(versions)
    assert versions[2] == versions[3] and versions[8] == versions[9] == watch.since
    assert all(isinstance(e.date, datetime.datetime) and e.date.tzinfo for e in events)
    assert told(watch) == []


def test_the_model_of_an_event(watchable: ligament.Store) -> None:
    store = watchable
    watch = store.watch(timeout=0)
    saved = save(store, "m", metrics={"acc": 0.5})
    (event,) = watch
    model = event.model
    assert model == saved and model is not None and model.metrics == {"acc": 0.5}
    assert store.load(model)["x"][0] == 1
    store.update("m", name="n")
    (event,) = watch
    assert event.model is not None and event.model.name == "n"
    store.retire("n")
    (event,) = watch
    assert event.model is None and event.id == saved.id


def test_since_and_names(watchable: ligament.Store) -> None:
    store = watchable
    save(store, "run/1")
    save(store, "other")
    store.alias("best", "run/1")
    assert told(store.watch("run/*", since=0, timeout=0)) == [
        ("saved", "run/1", None),
        ("alias", "best", "run/1"),
    ]
    assert told(store.watch("best", since=0, timeout=0)) == [("alias", "best", "run/1")]
    first = next(store.watch(since=0))
    assert told(store.watch(since=first.version, timeout=0)) == [
        ("saved", "other", None),
        ("alias", "best", "run/1"),
    ]
    assert told(store.watch(since=store.stats()["version"], timeout=0)) == []
    with pytest.raises(ligament.NotFoundError, match="list the models again"):
        store.watch(since=store.stats()["version"] + 1)
    for wrong in (-1, 1.5, "x", 1 << 70):
        with pytest.raises((ligament.InvalidError, TypeError)):
            store.watch(since=wrong)  # type: ignore[arg-type]
    with pytest.raises(ligament.InvalidError):
        next(store.watch(timeout=float("nan")))


def test_half_a_commit_comes_again(watchable: ligament.Store) -> None:
    store = watchable
    save(store, "m")
    store.alias("a", "m")
    watch = store.watch()
    before = watch.since
    store.retire("m")
    assert next(watch).more == 1 and watch.since == before
    assert told(store.watch(since=watch.since, timeout=0)) == [
        ("retired", "m", None),
        ("alias", "a", None),
    ]
    assert next(watch).more == 0 and watch.since > before


def test_too_old() -> None:
    with ligament.Store("mem:") as store:
        save(store, "m")
        slow = store.watch()
        since = store.stats()["version"]
        for _ in range(300):
            store.alias("n" * 4000, "m")
        with pytest.raises(ligament.NotFoundError, match="list the models again"):
            store.watch(since=since)
        with pytest.raises(ligament.NotFoundError, match="list the models again"):
            next(slow)


def test_a_writer_beside(watchable: ligament.Store) -> None:
    store = watchable
    watch = store.watch(timeout=SOON)
    count = 50

    def write() -> None:
        for i in range(count):
            save(store, "m", i, replace=True)

    writer = threading.Thread(target=write)
    writer.start()
    events = [next(watch) for _ in range(count)]
    writer.join()
    assert [event.kind for event in events] == ["saved"] + ["replaced"] * (count - 1)
    assert len({event.version for event in events}) == count
    assert events[-1].model == store["m"]


@pytest.mark.parametrize("what", ["store", "watch"])
def test_closing_ends_a_wait(what: str) -> None:
    store = ligament.Store("mem:")
    watch = store.watch()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            next(watch)
        except ligament.ClosedError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    (store if what == "store" else watch).close()
    waiter.join(SOON)
    assert len(raised) == 1
    with pytest.raises(ligament.ClosedError):
        next(watch)
    with pytest.raises(ligament.ClosedError):
        store.watch().close()
        store.close()
        store.watch()


def test_handle() -> None:
    with ligament.Store("mem:") as store:
        with store.watch("m*") as watch:
            assert repr(watch) == f"<ligament.Watch 'm*' of mem: since {watch.since}>"
        assert repr(watch) == "<ligament.Watch 'm*' of mem: (closed)>"
        with pytest.raises(ligament.ClosedError):
            _ = watch.since


INTERRUPTED = """
import ligament, os, signal, threading
store = ligament.Store("mem:")
watch = store.watch()
try:
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    next(watch)
except KeyboardInterrupt:
    store.alias("a", store.save("m", {}))
    print(next(watch).kind)
"""


def test_interrupt() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    assert (done.stdout, done.returncode) == ("saved\n", 0), done.stderr

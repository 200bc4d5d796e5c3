"""A load returns one version, even while other processes replace, retire and compact.

Every version is made of one number, which its tensors, metadata, metrics and structure hold."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ligament
import ligament.load
import numpy as np
import pytest
from ligament import Graph, Store
from ligament.checkpoint import Checkpointer

NAMES, LENGTH = ("a", "b", "c", "d"), 32 << 10  # 128 KiB a tensor: large enough to lie in packs
GRAPH = Graph([(name, "layer") for name in NAMES], list(itertools.pairwise(NAMES)))
SHARED = np.arange(LENGTH, dtype=np.float32)  # the same in all versions, which refer to it


def tree_of(number: int) -> dict[str, Any]:
    made: dict[str, Any] = {name: {"w": np.full(LENGTH, number, np.float32)} for name in NAMES}
    return made | {"shared": SHARED, "number": number}


def save(store: Store, number: int, name: str = "m", tree: Any = None) -> Any:
    return store.save(
        name,
        tree_of(number) if tree is None else tree,
        metrics={"number": number},
        meta={"number": number},
        graph=GRAPH,
        replace=True,
    )


def one_number(arrays: list[Any], *others: float) -> int:
    """The number that all of it holds."""
    numbers = {int(n) for array in arrays for n in (np.min(array), np.max(array))}
    numbers |= set(map(int, others))
    assert len(numbers) == 1, f"torn: {sorted(numbers)}"
    return numbers.pop()


def tensors_of(tree: dict[str, Any]) -> list[Any]:
    if "shared" in tree:
        assert np.array_equal(tree["shared"], SHARED)
    return [tree[name]["w"] for name in NAMES]


# --- what a reader does -------------------------------------------------------------------------


def load(store: Store) -> None:
    tree = store.load("m")
    one_number(tensors_of(tree), tree["number"])


def fill(store: Store) -> None:
    tree = tree_of(0)
    store.load("m", into=tree, progress=True)
    one_number(tensors_of(tree), tree["number"])


def cast(store: Store) -> None:
    tree = tree_of(0)
    for name in NAMES:
        tree[name]["w"] = np.zeros(LENGTH, np.float64)
    store.load("m", into=tree, cast=True)
    one_number(tensors_of(tree), tree["number"])


def mapped(store: Store) -> None:
    tree = store.load("m", map=True)
    one_number(tensors_of(tree), tree["number"])


def slices(store: Store) -> None:
    parts = store.load("m", tensors={f"{name}.w": slice(100, 30000, 7) for name in NAMES})
    one_number(list(parts.values()))


def described(store: Store) -> None:
    """A Model stays what it is, and is loaded in its own version or not at all."""
    model = store["m"]
    number = one_number([], model.meta["number"], model.metrics["number"])
    with contextlib.suppress(ligament.NotFoundError):
        tree = store.load(model)
        one_number(tensors_of(tree), tree["number"], number)
    listed = store.models("m")
    with contextlib.suppress(ligament.NotFoundError):
        if listed:
            assert listed[0].tensors.keys() == model.tensors.keys()


def compare(store: Store) -> None:
    """All tensors differ or none, apart from the shared one."""
    found = store.diff("m", "m")
    assert len(found.same) in (1, len(NAMES) + 1), found
    assert not (found.reshaped or found.removed or found.added)


def find(store: Store) -> None:
    match = store.find(GRAPH)
    if match is None:
        return
    number = match.model.meta["number"]
    loaded = store.load(match)
    one_number(list(loaded.values()), number)
    into = {name: {"w": np.zeros(LENGTH, np.float32)} for name in NAMES}
    store.load(match, into=into)
    one_number(tensors_of(into), number)


def lineage(store: Store) -> None:
    family = store.lineage("m")
    assert family.model.meta["number"] == family.model.metrics["number"]


def restore(store: Store) -> None:
    target = {name: {"w": np.zeros(LENGTH, np.float32)} for name in NAMES}
    at = Checkpointer(store, distributed=False).restore(model=target, step=1)
    assert at is not None
    one_number(tensors_of(target), at.extra, at.metrics["number"])


READERS = (load, fill, cast, mapped, slices, described, compare, find, lineage, restore)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of one tensor, as models of hundreds of MiB have groups of some."""
    monkeypatch.setattr(ligament.load, "_GROUP_BYTES", 100 << 10)
    monkeypatch.setattr(ligament.load, "_SHOWN_BYTES", 100 << 10)


# --- one thing at a time ------------------------------------------------------------------------


@pytest.fixture(params=["file", "mem", "file, read-only", "mem, read-only"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """A store to write into, and another handle of it to read from."""
    kind, _, mode = request.param.partition(", ")
    place = f"{tmp_path / 'store'}?fsync=0" if kind == "file" else f"mem:{tmp_path}"
    with Store(place) as writer, Store(place, "r" if mode else "a") as reader:
        yield writer, reader


def packs(store: Store) -> int:
    return int(store.stats()["packs"])


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("read", [fill, cast])
@pytest.mark.parametrize("end", ["replace", "retire"])
def test_a_load_in_groups(
    both: tuple[Store, Store], read: Callable[[Store], None], end: str, monkeypatch: Any
) -> None:
    writer, reader = both
    save(writer, 1)
    numbers = itertools.count(2)
    groups, ended = ligament.load._groups, []

    def between(sizes: list[int], limit: int) -> Iterator[range]:
        for part in groups(sizes, limit):
            yield part
            ended.append(part)
            if end == "replace":
                save(writer, next(numbers))
            elif len(ended) == 1:
                writer.retire("m")
            writer.compact()

    monkeypatch.setattr(ligament.load, "_groups", between)
    read(reader)
    assert len(ended) > 3
    monkeypatch.undo()
    if end == "replace":
        read(reader)
    assert writer.compact().problems == []
    assert packs(writer) == (2 if end == "replace" else 0)


def test_a_resolved_model_stays(both: tuple[Store, Store]) -> None:
    writer, reader = both
    save(writer, 1)
    ref = reader._core.resolve("m")
    save(writer, 2)
    again = reader._core.resolve("m")
    writer.retire("m")
    writer.compact()
    with pytest.raises(ligament.NotFoundError):
        load(reader)
    for held, number in ((ref, 1), (again, 2)):
        loader = ligament.load.Loader(held)
        tree = loader.whole(None, False, None)
        assert one_number(tensors_of(tree), tree["number"]) == number
        views = ligament.load.Loader(held).whole(None, True, None)
        assert one_number(tensors_of(views)) == number
        torch_like = held.map(True, True)  # for a framework that writes into its views
        assert np.frombuffer(torch_like.memory(0), np.float32)[0] == number
        loader = ligament.load.Loader(held)
        loader.choose({"a.w": slice(5, 9)})
        assert one_number(list(loader.whole(None, False, None).values())) == number
    same, changed, *_ = ref.diff(again)
    assert (len(same), len(changed)) == (1, len(NAMES))
    with Store("mem:") as other:
        ref.copy(other._core, "copied", False)
        assert one_number(tensors_of(other.load("copied"))) == 1
    del ref, again, held, loader, views, torch_like
    assert packs(writer) == 0 or writer.compact().problems == []
    assert packs(writer) == 0


def test_a_resolved_model_outlives_its_store(tmp_path: Path) -> None:
    for place in (str(tmp_path / "store"), "mem:"):
        store = Store(place)
        save(store, 3)
        ref = store._core.resolve("m")
        store.close()
        tree = ligament.load.Loader(ref).whole(None, False, None)
        assert one_number(tensors_of(tree), tree["number"]) == 3


def test_save_returns_what_it_saved(tmp_path: Path) -> None:
    """Also when another has replaced or retired it before the call returns."""
    place = f"{tmp_path / 'store'}?fsync=0"
    with Store(place) as store, Store(place) as other:
        for wait, small in itertools.product((True, False), (True, False)):
            tree = {"w": np.float32(5)} if small else None

            def meanwhile(tree: Any = tree) -> None:
                save(other, 6, tree=tree)
                other.retire("m")

            found = ligament.tensors.collect(tree_of(5) if tree is None else tree)
            made = store._save(
                "m", found, meta={"number": 5}, replace=True, wait=wait, after=meanwhile
            )
            model = made if wait else made.result()
            assert model.meta == {"number": 5}
            assert set(model.tensors) == set(found.names)
            assert model.tensors[found.names[0]].fingerprint != "0" * 32
            with pytest.raises(ligament.NotFoundError, match="replaced or retired"):
                store.load(model)
        assert packs(store) == 0


def test_a_model_is_loaded_in_its_version(both: tuple[Store, Store]) -> None:
    writer, reader = both
    first = save(writer, 1)
    assert one_number(tensors_of(reader.load(reader["m"]))) == 1
    listed = reader.models()[0]
    writer.update("m", name="n")
    assert one_number(tensors_of(writer.load(first))) == 1  # by whatever name
    writer.update("n", name="m")
    save(writer, 2)
    for call in (
        lambda: writer.load(first),
        lambda: reader.load(listed),
        lambda: listed.tensors,
        lambda: writer.diff(first, "m"),
        lambda: ligament.copy(first, writer, new_name="copy"),
    ):
        with pytest.raises(ligament.NotFoundError, match="replaced or retired"):
            call()
    with Store("mem:") as other:  # of another store it is the name that counts
        save(other, 9)
        assert one_number(tensors_of(other.load(first))) == 9


def test_a_full_place_can_be_read(tmp_path: Path) -> None:
    """Where a pin cannot be written a mapping does."""
    place = tmp_path / "store"
    with Store(place) as store:
        save(store, 1)
    (place / "leases").unlink(missing_ok=True) if (place / "leases").is_file() else None
    if (place / "leases").is_dir():
        for left in (place / "leases").iterdir():
            left.unlink()
        (place / "leases").rmdir()
    (place / "leases").write_text("no folder: nothing can be pinned")
    with Store(place) as store:
        for reader in (load, mapped, slices, lineage, described):
            reader(store)


# --- all at once --------------------------------------------------------------------------------


def churn(store: Store, number: int) -> None:
    """What a writer does in one round."""
    save(store, number)
    Checkpointer(store, distributed=False).save(
        1,
        model={name: {"w": np.full(LENGTH, number, np.float32)} for name in NAMES},
        extra=number,
        metrics={"number": number},
    )
    if number % 7 == 0:
        store.retire("m")
    if number % 5 == 0:
        store.compact()


def write(place: str) -> None:
    """Until the reader has gone."""
    with Store(place) as store:
        for number in itertools.count(1):
            churn(store, number)
            if number == 8:
                print("ready", flush=True)
            if select.select([sys.stdin], [], [], 0)[0]:
                break
    print(number)


@contextlib.contextmanager
def writing_process(place: str) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, __file__, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        yield
        writer.stdin.close()
        assert int(writer.stdout.read()) > 8
    assert writer.returncode == 0


@contextlib.contextmanager
def writing_thread(place: str) -> Iterator[None]:
    stop, ready = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with Store(place) as store:
                for number in itertools.count(1):
                    churn(store, number)
                    if number == 8:
                        ready.set()
                    if stop.is_set():
                        break
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def campaign(place: str, mode: str, go_on: Callable[[int], bool]) -> tuple[int, int]:
    """Reads in turn while it is to go on; how often, and how often there was nothing."""
    done = missing = 0
    with Store(place, mode) as store:
        for reader in itertools.cycle(READERS):
            if not go_on(done):
                return done, missing
            try:
                reader(store)
            except ligament.NotFoundError:
                missing += 1  # retired a moment ago
            done += 1
    return done, missing


def place_of(kind: str, tmp_path: Path) -> tuple[str, Any]:
    if kind == "file":
        return f"{tmp_path / 'store'}?fsync=0", writing_process
    return f"mem:{tmp_path}", writing_thread


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("kind", ["file", "mem"])
def test_readers_beside_a_writer(kind: str, mode: str, tmp_path: Path) -> None:
    place, writing = place_of(kind, tmp_path)
    with Store(place), writing(place):
        done, missing = campaign(place, mode, lambda done: done < 20 * len(READERS))
        assert missing < done  # how many depends on who is quicker
    with Store(place) as store:
        assert store.check().problems == []


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("kind", ["file", "mem"])
def test_an_hour_beside_a_writer(kind: str, tmp_path: Path, capsys: Any) -> None:
    """LIGAMENT_SOAK_S seconds for each kind of place, an hour unless told otherwise."""
    seconds = float(os.environ.get("LIGAMENT_SOAK_S", "3600"))
    place, writing = place_of(kind, tmp_path)
    end = time.monotonic() + seconds
    with Store(place), writing(place):
        done, missing = campaign(place, "a", lambda done: time.monotonic() < end)
    with capsys.disabled():
        print(f"\n{kind}: {done} loads in {seconds:.0f} s, 0 torn, {missing} of a retired model")
    with Store(place) as store:
        assert store.check().problems == []


if __name__ == "__main__":
    write(sys.argv[1])

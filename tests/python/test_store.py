"""The store from Python: names, metrics, tags, queries, aliases, changes, copies."""

from __future__ import annotations

import datetime
import os
import pickle
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest


def tree(value: float = 1.0) -> dict[str, Any]:
    return {"w": np.full((4, 3), value, np.float32), "b": np.arange(3)}


def test_what_a_model_tells(store: ligament.Store) -> None:
    m = store.save(
        "resnet/7", tree(), metrics={"val_acc": 0.91}, tags={"run": "a"}, meta={"lr": 0.1, "x": [1]}
    )
    assert (m.name, m.parent, m.bytes, m.own_bytes) == ("resnet/7", None, 72, 72)
    assert m.metrics == {"val_acc": 0.91} and m.tags == {"run": "a"}
    assert m.meta == {"lr": 0.1, "x": [1]}
    assert list(m.tensors) == ["w", "b"] and m.owners == {"w": m.id, "b": m.id}
    info = m.tensors["w"]
    assert (info.dtype, info.shape, info.bytes, info.tied) == ("float32", (4, 3), 48, None)
    age = datetime.datetime.now(datetime.UTC) - m.created
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=5)
    assert "resnet/7" in repr(m) and store["resnet/7"] == m


def test_a_name_is_saved_once(store: ligament.Store) -> None:
    first = store.save("x", tree(1))
    with pytest.raises(FileExistsError, match="'x'"):
        store.save("x", tree(2))
    assert store.load("x")["w"][0, 0] == 1
    second = store.save("x", tree(2), replace=True)
    assert second.id != first.id and len(store) == 1
    assert store.load("x")["w"][0, 0] == 2


def test_queries(store: ligament.Store) -> None:
    for i, acc in enumerate([0.5, 0.9, 0.7]):
        tags = {"run": "a" if i else "b"}
        store.save(f"net/{i}", tree(i), metrics={"acc": acc}, tags=tags)
    store.save("other", tree(9))
    names = lambda **query: [m.name for m in store.models(**query)]  # noqa: E731
    assert names() == ["net/0", "net/1", "net/2", "other"]
    assert names(name="net/*", order="-acc") == ["net/1", "net/2", "net/0"]
    assert names(order="-acc", limit=2) == ["net/1", "net/2"]
    assert names(tags={"run": "a"}, order="-name") == ["net/2", "net/1"]
    assert names(name="none*") == []
    assert "net/1" in store and "nope" not in store and 3 not in store and len(store) == 4
    assert list(store) == names() and bool(store)
    assert list(store.models("net/0")[0].tensors) == ["w", "b"]  # fetched when asked for


def test_update_and_alias(store: ligament.Store) -> None:
    store.save("a", tree(1), metrics={"loss": 2.0}, tags={"t": "1", "u": "2"}, meta={"k": 1})
    store.save("b", tree(2))
    m = store.update("a", metrics={"acc": 0.5}, tags={"t": None, "v": "3"}, name="new")
    assert m.name == "new" and m.metrics == {"loss": 2.0, "acc": 0.5}
    assert m.tags == {"u": "2", "v": "3"} and m.meta == {"k": 1} and "a" not in store
    with pytest.raises(ligament.ExistsError):
        store.update("new", name="b")
    store.alias("prod", "new")
    assert store["prod"].name == "new" and store.load("prod")["w"][0, 0] == 1
    store.alias("prod", store["b"])
    assert store.load("prod")["w"][0, 0] == 2 and store.aliases() == {"prod": "b"}
    store.retire("b")
    assert "prod" not in store and store.aliases() == {}
    with pytest.raises(ligament.NotFoundError):
        store.alias("x", "gone")


def test_retire_and_compact(files: ligament.Store) -> None:
    big = {"x": np.random.default_rng(0).bytes(1 << 20)}
    big = {"x": np.frombuffer(big["x"], np.uint8)}
    files.save("a", big)
    before = files.stats()["stored_bytes"]
    files.retire("a")
    report = files.compact()
    assert report and len(files) == 0 and files.stats()["stored_bytes"] < before
    with pytest.raises(ligament.NotFoundError):
        files.retire("a")


def test_stats_and_check(store: ligament.Store) -> None:
    store.save("a", tree())
    stats = store.stats()
    assert stats["models"] == 1 and stats["tensors"] == 2 and stats["bytes"] == 72
    assert stats["medium"]
    report = store.check()
    assert report and report.models == 1 and report.problems == []


def test_copy(store: ligament.Store, tmp_path: Path) -> None:
    tied = np.ones(3)
    source = {"l": [tied, (tied, 5)]}
    store.save("a/1", source, metrics={"m": 1.0}, tags={"t": "x"}, meta=[1])
    store.save("a/2", tree())
    store.save("b", tree())
    with ligament.Store(tmp_path / "other") as other:
        assert ligament.copy(store, other, "a/*") == ["a/1", "a/2"]
        m = other["a/1"]
        assert m.metrics == {"m": 1.0} and m.tags == {"t": "x"} and m.meta == [1]
        back = other.load("a/1")["l"]
        assert back[0] is back[1][0] and back[1][1] == 5
        assert ligament.copy(store["b"], other, new_name="c") == ["c"]
        with pytest.raises(ligament.ExistsError):
            ligament.copy(store, other, "a/1")
        assert ligament.copy(store, other, "a/1", replace=True) == ["a/1"]
        with pytest.raises(ligament.NotFoundError):
            ligament.copy(store, other, "zz*")
    assert sorted(ligament.copy(tmp_path / "other", "mem:copied")) == ["a/1", "a/2", "c"]


def test_modes(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with pytest.raises(ligament.NotFoundError):
        ligament.Store(place, mode="r")
    assert not place.exists()
    with ligament.Store(place, mode="w") as one:
        one.save("a", tree())
    with pytest.raises(ligament.ExistsError):
        ligament.Store(place, mode="w")
    with ligament.Store(f"file://{place}", mode="r") as reader:
        assert reader.load("a")["w"].shape == (4, 3)
        with pytest.raises(ligament.Error):
            reader.save("b", tree())


def test_the_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = ligament.Store("some where?#%41")
    store.save("a", tree())
    assert (tmp_path / "some where?#%41").is_dir() and "some where" in repr(store)
    os.chdir("/")
    twin = pickle.loads(pickle.dumps(store))
    assert "a" in twin
    twin.close()
    store.close()
    store.close()
    assert "closed" in repr(store)
    for call in (lambda: store.load("a"), lambda: store.save("b", tree()), lambda: len(store)):
        with pytest.raises(ligament.ClosedError):
            call()


def test_a_place_in_bytes(tmp_path: Path) -> None:
    with ligament.Store(bytes(tmp_path / "s")) as store:
        store.save("m", {"w": np.ones(1)})
    assert "m" in ligament.Store(tmp_path / "s", "r")


def test_mem_stores_are_private_or_shared() -> None:
    with ligament.Store("mem:") as a, ligament.Store("mem:") as b:
        a.save("x", tree())
        assert "x" not in b
    with ligament.Store("mem:shared-here") as a, ligament.Store("mem:shared-here") as b:
        a.save("x", tree())
        assert b.load("x")["w"].shape == (4, 3)


def test_a_store_opened_twice(tmp_path: Path) -> None:
    a = ligament.Store(tmp_path / "s")
    b = ligament.Store(tmp_path / "s")
    a.save("x", tree(1))
    b.save("y", tree(2))
    b.close()
    a.save("z", tree(3))
    assert list(a) == ["x", "y", "z"]
    a.close()


@pytest.mark.parametrize(
    "name", ["a/b", "../up", "..", "/abs", "sp ace", "ünïcode", "*", "x" * 4096]
)
def test_names_are_only_names(store: ligament.Store, name: str, tmp_path: Path) -> None:
    before = {p for p in tmp_path.parent.rglob("*") if "store" not in p.parts}
    store.save(name, {name: np.ones(2)})
    assert store[name].name == name and list(store.load(name)) == [name]
    assert {p for p in tmp_path.parent.rglob("*") if "store" not in p.parts} == before
    store.retire(name)


@pytest.mark.parametrize("name", ["", "nul\0in", "x" * 5000, "\ud800"])
def test_names_that_cannot_be(store: ligament.Store, name: str) -> None:
    with pytest.raises((ligament.InvalidError, ligament.LimitError)):
        store.save(name, tree())
    with pytest.raises((ligament.InvalidError, ligament.LimitError)):
        store.save("ok", {name: np.ones(2)})
    assert len(store) == 0


def test_bad_arguments(store: ligament.Store) -> None:
    with pytest.raises(ligament.InvalidError, match="JSON"):
        store.save("a", tree(), meta={"x": object()})
    with pytest.raises(TypeError):
        store.save("a", tree(), tags={"x": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        store.save("a", tree(), metrics={"x": "y"})  # type: ignore[dict-item]
    with pytest.raises(ligament.InvalidError):
        store.save("a", tree(), snapshot="magic")
    with pytest.raises(TypeError):
        store.save(7, tree())  # type: ignore[arg-type]
    assert len(store) == 0

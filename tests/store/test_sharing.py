"""What a save does not write again, lineage, differences, retiring, time stamps."""

from __future__ import annotations

from typing import Any

import ligament
import numpy as np
import pytest
from ligament import Graph, Store

KIB = 1024


def tree(seed: int = 0, count: int = 6, size: int = 16 * KIB) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {f"t{i}": rng.random(size // 8) for i in range(count)}


def test_what_equals_the_parents_is_not_written(store: Store) -> None:
    size = 96 * KIB
    values = tree(size=size)
    first = store.save("a", values)
    before = store.stats()["stored_bytes"]
    changed = {**values, "t3": values["t3"] + 1}
    second = store.save("b", changed, parent="a")
    written = store.stats()["stored_bytes"] - before
    assert written <= size * 1.01 + 64 * KIB + 64 * len(values)
    assert second.own_bytes == size and second.parent == "a"
    assert second.owners == {**dict.fromkeys(values, first.id), "t3": second.id}
    loaded = store.load("b")
    assert all(np.array_equal(loaded[name], changed[name]) for name in changed)
    third = store.save("c", changed, parent=store["b"])
    assert third.own_bytes == 0 and third.owners == second.owners, "the composition is flat"


def test_small_tensors_are_shared_with_relatives_only(store: Store) -> None:
    store.save("a", tree(size=16 * KIB))
    assert store.save("stranger", tree(size=16 * KIB)).own_bytes == 6 * 16 * KIB
    store.save("large", tree(1, size=64 * KIB))
    assert store.save("twin", tree(1, size=64 * KIB)).own_bytes == 0


def test_equal_bytes_are_equal_whatever_their_shape(store: Store) -> None:
    values = np.arange(16 * KIB, dtype=np.float32)
    store.save("a", {"x": values})
    child = store.save("b", {"y": values.reshape(4, -1), "z": values.view(np.int32)}, parent="a")
    assert child.own_bytes == 0
    loaded = store.load("b")
    assert loaded["y"].shape == (4, 4 * KIB) and loaded["z"].dtype == np.int32


def test_a_renamed_parent_is_called_by_its_new_name(store: Store) -> None:
    store.save("a", {"x": np.ones(3)})
    store.save("b", {"x": np.ones(3)}, parent="a")
    store.save("c", {"x": np.ones(3)}, parent="b")
    store.update("a", name="root")
    assert [model.parent for model in store.models()] == [None, "root", "b"]
    assert store["b"].parent == "root" and store.load("b")["x"].sum() == 3
    assert store.lineage("c").ancestors[0].parent == "root"
    assert store.lineage("root").children[0].parent == "root"
    with Store("mem:") as other:
        ligament.copy(store, other)
        assert other["b"].parent == "root" and other.lineage("b").ancestors[0].name == "root"
    store.retire("root")
    assert store["b"].parent == "a", "what was recorded when it was saved"


def test_retire_changes_nothing_for_the_heirs(store: Store) -> None:
    values = tree(size=64 * KIB)
    store.save("a", values)
    store.save("b", {**values, "t0": values["t0"] * 2}, parent="a")
    store.retire("a")
    loaded = store.load("b")
    assert all(np.array_equal(loaded[name], values[name]) for name in list(values)[1:])
    assert store["b"].parent in (None, "a")
    report = store.compact()
    assert report and np.array_equal(store.load("b")["t5"], values["t5"])
    assert store.check().problems == []
    store.retire("b")
    store.compact()
    assert store.stats()["packs"] == 0


def test_a_mapped_tensor_survives_all_that(files: Store) -> None:
    values = tree(size=64 * KIB)
    files.save("a", values)
    views = files.load("a", map=True)
    files.save("b", {"t0": values["t0"]}, parent="a")
    files.retire("a")
    files.compact()
    assert all(np.array_equal(views[name], values[name]) for name in values)
    assert np.array_equal(files.load("b")["t0"], values["t0"])


def test_what_cannot_be_done(store: Store) -> None:
    with pytest.raises(ligament.NotFoundError, match="nobody"):
        store.save("a", tree(), parent="nobody")
    assert "a" not in store
    store.save("a", tree())
    store.retire("a")
    for name in ("a", "never"):
        with pytest.raises(ligament.NotFoundError, match=name):
            store.retire(name)
    with pytest.raises(ligament.NotFoundError):
        store.lineage("a")
    with pytest.raises(ligament.NotFoundError):
        store.diff("a", "b")


def test_lineage(store: Store) -> None:
    store.save("a", tree())
    store.save("b", tree(), parent="a")
    store.save("c", tree(), parent="b")
    store.save("d", tree(), parent="b")
    found = store.lineage("b")
    assert found.model.name == "b"
    assert [model.name for model in found.ancestors] == ["a"]
    assert [model.name for model in found.children] == ["c", "d"]
    assert [model.name for model in store.lineage(store["d"]).ancestors] == ["b", "a"]
    store.retire("b")
    assert store.lineage("d").ancestors == []


def test_a_match_makes_a_parent(store: Store) -> None:
    graph = Graph([("t0", "x"), ("t1", "y")], [("t0", "t1")])
    values = tree(count=2, size=48 * KIB)
    store.save("a", values, graph=graph)
    match = store.find(graph)
    child = store.save("b", values, match=match, graph=graph)
    assert child.parent == "a" and child.own_bytes == 0


def test_diff(store: Store) -> None:
    a = tree(count=3, size=64)
    b = {"t0": a["t0"], "t1": a["t1"] + 1, "t2": a["t2"][:2], "new": np.zeros(4)}
    store.save("a", {**a, "old": np.ones(2)})
    store.save("b", b)
    found = store.diff("a", "b")
    assert (found.same, found.changed, found.reshaped) == (["t0"], ["t1"], ["t2"])
    assert (found.removed, found.added) == (["old"], ["new"])
    assert found.bytes == {"same": 64, "changed": 64, "reshaped": 16, "removed": 16, "added": 32}
    assert found and not store.diff("a", "a")


def test_time_stamps(store: Store) -> None:
    store.save("a", tree())
    store.load("a")
    store.find(Graph([("a", "x")]))
    store.retire("a")
    stamps = store.get_time_stamps()
    assert {"find", "load", "save", "retire", "lookup", "read", "write", "sync", "commit"} == set(
        stamps
    )
    for name in ("find", "load", "save", "retire", "commit"):
        times = stamps[name]
        assert len(times) % 2 == 0 and times, name
        assert all(a <= b for a, b in zip(times[::2], times[1::2], strict=True))
    assert store.get_time_stamps("save") == {"save": stamps["save"]}
    store.clear_time_stamps("save")
    assert store.get_time_stamps("save") == {"save": []} and store.get_time_stamps()["load"]
    store.clear_time_stamps()
    assert not any(store.get_time_stamps().values())
    with pytest.raises(ligament.Error, match="nonsense"):
        store.get_time_stamps("nonsense")


def test_frozen_weights_are_checkpointed_once(tmp_path: Any) -> None:
    from ligament.checkpoint import Checkpointer

    frozen = np.random.default_rng(0).random(1 << 17)
    head = np.zeros(64)
    with Checkpointer(tmp_path / "run", keep=None) as checkpoints:
        for step in range(4):
            head += 1
            checkpoints.save(step, model={"frozen": frozen, "head": head})
        checkpoints.wait()
        assert checkpoints.store.stats()["stored_bytes"] < 2 * frozen.nbytes

"""The search: what is found, in which order, what a match holds, and bad input."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import Graph, Store


def chain(*marks: str) -> Graph:
    names = [f"l{i}" for i in range(len(marks))]
    edges = list(zip(names, names[1:], strict=False))
    return Graph(list(zip(names, marks, strict=True)), edges)


def renamed(marks: str) -> Graph:
    """A chain whose layers have other names."""
    names = [f"sl{i}" for i in range(len(marks))]
    return Graph(list(zip(names, marks, strict=True)), list(zip(names, names[1:], strict=False)))


def weights(count: int, seed: int = 0, size: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {f"l{i}.w": rng.random(size, np.float32) for i in range(count)}


def put(store: Store, name: str, marks: str, **options: Any) -> dict[str, Any]:
    tree = weights(len(marks), hash(name) % 1000)
    store.save(name, tree, graph=chain(*marks), **options)
    return tree


# --- what is found ------------------------------------------------------------------------------


def test_the_longest_prefix_wins(store: Store) -> None:
    put(store, "short", "abxx")
    tree = put(store, "long", "abcd")
    put(store, "other", "zbcd")
    match = store.find(chain(*"abcq"))
    assert match.model.name == "long" and match.layers == ["l0", "l1", "l2"]
    assert match.length == len(match) == 3 and match.bytes == 3 * 16
    assert list(match.tensors) == list(match.owners) == ["l0.w", "l1.w", "l2.w"]
    assert set(match.owners.values()) == {store["long"].id}
    loaded = store.load(match)
    assert all(np.array_equal(loaded[name], tree[name]) for name in loaded) and len(loaded) == 3
    assert "3 of 4 layers" in repr(match)


def test_slices_of_a_match(store: Store) -> None:
    tree = weights(2, size=8)
    store.save("m", {f"s{name}": value for name, value in tree.items()}, graph=renamed("ab"))
    match = store.find(chain(*"abq"))
    assert match.tensors["l1.w"].name == "sl1.w"
    loaded = store.load(match, tensors={"l1.w": slice(2, 6), "l0.w": None})
    assert list(loaded) == ["l1.w", "l0.w"]
    assert np.array_equal(loaded["l1.w"], tree["l1.w"][2:6])
    assert np.array_equal(loaded["l0.w"], tree["l0.w"])


def test_nothing_in_common(store: Store) -> None:
    assert store.find(chain("a")) is None and store.find(chain("a"), k=3) == []
    put(store, "m", "abc")
    assert store.find(chain(*"xbc")) is None, "no common root, no match"
    store.save("without", {"a": np.zeros(2)})
    assert store.find(chain(*"xbc")) is None


def test_order_and_ties(store: Store) -> None:
    put(store, "old", "abx", metrics={"val_acc": 0.5, "loss": 3.0})
    put(store, "best", "aby", metrics={"val_acc": 0.9, "loss": 2.0})
    put(store, "new", "abz", metrics={"val_acc": 0.5, "loss": 1.0})
    put(store, "none", "abw")
    big = {f"l{i}.w": np.zeros(64, np.float32) for i in range(3)}

    def names(**options: Any) -> list[str]:
        return [match.model.name for match in store.find(chain(*"abq"), k=9, **options)]

    assert names() == ["best", "new", "old", "none"]
    assert names(prefer="-loss") == ["new", "best", "old", "none"]
    assert names(prefer=None) == ["none", "new", "best", "old"]
    store.save("big", big, graph=chain(*"abv"))
    assert names()[0] == "big", "more bytes come before the metric"
    put(store, "longer", "abq")
    assert names()[0] == "longer"
    assert len(store.find(chain(*"abq"), k=2)) == 2


def test_filters(store: Store) -> None:
    put(store, "a", "abc", tags={"run": "1"})
    put(store, "b", "ab", tags={"run": "2"})
    put(store, "c", "a", tags={"run": "2", "kind": "x"})
    asking = chain(*"abc")
    assert store.find(asking, tags={"run": "2"}).model.name == "b"
    assert store.find(asking, tags={"run": "2", "kind": "x"}).model.name == "c"
    assert store.find(asking, tags={"run": "3"}) is None
    assert store.find(asking, exclude=["a"]).model.name == "b"
    assert store.find(asking, exclude=[store["a"], "b", "unknown"]).model.name == "c"
    store.update("a", tags={"run": "2"})
    assert store.find(asking, tags={"run": "2"}).model.name == "a", "the index follows an update"
    store.retire("a")
    assert store.find(asking).model.name == "b"


def test_only_graphs_of_one_kind_are_compared(store: Store) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    given = (torch.zeros(2, 4),)
    store.save("plain", model)
    assert store.find(model, given) is None
    store.save("both", model, args=given)
    assert store.find(model, given).model.name == "both"
    assert {match.model.name for match in store.find(model, k=5)} == {"plain", "both"}


def test_sibling_branches_that_are_alike(store: Store) -> None:
    def fan(count: int) -> Graph:
        names = [f"b{i}" for i in range(count)]
        layers = [("in", "i"), *((name, "same") for name in names), ("out", f"join{count}")]
        edges = [("in", name) for name in names] + [(name, "out") for name in names]
        return Graph(layers, edges)

    store.save("two", {f"b{i}.w": np.full(2, i, np.float32) for i in range(2)}, graph=fan(2))
    match = store.find(fan(3))
    assert match.length == 3, "the root and as many branches as both have"
    assert len(match.tensors) == 2 and len({info.name for info in match.tensors.values()}) == 2


def test_inputs_in_order_and_outputs_count(store: Store) -> None:
    layers = [("a", "a"), ("b", "b"), ("sub", "sub")]
    store.save("m", {"a.w": np.zeros(1)}, graph=Graph(layers, [("a", "sub"), ("b", "sub")]))
    assert store.find(Graph(layers, [("a", "sub"), ("b", "sub")])).length == 3
    assert store.find(Graph(layers, [("b", "sub"), ("a", "sub")])).length == 2
    assert store.find(Graph(layers, [("a", 1, "sub"), ("b", "sub")])).length == 2


# --- against a scan -----------------------------------------------------------------------------


def random_graph(rng: random.Random) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    count = rng.randint(1, 9)
    layers = [(f"n{i}", rng.choice("pqr")) for i in range(count)]
    edges = [
        (f"n{rng.randrange(i)}", f"n{i}")
        for i in range(1, count)
        for _ in range(rng.choice((0, 1, 1, 1, 2)))
    ]
    return layers, edges


def changed(
    graph: tuple[list[tuple[str, str]], list[tuple[str, str]]], rng: random.Random
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    layers, edges = list(graph[0]), list(graph[1])
    at = rng.randrange(len(layers))
    layers[at] = (layers[at][0], rng.choice("pqr"))
    return layers, edges


def keys(graph: tuple[list[tuple[str, str]], list[tuple[str, str]]]) -> list[str]:
    """Of each layer: itself and its whole ancestry, written out."""
    layers, edges = graph
    found: dict[str, str] = {}
    for name, mark in layers:
        inputs = [found[a] for a, b in edges if b == name]
        found[name] = f"{mark}({','.join(inputs)})"
    return list(found.values())


def shared(a: list[str], b: list[str]) -> int:
    return sum(min(a.count(key), b.count(key)) for key in set(a))


def test_find_equals_a_scan() -> None:
    """Where no two layers of a graph are alike the answer is the number of equal keys. With
    look-alikes it is never more, and may be less: what hangs on one of two equal layers in one
    graph may hang on both in the other."""
    rng = random.Random(5)
    exact = 0
    for _ in range(6):
        with Store("mem:") as store:
            stored: dict[str, list[str]] = {}
            graphs = [random_graph(rng)]
            for number in range(60):
                graphs.append(
                    changed(rng.choice(graphs), rng) if rng.random() < 0.7 else random_graph(rng)
                )
                name = f"m{number}"
                store.save(name, {"n0.w": np.zeros(1)}, graph=Graph(*graphs[-1]))
                stored[name] = keys(graphs[-1])
            for _ in range(60):
                asking = changed(rng.choice(graphs), rng)
                mine = keys(asking)
                most = max(shared(mine, one) for one in stored.values())
                plain = [one for one in stored.values() if len(set(one)) == len(one)]
                least = max(shared(mine, one) for one in plain) if plain else 0
                match = store.find(Graph(*asking))
                length = match.length if match else 0
                assert length <= most
                if len(set(mine)) == len(mine):
                    assert least <= length
                    exact += least == most
                if match:
                    assert length <= shared(mine, stored[match.model.name])
    assert exact > 100


# --- real models --------------------------------------------------------------------------------


def test_keras_models(store: Store) -> None:
    keras = pytest.importorskip("keras")

    def net(units: int) -> Any:
        given = keras.Input((8, 8, 1))
        x = keras.layers.Conv2D(4, 3)(given)
        y = keras.layers.Conv2D(4, 3, activation="relu")(given)
        x = keras.layers.Flatten()(keras.layers.Add()([x, y]))
        return keras.Model(given, keras.layers.Dense(units)(x))

    first, second = net(3), net(5)
    store.save("first", first, metrics={"val_acc": 0.7})
    match = store.find(second)
    assert match.model.name == "first" and match.length == 5
    before = second.get_layer(index=-1).get_weights()[0].copy()
    result = store.load(match, into=second)
    assert result.missing == ["layers/dense/vars/0", "layers/dense/vars/1"]
    for a, b in zip(first.get_weights()[:4], second.get_weights()[:4], strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(before, second.get_layer(index=-1).get_weights()[0])
    for layer in second.layers:
        layer.trainable = False
    assert store.find(second).length == 5, "a frozen layer is the same layer"


def test_torch_models(store: Store) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def net(width: int) -> Any:
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, width))

    first, second = net(2), net(3)
    store.save("first", first)
    match = store.find(second)
    assert match.layers == ["0", "1", "2"]
    version = second[0].weight._version
    store.load(match, into=second)
    assert torch.equal(first[0].weight, second[0].weight)
    assert torch.equal(first[1].running_var, second[1].running_var)
    assert second[0].weight._version > version
    tensors = store.load(match, framework="torch")
    assert torch.equal(tensors["0.weight"], first[0].weight)
    with pytest.raises(ligament.MismatchError, match=r"0\.weight"):
        store.load(match, into=nn.Sequential(nn.Linear(8, 15)), extra="ignore")
    with pytest.raises(ligament.MismatchError, match="that the target lacks"):
        store.load(match, into=nn.Sequential(nn.Linear(8, 16)))


# --- leases -------------------------------------------------------------------------------------


def test_a_match_holds_what_it_names(store: Store) -> None:
    size = 1 << 16
    tree = weights(2, size=size)
    store.save("parent", tree, graph=chain("a", "b"))
    match = store.find(chain("a", "b", "c"))
    assert match.expires > datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=50)
    store.retire("parent")
    store.compact()
    loaded = store.load(match)
    assert np.array_equal(loaded["l0.w"], tree["l0.w"])
    child = store.save("child", {**loaded, "l2.w": np.ones(4)}, match=match)
    assert child.own_bytes == 32, "it inherits from a model that is gone"
    match.release()
    store.compact()
    assert np.array_equal(store.load("child")["l1.w"], tree["l1.w"])
    assert store.check()
    store.retire("child")
    store.compact()
    assert store.stats()["packs"] == 0


def test_a_released_match(store: Store) -> None:
    put(store, "m", "ab")
    with store.find(chain("a", "b")) as match:
        assert match.expires is not None
    assert match.expires is None and "released" in repr(match)
    match.release()
    for use in (lambda: store.load(match), lambda: store.save("n", weights(2), match=match)):
        with pytest.raises(ligament.ClosedError, match="'m' was released"):
            use()
    assert "n" not in store


def test_an_expired_match_gives_right_data_or_an_error(files: Store) -> None:
    tree = weights(1, size=1 << 16)
    files.save("m", tree, graph=chain("a"))
    match = files.find(chain("a"), lease_s=0.01)
    while datetime.datetime.now(datetime.UTC) < match.expires:
        pass
    assert np.array_equal(files.load(match)["l0.w"], tree["l0.w"])
    files.retire("m")
    files.compact()
    assert files.stats()["packs"] == 0, "an expired match holds nothing"
    with pytest.raises(ligament.Error, match="m"):
        files.load(match)
    with pytest.raises(ligament.Error):
        files.save("n", {"l0.w": np.zeros(3)}, match=match)
        files.load(match)


def test_a_match_of_another_store(store: Store, tmp_path: Path) -> None:
    put(store, "m", "ab")
    match = store.find(chain("a", "b"))
    with Store(tmp_path / "other") as other:
        with pytest.raises(ligament.InvalidError, match="another store"):
            other.load(match)
        with pytest.raises(ligament.InvalidError, match="another store"):
            other.save("n", weights(2), match=match)
        assert len(other) == 0


def test_a_match_outlives_its_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    put(store, "m", "ab")
    match = store.find(chain("a", "b"))
    store.close()
    assert match.layers == ["l0", "l1"]
    with pytest.raises(ligament.ClosedError):
        store.load(match)
    with Store(tmp_path / "store") as again:
        assert len(again.load(match)) == 2
    match.release()


def test_a_read_only_store_pins_nothing(files: Store) -> None:
    tree = put(files, "m", "ab")
    with Store(files.uri, mode="r") as reader:
        match = reader.find(chain("a", "b"))
        assert match.expires is None and "not pinned" in repr(match)
        assert np.array_equal(reader.load(match)["l0.w"], tree["l0.w"])


def test_what_cannot_be_asked(store: Store) -> None:
    put(store, "m", "ab")
    match = store.find(chain("a"))
    with pytest.raises(ligament.InvalidError, match="k=0"):
        store.find(chain("a"), k=0)
    with pytest.raises(ligament.InvalidError, match="lease_s"):
        store.find(chain("a"), lease_s=0)
    with pytest.raises(ligament.InvalidError, match="mapped"):
        store.load(match, map=True)
    with pytest.raises(ligament.NotFoundError, match="l7"):
        store.load(match, tensors=["l7.w"])
    with pytest.raises(TypeError):
        store._core.resolve(None)

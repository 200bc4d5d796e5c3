"""EvoStore's scripts: the calls of its Python layer on our `tmci`, and our own classes."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest

keras = pytest.importorskip("keras")
evostore = importlib.import_module("ligament.compat.tmci.evostore")
plugins = importlib.import_module("ligament.compat.tmci.plugins")
checkpoint = importlib.import_module("ligament.compat.tmci.checkpoint")
methods = importlib.import_module("ligament.compat.transfer_methods")
common = importlib.import_module("ligament.compat.transfer_methods._common")


def model(widths: list[int], name: str = "") -> Any:
    """A chain of layers that are named by their width."""
    given = value = keras.Input((4,), name="given")
    for depth, width in enumerate(widths):
        value = keras.layers.Dense(width, name=f"{name}dense-{depth}-{width}")(value)
    return keras.Model(given, value)


def weights(one: Any) -> dict[str, list[Any]]:
    return {layer.name: [np.array(w) for w in layer.weights] for layer in one.layers}


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def place(tmp_path: Path) -> str:
    return f"{tmp_path / 'store'}?fsync=0"


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Any]:
    made = methods.DataStatesModelRepo(hosts=[place(tmp_path)], store_weights=True)
    yield made
    made.lib.shutdown()


def array(values: list[Any]) -> Any:
    return (ctypes.c_uint64 * len(values))(*values)


# --- the library ----------------------------------------------------------------------------------


def test_the_library_takes_what_scripts_pass(tmp_path: Path) -> None:
    lib = plugins.load("libdummy.so")
    assert isinstance(lib, ctypes.CDLL) and plugins.load("libdummy.so") is lib
    host = place(tmp_path).encode()
    assert lib.set_servers(ctypes.c_char_p(host), ctypes.c_size_t(len(host))) == 0
    lib.clear_time_stamps()  # of other tests in this process
    edges, cid, result = array([1, 2, 2, 1 << 63]), ctypes.c_uint64(100000), array([0] * 4)
    assert lib.get_prefix(edges, len(edges), ctypes.byref(cid), result) == 0
    big = (1 << 64) - 5
    lids, owners = array([2, 1 << 63]), array([big] * 2)
    assert lib.store_meta(np.uint64(big), edges, 4, lids, owners, lids, 2) is True
    assert lib.store_meta(7, edges, 4, lids, array([7, 7]), lids, 2, ctypes.c_float(0.5)) is True
    assert lib.get_prefix(edges, 4, ctypes.byref(cid), result) == 3
    assert cid.value == 7 and sorted(result[:3]) == [1, 2, 1 << 63]
    assert lib.get_composition(ctypes.c_uint64(big), lids, result, 2) == 2
    assert result[:2] == [big, big]
    assert lib.update_ref_counter(big, -1) is True
    assert lib.update_ref_counter(np.uint64(big), -1) is False
    count = lib.get_num_time_stamps()
    assert count == 14 and lib.get_num_time_stamps_by_key("get_prefix") == 4
    assert lib.get_time_stamps(array([0] * 3)) == 3, "an array that is too short is not overrun"
    assert lib.get_time_stamps_by_key(array([0] * 100), b"store_meta") == 4
    assert lib.get_time_stamps_by_key(array([0]), b"nothing") == -1
    assert lib.clear_time_stamps_by_key("store_meta") is True
    lib.clear_time_stamps()
    assert lib.get_num_time_stamps() == 0
    with pytest.raises(ligament.NotFoundError, match="tensor 2 of model 99"):
        lib.store_meta(8, edges, 4, lids, array([99, 99]), lids, 2)
    with pytest.raises(ctypes.ArgumentError, match="64 bits"):
        lib.update_ref_counter("seven", -1)
    with pytest.raises(ctypes.ArgumentError, match="64 bits"):
        lib.update_ref_counter(1 << 64, -1)
    lib.shutdown()


def test_a_file_of_that_name_wins(tmp_path: Path, root: Path, monkeypatch: Any) -> None:
    cc = "cc"
    made = tmp_path / "libdummy.so"
    (tmp_path / "other.c").write_text("int answer(void) { return 42; }\n")
    subprocess.run([cc, "-shared", "-fPIC", "other.c", "-o", made], cwd=tmp_path, check=True)
    assert plugins.load(str(made)).answer() == 42
    assert isinstance(plugins.load("libdummy.so"), evostore.Library)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert plugins.load("libdummy.so").answer() == 42
    monkeypatch.delenv("LD_LIBRARY_PATH")
    monkeypatch.chdir(tmp_path)
    assert plugins.load("libdummy.so").answer() == 42
    with pytest.raises(OSError, match="nothing"):
        plugins.load("libnothing.so")
    with pytest.raises(OSError, match=r"build/libdummy\.so: cannot open"):
        plugins.load("build/libdummy.so")  # a plugin that was not built


# --- the fork's functions -------------------------------------------------------------------------


def test_layers_by_number(tmp_path: Path) -> None:
    lib = plugins.dummy()
    lib.open([place(tmp_path)])
    parent, child = model([8, 3]), model([8, 3])
    names = [layer.name for layer in parent.layers[1:]]
    lids = [ctypes.c_uint64(one) for one in (50, 51, 60, 61)]
    checkpoint.save_weights(
        parent,
        names,
        backend="dummy",
        model_ids=ctypes.c_uint64(1),
        lids=lids,
        config=".",
        include_optimizer=False,
    )
    assert len(ligament.Store(place(tmp_path))) == 0, "nothing is visible before store_meta"
    ids = array([50, 51, 60, 61])
    lib.store_meta(1, array([40, 50, 50, 60]), 4, ids, array([1] * 4), ids, 4)
    before = weights(child)
    checkpoint.load_weights(
        child,
        names[:1],
        backend="dummy",
        lowners=[1, np.uint64(1)],
        model_ids=np.uint64(1),
        lids=[np.uint64(50), 51],
        config=".",
        include_optimizer=False,
    )
    assert same(weights(child)[names[0]], weights(parent)[names[0]])
    assert same(weights(child)[names[1]], before[names[1]])
    checkpoint.load_weights(child, names, "dummy", [1] * 4, 1, [50, 51, 60, 61])
    assert same(weights(child)[names[1]], weights(parent)[names[1]])
    with pytest.raises(ligament.InvalidError, match="3 lids for 4 weights"):
        checkpoint.save_weights(parent, names, backend="dummy", model_ids=1, lids=[1, 2, 3])
    with pytest.raises(TypeError, match="lacks model_ids, lids"):
        checkpoint.save_weights(parent, names, backend="dummy")
    with pytest.raises(ligament.UnsupportedError, match="'file'"):
        checkpoint.save_weights(parent, names, backend="file", model_ids=1, lids=[1, 2, 3, 4])
    with pytest.raises(ligament.MismatchError):
        checkpoint.load_weights(model([9]), [], "dummy", [1, 1], 1, [50, 51])
    lib.shutdown()


def test_tmci_itself(tmp_path: Path) -> None:
    one, other = model([5]), model([5])
    checkpoint.save_weights(one, "file", str(tmp_path / "plain"), False)
    checkpoint.load_weights(
        other, backend="file", config=str(tmp_path / "plain"), include_optimizer=False
    )
    assert same(one.get_weights(), other.get_weights())


def test_a_large_layer_comes_in_groups(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checkpoint, "_GROUP_BYTES", 100)
    lib = plugins.dummy()
    lib.open([place(tmp_path)])
    one, other = model([8, 8, 8]), model([8, 8, 8])
    checkpoint.save_weights(one, None, "dummy", 1, list(range(10, 16)))
    ids = array(list(range(10, 16)))
    lib.store_meta(1, array([9, 10]), 2, ids, array([1] * 6), ids, 6)
    checkpoint.load_weights(other, None, "dummy", [1] * 6, 1, list(range(10, 16)))
    assert same(one.get_weights(), other.get_weights())
    lib.shutdown()


# --- the classes ----------------------------------------------------------------------------------


def test_the_newer_calls(repo: Any, tmp_path: Path) -> None:
    first, second, third = model([8, 6, 3]), model([8, 6, 4]), model([8, 5])
    assert repo.transfer(first, 1) == ([], None)
    assert repo.store(1, first, [], 0.5) is True
    prefix, cid = repo.transfer(second, np.uint64(2), hint=None)
    assert isinstance(cid, ctypes.c_uint64) and cid.value == 1
    assert sorted(prefix) == sorted(["given", "dense-0-8", "dense-1-6"])
    for name in ("dense-0-8", "dense-1-6"):
        assert same(weights(second)[name], weights(first)[name])
    assert repo.store(np.uint64(2), second, prefix, 0.7) is True
    assert repo.store(9, first, [layer.name for layer in first.layers], 0.7) is False
    with pytest.raises(ligament.InvalidError, match="cannot store partial model without ancestor"):
        repo.store(5, first, ["dense-0-8"], 0.5)
    lids = [repo.to_hash["dense-0-8"], repo.to_hash["dense-1-6"] + 1, repo.to_hash["dense-2-4"], 3]
    assert repo.get_composition(2, lids) == [1, 1, 2, 0]
    assert repo.retire_model(1) is True
    prefix, cid = repo.transfer(third, id=3)
    assert (sorted(prefix), cid.value) == (["dense-0-8", "given"], 2)
    assert same(weights(third)["dense-0-8"], weights(first)["dense-0-8"])
    models, tensors, counts, times = repo.get_tensor_access_statistics()
    assert len(models) == len(tensors) == len(counts) == len(times) == 4
    assert sorted(counts) == [1, 1, 2, 2] and set(models) == {1}
    with ligament.Store(tmp_path / "store") as store:
        assert store["2"].metrics == {"val_acc": pytest.approx(0.7)}
        assert store["2"].own_bytes == (6 * 4 + 4) * 4
        assert store.check().problems == []


def test_the_older_calls(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("LIGAMENT_STORE", place(tmp_path))
    repo = methods.DataStatesModelRepo()
    first, second = model([8, 6, 3]), model([8, 6, 4])
    assert repo.store(0, first, []) is True
    prefix, cid = repo.transfer(1, second)
    assert cid.value == 0 and len(prefix) == 3
    with pytest.raises(ligament.InvalidError, match="without ancestor"):
        repo.store(7, second, ["dense-2-4"])
    assert repo.store(1, second, ["dense-2-4"]) is True
    other = model([8, 6, 4])
    assert repo.transfer(id=2, model=other)[1].value == 1
    assert same(other.get_weights(), second.get_weights())
    assert repo.retire(0) is True and repo.retire(0) is False
    assert repo.store(2, other, [other.get_layer("dense-2-4")]) is True
    repo.lib.shutdown()


def test_ids_that_are_strings(repo: Any) -> None:
    one = model([3])
    assert repo.store("a name", one, [], 0.5) is True
    cid, _ = repo._best_match(one)
    assert cid.value == repo.hash("a name") == methods.DataStatesModelRepo.hash("a name")
    assert repo.hash("") == 0xD41D8CD98F00B204
    assert repo.retire_model("a name") is True
    assert repo._best_match(one)[1] == []


def test_wrong_arguments(repo: Any) -> None:
    for call in (lambda: repo.transfer(1, 2), lambda: repo.store(1, None, [], 0.5)):
        with pytest.raises(TypeError, match="is a Keras model"):
            call()
    for config in (None, "text"):
        for call in (lambda: repo.get_prefix(config), lambda: repo.store_meta(1, config)):  # noqa: B023
            with pytest.raises(TypeError, match="a Keras configuration must be a dict, not"):
                call()
    unbuilt = keras.Sequential([keras.layers.Dense(3)])
    with pytest.raises(ligament.InvalidError, match="has no weights to store"):
        repo.store(1, unbuilt, [], 0.5)


def test_configurations(repo: Any) -> None:
    one, other = model([8, 3]), model([8, 4])
    assert repo.store_meta(5, one.get_config()) is True
    cid, names = repo.get_prefix(other.get_config())
    assert cid.value == 5 and sorted(names) == ["dense-0-8", "given"]
    before = other.get_weights()
    prefix, cid = repo.transfer(other, 6)
    assert cid.value == 5 and same(other.get_weights(), before), "there is nothing to transfer"
    assert repo.store(6, other, prefix, 0.5) is True
    sequential = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="alone")])
    assert repo.store_meta(7, sequential.get_config()) is True
    assert repo.get_prefix(sequential.get_config())[0].value == 7
    with pytest.raises(ligament.InvalidError, match="lists no layers"):
        repo.get_prefix({"name": "subclassed"})


def test_without_weights(tmp_path: Path) -> None:
    repo = methods.DataStatesModelRepo(hosts=[place(tmp_path)], trace_path=".")
    one, other = model([8, 3]), model([8, 3])
    assert repo.store(1, one, [], 0.5) is True
    before = other.get_weights()
    prefix, cid = repo.transfer(other, 2)
    assert cid.value == 1 and len(prefix) == 3 and same(other.get_weights(), before)
    repo.lib.shutdown()


def test_partial_stores(tmp_path: Path) -> None:
    repo = methods.DataStatesModelRepo([place(tmp_path)], True, allow_partial_stores=True)
    one, other = model([8, 3]), model([8, 3])
    assert repo.store(1, one, ["dense-0-8"], 0.5) is True
    before = weights(other)
    repo.transfer(other, 2)
    assert same(weights(other)["dense-1-3"], weights(one)["dense-1-3"])
    assert same(weights(other)["dense-0-8"], before["dense-0-8"])
    repo.lib.shutdown()


def test_branches(repo: Any) -> None:
    """A layer is shared only when all of its inputs are."""

    def two(width: int) -> Any:
        given = keras.Input((4,), name="given")
        left = keras.layers.Dense(3, name="left")(given)
        right = keras.layers.Dense(3, name=f"right-{width}")(
            keras.layers.Dense(width, name=f"wide-{width}")(given)
        )
        added = keras.layers.Add(name="added")([left, right])
        return keras.Model(given, keras.layers.Dense(2, name="last")(added))

    repo.store(1, two(5), [], 0.5)
    assert sorted(repo._best_match(two(5))[1]) == sorted(layer.name for layer in two(5).layers)
    assert sorted(repo._best_match(two(6))[1]) == ["given", "left"]


def test_time_stamps(repo: Any) -> None:
    repo.clear_time_stamps()
    one = model([3])
    repo.transfer(one, 1)
    repo.store(1, one, [], 0.5)
    repo.transfer(one, 2)
    stamps = repo.get_time_stamps()
    assert all(isinstance(stamp, int) for stamp in stamps)
    keys = ("get_composition", "get_prefix", "read_layers", "store_layers", "store_meta")
    assert stamps == [stamp for key in keys for stamp in repo.get_time_stamps(key)]
    begin, end = repo.get_time_stamps("store_meta")
    assert begin <= end
    repo.clear_time_stamps("store_meta")
    assert repo.get_time_stamps("store_meta") == []
    assert len(repo.get_time_stamps("get_prefix")) == 4
    with pytest.raises(KeyError, match="get_prefix"):
        repo.get_time_stamps("nothing")


def test_names(repo: Any) -> None:
    def unnamed(width: int) -> Any:
        given = keras.Input((4,))
        value = keras.layers.Dense(8)(given)
        twins = [keras.layers.Dense(8)(value) for _ in range(2)]
        return keras.Model(given, keras.layers.Dense(width)(keras.layers.Add()(twins)))

    plain = unnamed(3)
    one, other = common.standardize_names(plain), common.standardize_names(unnamed(2))
    assert same(plain.get_weights(), one.get_weights())
    assert [layer.name for layer in one.layers] != [layer.name for layer in plain.layers]
    repo.store(1, one, [], 0.5)
    prefix, _ = repo.transfer(other, 2)
    assert len(prefix) == 5 and same(other.get_weights()[:6], one.get_weights()[:6])
    other.layers[1].trainable = False
    again = common.standardize_names(other)
    assert {layer.name for layer in again.layers} != {layer.name for layer in plain.layers}
    assert [layer.trainable for layer in again.layers][1] is False


def test_no_store(monkeypatch: Any) -> None:
    monkeypatch.delenv("LIGAMENT_STORE", raising=False)
    with pytest.raises(ligament.InvalidError, match="LIGAMENT_STORE"):
        methods.DataStatesModelRepo()
    with pytest.raises(TypeError, match="a Keras model"):
        methods._datastates._model_and_id((1, 2), {})


SCRIPT = """
import transfer_methods
from transfer_methods import DataStatesModelRepo, TransferMethod, make_transfer_method
from transfer_methods._base import TransferMethod as base
from transfer_methods._common import standardize_names
import tmci, tmci.plugins, tmci.checkpoint, tensorflow as tf

assert base is TransferMethod and issubclass(DataStatesModelRepo, TransferMethod)
assert transfer_methods.transfer_methods() == ["datastates"]
method = make_transfer_method("datastates")
comm, hosts = method.startup_server(ds_colocated=False)
repo = method(hosts=hosts, bulk_storage_path=".", store_weights=True)
assert isinstance(repo, DataStatesModelRepo)

def build(width):
    given = tf.keras.Input((4,))
    hidden = tf.keras.layers.Dense(8, activation="relu")(given)
    return standardize_names(tf.keras.Model(given, tf.keras.layers.Dense(width)(hidden)))

parent, child = build(2), build(3)
assert repo.transfer(parent, id=1, hint=None) == ([], None)
repo.store(1, parent, [], 0.5)
prefix, cid = repo.transfer(child, id=2)
assert cid.value == 1 and len(prefix) == 2, (cid, prefix)
for one, other in zip(parent.layers[1].weights, child.layers[1].weights):
    assert (one.numpy() == other.numpy()).all()
for layer in child.layers:
    layer.trainable = layer.name not in prefix
repo.store(2, child, prefix, 0.6)
repo.retain(1, 2)
repo.retire_model(1)
assert repo.transfer(build(3), id=3)[1].value == 2
repo.teardown_server(comm)
print("fine", tf.keras.layers.Dense.__module__.split(".")[0])
"""


@pytest.mark.parametrize("version", [2, 3])
def test_a_script(version: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("tensorflow")
    python = request.getfixturevalue("warm_keras2" if version == 2 else "warm_tensorflow")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {
        "LIGAMENT_STORE": place(tmp_path),
        "TF_USE_LEGACY_KERAS": "1" if version == 2 else "0",
        "KERAS_BACKEND": "tensorflow",
    }
    done = python.run("-m", "ligament.compat", script, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"fine {'tf_keras' if version == 2 else 'keras'}\n"

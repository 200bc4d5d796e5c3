"""TransferMethods, and the names that the original's users know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament.transfer import LayerStore, TransferMethods


def net(torch: Any, width: int) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256), nn.Linear(256, width))


def test_the_flow(store: ligament.Store) -> None:
    torch = pytest.importorskip("torch")
    methods = TransferMethods(store)
    first, second = net(torch, 4), net(torch, 5)
    assert methods.transfer(first, "one") == ([], None)
    assert methods.store("one", first, val_acc=0.5)
    prefix, parent = methods.transfer(second, "two")
    assert (prefix, parent) == (["0", "1", "2"], "one")
    assert torch.equal(first[2].weight, second[2].weight)
    methods.retire("one")  # the ancestor goes while the child trains
    assert methods.store("two", second, prefix, val_acc=0.6)
    model = store["two"]
    assert model.metrics == {"val_acc": 0.6}
    assert model.own_bytes == 5 * 257 * 4, "what was transferred is not written again"
    owners = methods.get_composition("two", ["0.weight", "3.weight", "nothing"])
    assert owners[1] == model.id and owners[0] not in (0, model.id) and owners[2] == 0
    assert len(methods.get_composition("two")) == 6
    assert methods.get_time_stamps("find") and set(methods.get_time_stamps()) >= {"save", "load"}
    methods.clear_time_stamps("find")
    assert methods.get_time_stamps("find") == []
    assert store.check().problems == []
    with pytest.raises(ligament.NotFoundError):
        methods.retire("one")


def test_a_prefix_needs_a_transfer(store: ligament.Store) -> None:
    torch = pytest.importorskip("torch")
    methods = TransferMethods(store)
    with pytest.raises(ligament.InvalidError, match="nothing was transferred"):
        methods.store(7, net(torch, 2), prefix=["0"])
    methods.store(7, net(torch, 2))
    assert methods.transfer(net(torch, 3), 8)[1] == 7, "numbers come back as numbers"
    with pytest.raises(ligament.ExistsError):
        methods.store(7, net(torch, 2))


def test_keras_names(store: ligament.Store) -> None:
    keras = pytest.importorskip("keras")

    def model(units: int) -> Any:
        given = keras.Input((4,))
        hidden = keras.layers.Dense(8)(given)
        return keras.Model(given, keras.layers.Dense(units)(hidden))

    methods = TransferMethods(store)
    methods.store("a", model(2))
    child = model(3)
    names, parent = methods.transfer(child, "b")
    assert parent == "a" and names == [layer.name for layer in child.layers[:2]]
    for name in names:
        child.get_layer(name).trainable = False
    methods.store("b", child, names, 0.5)
    assert methods.transfer(model(3), "c")[1] == "b"


def test_numbered_layers(store: ligament.Store) -> None:
    layers = LayerStore(store)
    big = np.random.default_rng(0).random(1 << 14)
    edges = [(100, 200), (200, 300)]
    assert layers.get_prefix(edges) == (0, [])
    layers.store_layers([big, big + 1, np.ones(3)], 1, [100, 101, 200])
    assert len(store) == 0, "nothing is seen before store_meta"
    layers.store_meta(1, edges, [100, 101, 200], [1, 1, 1], 0.5)
    found, vertices = layers.get_prefix([(100, 200), (200, 400)])
    assert found == 1 and vertices == [100, 200]
    assert layers.get_composition(1, [100, 101, 999]) == [1, 1, 0]
    into = [np.zeros(1 << 14), np.zeros(1 << 14)]
    store.retire("1")
    layers.read_layers(into, [100, 101], [1, 1])
    assert np.array_equal(into[0], big) and np.array_equal(into[1], big + 1)
    layers.store_layers([np.zeros(5)], 2, [400])
    layers.store_meta(2, [(100, 200), (200, 400)], [100, 101, 200, 400], [1, 1, 1, 2], 0.6)
    assert np.array_equal(store.load("2")["100.101"], big + 1)
    assert store["2"].own_bytes < 1 << 14
    with pytest.raises(ligament.NotFoundError, match="999"):
        layers.read_layers([np.zeros(1)], [999], [2])
    assert layers.get_num_time_stamps("save") == 4
    layers.update_ref_counter(2, -1)
    assert len(store) == 0


SCRIPT = """
import sys
import numpy as np
import torch
import tmci.checkpoint
from transfer_methods import TransferMethods

place = sys.argv[1]
methods = TransferMethods(place)
model, other = (torch.nn.Sequential(torch.nn.Linear(4, 4)) for _ in range(2))
assert methods.transfer(model, 5) == ([], None)
methods.store(5, model, [], 0.5)
names, parent = methods.transfer(other, 6)
assert (names, parent) == (["0"], 5)
assert torch.equal(model[0].weight, other[0].weight)
methods.retire_model(5)
edges = [(1 << 40, 7)]
tmci.checkpoint.save_weights(
    model, "file", place, layers=[model[0]], model_id=9, tensor_ids=[0, 256, 1, 256]
)
tmci.checkpoint._stores[place].store_meta(9, edges, [1 << 40, (1 << 40) + 1], [9, 9], 0.1)
assert methods.get_prefix(edges) == (9, [1 << 40, 7])
with torch.no_grad():
    other[0].weight.zero_()
tmci.checkpoint.load_weights(
    other, "file", place, layers=[other[0]], model_id=9, tensor_ids=[0, 256, 1, 256],
    owners=[9, 0, 9, 0],
)
assert torch.equal(model[0].weight, other[0].weight)
methods.shutdown()
print("fine")
"""


def test_an_unchanged_script(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "ligament.compat", str(script), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=os.environ)
    assert done.returncode == 0 and done.stdout == "fine\n", done.stderr

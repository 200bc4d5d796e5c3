"""TransferMethods, and the names that the original's users know."""

from __future__ import annotations

from typing import Any

import ligament
import numpy as np
import pytest
from ligament.transfer import TransferMethods


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
    assert owners == ["one", "two", 0], "the writer's id, also when it is retired"
    assert methods.get_composition("two") == ["one"] * 4 + ["two"] * 2
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
    same = net(torch, 2)
    prefix, parent = methods.transfer(same, np.uint64(9))
    assert parent == 7 and len(prefix) == 4
    assert methods.store(np.uint64(9), same, prefix, 0.5) is False, "nothing is left to write"
    assert "9" not in store
    third = net(torch, 5)
    prefix, _ = methods.transfer(third, 10)
    methods.store(10, third, prefix)
    assert methods.get_composition(10) == [7] * 4 + [10] * 2


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

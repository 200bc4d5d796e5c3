"""What a new user met in the first hour."""

from pathlib import Path

import ligament
import numpy as np
import pytest
from ligament.checkpoint import load_weights, save_weights

torch = pytest.importorskip("torch")


def test_a_ticket_tells_of_its_own_save(tmp_path: Path) -> None:
    with ligament.Store(tmp_path / "s") as store:
        ticket = store.save("a", {"x": np.ones(4)}, wait=False)
    assert ticket.result().bytes == 32  # the store is closed, the save is there
    assert ligament.Store(tmp_path / "s").save("b", {"x": np.ones(4)}, wait=False).result()
    store = ligament.Store("mem:")
    first = store.save("c", {"x": np.ones(4)}, wait=False)
    store.wait()
    store.save("c", {"x": np.ones(8)}, replace=True)
    assert first.result().bytes == 32
    store.retire("c")
    assert first.result().name == "c"


def test_weights_load_without_the_optimizer() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save_weights(model, "mem:first-hour", optimizer=optimizer)
    other = torch.nn.Linear(3, 2)
    load_weights(other, "mem:first-hour", include_optimizer=False)
    assert torch.equal(other.weight, model.weight)


def test_plain_values_are_filled_in_place() -> None:
    store = ligament.Store("mem:")
    store.save("w", {"layer": {"w": np.ones(3), "n": None}, "steps": [7, "x"], "t": (1,)})
    tree = {"layer": {"w": np.zeros(3), "n": 5}, "steps": [0, ""], "t": (2,)}
    store.load("w", into=tree)
    assert (tree["layer"]["w"] == 1).all()
    assert (tree["layer"]["n"], tree["steps"], tree["t"]) == (None, [7, "x"], (2,))


def test_places_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ligament.InvalidError):
        ligament.Store("")
    monkeypatch.chdir(tmp_path)
    with ligament.Store("file:here") as store:
        assert str(tmp_path) in store.uri
        store.save("a", {"x": np.ones(1)})
        assert store.models(limit=0) == []
        with pytest.raises(ligament.InvalidError):
            store.models(limit=-1)


def test_a_save_replaces_an_alias(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    with ligament.Store(tmp_path / "s") as store:
        store.save("other", {"x": np.ones(1)})
        store.alias("weights", "other")
    save_weights(model, str(tmp_path / "s"))
    ligament.plugins.close()
    with ligament.Store(tmp_path / "s") as store:
        assert store["weights"].name == "weights"
        assert "other" in store

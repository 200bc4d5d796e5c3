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


def test_restore_into_another_model(tmp_path: Path) -> None:
    with ligament.checkpoint.Checkpointer(tmp_path / "s") as ck:
        ck.save(1, model=torch.nn.Linear(3, 2))
        with pytest.raises(ligament.MismatchError, match="target lacks: 'model.bias'") as told:
            ck.restore(model=torch.nn.Linear(3, 2, bias=False))
        assert "extra=" not in str(told.value)
        assert "store.load('step-000000000001')['model']" in str(told.value)
        more = torch.nn.Linear(3, 2)
        more.scale = torch.nn.Parameter(torch.ones(1))
        with pytest.raises(ligament.MismatchError, match="lacks 'model.scale'") as told:
            ck.restore(model=more)
        assert "missing=" not in str(told.value)


def test_sentences_name_the_way_out() -> None:
    store = ligament.Store("mem:")
    store.save("a", {"x": np.ones(1)})
    with pytest.raises(ligament.ExistsError, match=r"\(use replace=True, --replace "):
        store.save("a", {"x": np.ones(1)})
    with pytest.raises(ligament.NotFoundError, match=r"LIGAMENT_PLUGINS, ligament\.plugins\.load"):
        ligament.Store("nowhere://x")


def test_what_the_package_shows() -> None:
    names = {"Mesh", "checkpoint", "mesh", "params", "pipe", "transfer"}
    assert names <= set(ligament.__all__)
    assert names <= set(dir(ligament))
    assert all(hasattr(ligament, name) for name in ligament.__all__)


def test_devices_that_torch_does_not_know() -> None:
    from ligament.pipe import pipe_model

    with pytest.raises(ligament.InvalidError, match="which is not a torch device"):
        pipe_model(torch.nn.Linear(3, 2), (torch.ones(1, 3),), stages=1, devices=["d0"])

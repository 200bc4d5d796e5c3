"""Checkpoints are found by their architecture, whichever integration saved them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ligament.checkpoint import CheckpointCallback, Checkpointer  # noqa: E402
from ligament.checkpoint.collective_save import CollectiveSave  # noqa: E402
from ligament.checkpoint.ranks import Alone  # noqa: E402


def net(classes: int, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, classes)
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("way", ["alone", "in the background", "all ranks"])
def test_checkpointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The asking model is filled with the model of the checkpoint, not with its average."""
    model, average = net(2, 1), net(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Checkpointer(tmp_path / "runs") as ck:
        if way == "all ranks":
            monkeypatch.setattr(ck, "_job", lambda: CollectiveSave(ck.store, Alone(5)))
        parts = {"average": average, "optimizer": optimizer, "model": model}
        ck.save(1, **parts, extra={"epoch": 1}, wait=way != "in the background")
        ck.wait()
        asking = net(5)
        match = ck.store.find(asking)
        assert match is not None and match.model.name == "step-000000000001"
        assert match.layers == ["0", "1"] and set(match.tensors) == {"0.weight", "0.bias"}
        ck.store.load(match, into=asking)
        assert torch.equal(asking[0].weight, model[0].weight)
        assert ck.store.find(average, k=5) != []
        match.release()


def test_find_command(tmp_path: Path, program: Path) -> None:
    with Checkpointer(tmp_path / "runs", run="a", keep=None) as ck:
        for step, classes in ((1, 2), (2, 2), (3, 7)):
            ck.save(step, model=net(classes, step))
    words = [program, "find", f"{tmp_path}/runs#a/latest", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = [(one["name"], one["shared_layers"]) for one in json.loads(done.stdout)]
    assert found == [("a/step-000000000002", 2), ("a/step-000000000001", 2)]


def test_what_has_no_graph_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("no graph")

    monkeypatch.setattr(ligament.tensors, "graphs", refuse)
    with Checkpointer(tmp_path / "runs") as ck:
        ck.save(1, model=net(2), tree={"x": np.ones(2)})
        monkeypatch.undo()
        assert ck.latest() == 1 and ck.store.find(net(2)) is None


def test_keras(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")

    def functional(classes: int) -> Any:
        start = keras.Input((4,))
        left, right = keras.layers.Dense(3)(start), keras.layers.Dense(3)(start)
        end = keras.layers.Dense(classes)(keras.layers.Add()([left, right]))
        model = keras.Model(start, end)
        model.compile(optimizer="adam", loss="mse")
        return model

    x, y = np.ones((4, 4), "f4"), np.ones((4, 2), "f4")
    model, asking = functional(2), functional(6)
    model.fit(x, y, verbose=0, callbacks=[CheckpointCallback(str(tmp_path / "callback"))])
    with Checkpointer(tmp_path / "loop") as ck:
        ck.save(1, model=model, optimizer=model.optimizer)
    for place in ("callback", "loop"):
        with ligament.Store(tmp_path / place, "r") as store:
            match = store.find(asking)
            assert match is not None and match.length == 4, place  # input, two Dense, Add
            store.load(match, into=asking)
        for mine, saved in zip(asking.weights[:4], model.weights[:4], strict=True):
            assert np.array_equal(mine, saved)


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from ligament.checkpoint.accelerate import register

    accelerator = accelerate.Accelerator(cpu=True)
    model = accelerator.prepare(net(2, 3))
    with ligament.Store(tmp_path / "store") as store:
        register(accelerator, store)
        accelerator.save_state(str(tmp_path / "state"))
        match = store.find(net(9))
        assert match is not None and match.layers == ["0", "1"]
        filled = net(9)
        store.load(match, into=filled)
    assert torch.equal(filled[0].weight, accelerator.unwrap_model(model)[0].weight)


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    from ligament.checkpoint.lightning import CheckpointIO

    class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, classes: int) -> None:
            super().__init__()
            self.body = net(classes)

    module = Net(2)
    io = CheckpointIO(tmp_path / "store", model=module)
    io.save_checkpoint({"state_dict": module.state_dict(), "epoch": 1}, tmp_path / "x.ckpt")
    match = io.store.find(Net(2))
    assert match is not None and "body.2" in match.layers
    io.teardown()

"""Keras: interrupted training resumes at the epoch it reached."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest

keras = pytest.importorskip("keras")

from ligament.checkpoint import CheckpointCallback  # noqa: E402


def made(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile(optimizer="adam", loss="mse")
    return model


X, Y = np.linspace(0, 1, 64, dtype="f4").reshape(16, 4), np.ones((16, 3), "f4")


class Epochs(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.stop_after = stop_after

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(epoch)
        if epoch + 1 == self.stop_after:
            raise KeyboardInterrupt


def fit(model: Any, epochs: int, *callbacks: Any) -> None:
    model.fit(X, Y, 8, epochs, verbose=0, shuffle=False, callbacks=list(callbacks))


@pytest.mark.parametrize("keep", [None, 2])
def test_a_run_goes_on_at_the_epoch_reached(tmp_path: Path, keep: int | None) -> None:
    whole = made(1)
    fit(whole, 5)
    cut = made(1)
    with pytest.raises(KeyboardInterrupt):
        fit(cut, 5, CheckpointCallback(str(tmp_path / "s"), keep=keep), Epochs(3))
    late, epochs = made(2), Epochs()
    fit(late, 5, CheckpointCallback(str(tmp_path / "s"), keep=keep, restore=True), epochs)
    assert epochs.seen == [3, 4]
    for a, b in zip(whole.get_weights(), late.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()
    for a, b in zip(whole.optimizer.variables, late.optimizer.variables, strict=True):
        assert np.array_equal(a, b)
    with ligament.Store(tmp_path / "s") as store:
        assert store["weights"].meta == {"epoch": 5, "batches": 10}
        assert "loss" in store["weights"].metrics
    again = Epochs()
    fit(late, 1, again)  # what the callback told the model is gone with it
    assert again.seen == [0]


def test_batches_go_on_in_the_epoch_that_was_under_way(tmp_path: Path) -> None:
    every = {"frequency": {"batch": 3}}
    fit(made(1), 2, CheckpointCallback(str(tmp_path / "s"), **every))  # saved at batch 3 of 4
    epochs = Epochs()
    fit(made(2), 3, CheckpointCallback(str(tmp_path / "s"), restore=True, **every), epochs)
    assert epochs.seen == [1, 2]


def test_a_run_that_begins_later_goes_on_there(tmp_path: Path) -> None:
    callback = CheckpointCallback(str(tmp_path / "s"), frequency={"batch": 1})
    fit(made(1), 3, callback)
    for first in (7, 0):  # later than the last run of this callback ended, and earlier
        model = made(1)
        with pytest.raises(KeyboardInterrupt):
            model.fit(
                X, Y, 8, first + 1, verbose=0, initial_epoch=first,
                callbacks=[callback, Batches(1)],
            )  # fmt: skip
        with ligament.Store(tmp_path / "s", "r") as store:
            assert store["weights"].meta["epoch"] == first


class Batches(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
    def __init__(self, stop_after: int) -> None:
        super().__init__()
        self.stop_after = stop_after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 == self.stop_after:
            raise KeyboardInterrupt


def test_the_best_of_earlier_runs_stays(tmp_path: Path) -> None:
    def run(values: list[float], **options: Any) -> None:
        callback = CheckpointCallback(str(tmp_path / "s"), monitor="val_loss", **options)
        callback.set_model(made(1))
        callback.on_train_begin()
        for epoch, value in enumerate(values):
            callback.on_epoch_end(epoch, {"val_loss": value})

    def best() -> float:
        with ligament.Store(tmp_path / "s", "r") as store:
            return store["weights"].metrics["val_loss"]

    run([float("nan"), 3.0, float("nan"), 2.0])
    run([9.0, 2.5], restore=True)
    assert best() == 2.0
    run([1.5], keep=1)
    assert best() == 1.5
    run([1.7], keep=1)
    assert best() == 1.5


def test_without_keep_after_a_run_with_it(tmp_path: Path) -> None:
    where = str(tmp_path / "s")
    fit(made(1), 3, CheckpointCallback(where, keep=2))
    for restore, epochs, left in ((False, 1, {1, 2}), (True, 4, {4})):
        fit(made(2), epochs, CheckpointCallback(where, restore=restore))
        with ligament.Store(where, "r") as store:
            assert store["weights"].meta["epoch"] == epochs
            assert set(store) == {f"weights/epoch-{epoch:06d}" for epoch in left}
    with ligament.Store(where) as store:
        store.save("mine", {"w": np.ones(3)})
        store.alias("weights", "mine")  # the user's own
    fit(made(1), 2, CheckpointCallback(where))
    with ligament.Store(where, "r") as store:
        assert "mine" in store and store["weights"].name == "weights/epoch-000002"


def test_what_cannot_be_monitored(tmp_path: Path) -> None:
    where = str(tmp_path / "s")
    with pytest.raises(ligament.InvalidError, match="'val_loss' has no value after a batch"):
        CheckpointCallback(where, frequency={"batch": 3}, monitor="val_loss")
    with pytest.raises(ligament.InvalidError, match=r"\['loss'\] \(pass validation_data or"):
        fit(made(1), 2, CheckpointCallback(where, monitor="val_loss"))
    with pytest.raises(ligament.InvalidError, match=r"'val_x' is not among .*'val_loss'\]$"):
        callback = CheckpointCallback(where, monitor="val_x")
        made(1).fit(X, Y, validation_split=0.5, verbose=0, callbacks=[callback])


def test_a_backend_without_a_store_keeps_weights(tmp_path: Path) -> None:
    model, epochs = made(1), Epochs()
    fit(model, 1, CheckpointCallback("mem", restore=True), Epochs())
    fit(made(2), 1, CheckpointCallback("mem", restore=True), epochs)
    assert epochs.seen == [0]
    with pytest.raises(ligament.UnsupportedError, match="a named store"):
        CheckpointCallback("mem", keep=2)


def test_runs_share_a_store(tmp_path: Path, holder: Any) -> None:
    where, models = str(tmp_path / "s"), {run: made(n) for n, run in enumerate(("default", "a"))}
    theirs = {"weights/notes", "weights/step-000000000001", "weights/epoch-1"}
    with ligament.Store(where) as store:
        for name in theirs:
            store.save(name, {"w": np.ones(2)})

    def ended(model: Any, epochs: int, **options: Any) -> Any:
        """What `fit` calls, without training."""
        callback = CheckpointCallback(where, keep=1, include_optimizer=False, **options)
        callback.set_model(model)
        callback.on_train_begin()
        for epoch in range(epochs):
            callback.on_epoch_end(epoch, {"loss": 1.0})
        return callback

    for run, model in models.items():
        ended(model, 3, run=run).on_train_end()
    for run, model in models.items():
        late = made(9)
        assert ended(late, 0, run=run, restore=True).epoch == 3
        for a, b in zip(model.get_weights(), late.get_weights(), strict=True):
            assert a.tobytes() == b.tobytes()
    with ligament.Store(where) as store:
        assert set(store) == {"weights/epoch-000003", "a/weights/epoch-000003"} | theirs
        assert set(store.aliases()) == {"weights", "a/weights"}
    their = holder(Path(where), "a")
    with pytest.raises(ligament.BusyError, match=f"run 'a' .*{their}"):
        ended(late, 1, run="a")
    ended(late, 1, run="a", name="other")  # another set


def test_a_bare_word_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, backend in enumerate(("runs", Path("paths"))):
        monkeypatch.chdir(tmp_path)
        away = tmp_path / f"away-{number}"
        fit(made(1), 2, CheckpointCallback(backend, keep=1), Away(away))
        assert [model.name for model in ligament.Store(tmp_path / backend).models()] == [
            "weights/epoch-000002"
        ]
        assert list(away.iterdir()) == []


class Away(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
    """Changes the directory while training."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def on_train_begin(self, logs: Any = None) -> None:
        self.folder.mkdir()
        os.chdir(self.folder)


@pytest.mark.parametrize(
    ("backend", "config"),
    [
        ("runs", "host"),
        ("runs", "host=a"),
        ("runs?nosuch=1", ""),
        ("nosuch:x", ""),
        ("file", "/proc/a"),
    ],
)
@pytest.mark.parametrize("keep", [None, 1])
def test_a_wrong_backend_fails_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, config: str, keep: int | None
) -> None:
    monkeypatch.chdir(tmp_path)
    epochs = Epochs()
    with pytest.raises(ligament.Error):
        fit(made(1), 1, CheckpointCallback(backend, config, keep=keep), epochs)
    assert epochs.seen == []
    assert list(tmp_path.iterdir()) == []

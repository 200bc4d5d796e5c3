"""TensorFlow and Keras 3 on it: read in place, filled by adoption. One file: importing is slow."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import _core
from ligament.checkpoint import Checkpointer, load_weights, save_weights

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
h5py = pytest.importorskip("h5py")
if keras.backend.backend() != "tensorflow":
    pytest.skip("Keras runs on another backend here", allow_module_level=True)


def lenet(optimizer: str = "adam") -> Any:
    model = keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            keras.layers.Conv2D(6, 5, activation="relu"),
            keras.layers.MaxPool2D(),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(12),
            keras.layers.Dropout(0.0),  # its seeds are no weights
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], run_eagerly=True)  # no graph to build
    return model


def fit(model: Any, epochs: int = 1, **options: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((64, 16, 16, 1), np.float32), rng.integers(0, 10, 64)
    model.fit(x, y, epochs=epochs, batch_size=16, verbose=0, **options)


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        np.array_equal(np.asarray(x), np.asarray(y)) for x, y in zip(a, b, strict=True)
    )


def test_names_are_those_of_keras_own_files(store: ligament.Store, tmp_path: Path) -> None:
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(8)(inputs)
    inner = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(8)])
    out = keras.layers.Add()([hidden, inner(hidden)])
    shared = keras.layers.Dense(8, name="shared")
    model = keras.Model(
        inputs, keras.layers.LSTM(3)(keras.layers.Reshape((1, 8))(shared(shared(out))))
    )
    saved = store.save("m", model)
    model.save_weights(tmp_path / "m.weights.h5")
    theirs: list[str] = []
    with h5py.File(tmp_path / "m.weights.h5") as file:
        visit = lambda name, item: theirs.append(name) if isinstance(item, h5py.Dataset) else None  # noqa: E731
        file.visititems(visit)
        for name in theirs:
            assert np.array_equal(file[name][()], store.load("m", tensors=[name])[name])
    assert set(saved.tensors) == set(theirs)
    assert [tuple(w.shape) for w in model.weights] == [t.shape for t in saved.tensors.values()]


def test_a_model_built_a_second_time_loads(store: ligament.Store) -> None:
    a = lenet()
    fit(a)
    store.save("m", a)
    b = lenet()  # its layers have other names by now
    assert [w.path for w in b.weights] != [w.path for w in a.weights]
    store.load("m", into=b)
    assert same(a.get_weights(), b.get_weights())
    fit(b)  # what was adopted can be trained on
    c = lenet()
    store.load("m", into=c, map=True)
    assert same(a.get_weights(), c.get_weights())
    fit(c)
    store.load("m", into=c)
    assert same(a.get_weights(), c.get_weights())


def test_variables_adopt_our_memory(files: ligament.Store) -> None:
    big = tf.Variable(tf.random.normal((512, 512)))
    files.save("m", {"v": big})
    into = tf.Variable(tf.zeros((512, 512)))
    alias = into.read_value()
    files.load("m", into={"v": into}, map=True)
    address = into.read_value()._numpy().__array_interface__["data"][0]
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps if "/store/" in line]
    assert any(int(low, 16) <= address < int(high, 16) for low, high in spans), "a copy was made"
    assert not alias.numpy().any()  # holders of the old value still have it
    into.assign_add(tf.ones_like(into))  # copies from the mapping, which is read-only
    files.load("m", into={"v": big})
    assert np.allclose(into.numpy(), big.numpy() + 1)
    del into
    gc.collect()


def test_saving_reads_variables_where_they_lie() -> None:
    v = tf.Variable(tf.ones((64, 64)))
    batch = _core.Batch(["v"], [v])
    assert batch.addresses() == [v.read_value()._numpy().__array_interface__["data"][0]]


def test_the_state_at_the_call(store: ligament.Store) -> None:
    model = lenet()
    fit(model)
    for i in range(3):
        want = model.get_weights()
        ticket = store.save(f"m{i}", model, wait=False)
        fit(model)
        ticket.result(60)
        other = lenet()
        store.load(f"m{i}", into=other)
        assert same(other.get_weights(), want) and not same(model.get_weights(), want)


@pytest.mark.parametrize("make", [
    lambda: tf.constant("text"), lambda: tf.Variable(["a", "b"]),
    lambda: tf.sparse.from_dense([[1, 0], [0, 2]]), lambda: tf.ragged.constant([[1], [2, 3]]),
])  # fmt: skip
def test_what_is_not_numeric_is_refused(store: ligament.Store, make: Any) -> None:
    for wait in (True, False):
        with pytest.raises(ligament.UnsupportedError, match="'bad'"):
            store.save("m", {"ok": tf.ones(2), "bad": make()}, wait=wait)
    assert len(store) == 0


def test_dtypes_and_results(store: ligament.Store) -> None:
    fp8 = tf.dtypes.experimental.float8_e4m3fn
    kinds = [tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.uint64, tf.bool, tf.complex64, fp8]
    saved = {d.name: tf.Variable(tf.cast([[1.0, 0.0, 3.0]], d)) for d in kinds}
    saved |= {
        "empty": tf.Variable(tf.zeros((0, 2))),
        "zero": tf.Variable(4),
        "tensor": tf.constant([1.5]),
    }
    store.save("m", saved)
    into = {k: tf.Variable(tf.cast(tf.zeros(v.shape), v.dtype)) for k, v in saved.items()}
    store.load("m", into=into)
    for mapped in (False, True):
        back = store.load("m", framework="tensorflow", map=mapped)
        for name, value in saved.items():
            want = value.numpy() if hasattr(value, "numpy") else value
            assert back[name].dtype == value.dtype and np.array_equal(back[name].numpy(), want), (
                name
            )
            assert np.array_equal(into[name].numpy(), want), name
    with pytest.raises(ligament.InvalidError, match="tf.Variable"):
        store.load("m", into={"tensor": tf.constant([0.0])}, extra="ignore")
    other = {"zero": tf.Variable(0.5)}
    with pytest.raises(ligament.MismatchError, match="'zero'"):
        store.load("m", into=other, extra="ignore")
    store.load("m", into=other, extra="ignore", cast=True)
    assert other["zero"].numpy() == 4.0


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
def test_weights_and_an_unbuilt_optimizer(tmp_path: Path, optimizer: str) -> None:
    a, b = lenet(optimizer), lenet(optimizer)
    fit(a)
    save_weights(a, "file", str(tmp_path / "s"))
    load_weights(b, "file", str(tmp_path / "s"))
    assert same(a.get_weights(), b.get_weights())
    assert same(a.optimizer.variables, b.optimizer.variables)
    keras.utils.set_random_seed(1)
    fit(a)
    keras.utils.set_random_seed(1)
    fit(b)
    assert same(a.optimizer.variables, b.optimizer.variables)
    c = lenet(optimizer)  # for inference: the optimizer's state is passed over
    load_weights(c, "file", str(tmp_path / "s"), include_optimizer=False)
    assert not c.optimizer.built


def test_print_lists_layers_then_the_optimizer(capfd: pytest.CaptureFixture[str]) -> None:
    model = lenet()
    fit(model)
    before = model.get_weights()
    save_weights(model, "print")
    load_weights(model, "print")
    lines = [line.split() for line in capfd.readouterr().out.splitlines() if "0x" in line]
    half = len(lines) // 2
    count = len(model.weights) + len(model.optimizer.variables)
    assert half == count and [x[-1] for x in lines[:half]] == [x[-1] for x in lines[half:]]
    assert lines[0][-1] == "layers/conv2d/vars/0" and lines[half - 1][-1].startswith("optimizer/")
    assert same(before, model.get_weights())  # a backend that fills nothing changes nothing


def test_the_callback(tmp_path: Path) -> None:
    from ligament.checkpoint import CheckpointCallback

    model = lenet()
    place = str(tmp_path / "s")
    fit(model, 3, callbacks=[CheckpointCallback("file", place, keep=2)])
    with ligament.Store(place) as store:
        assert list(store) == ["weights/epoch-000002", "weights/epoch-000003"]
        assert store.aliases() == {"weights": "weights/epoch-000003"}
    fresh, after = lenet(), model.get_weights()

    class Look(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 0:
                assert same(self.model.get_weights(), after)

    fit(fresh, 4, callbacks=[CheckpointCallback("file", place, restore=True, keep=2), Look()])
    with ligament.Store(place) as store:  # what the first run kept counts
        assert sorted(store) == ["weights/epoch-000003", "weights/epoch-000004"]
    fit(fresh, 1, callbacks=[CheckpointCallback("mem:none-yet", restore=True)])


def test_the_callback_by_batch_and_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from ligament.checkpoint import CheckpointCallback, callback

    saves: list[Any] = []
    monkeypatch.setattr(callback, "save_weights", lambda *args: saves.append(args))
    fit(lenet(), 3, callbacks=[CheckpointCallback("null", frequency={"batch": 5})])
    assert len(saves) == 2  # of 12 batches
    saves.clear()
    fit(lenet(), 5, callbacks=[CheckpointCallback("null", frequency={"epoch": np.int64(2)})])
    assert len(saves) == 2
    saves.clear()
    fit(lenet(), 3, callbacks=[CheckpointCallback("null", frequency={"epoch": 2, "batch": 5})])
    assert len(saves) == 3
    saves.clear()
    watch = CheckpointCallback("null", monitor=("value", "max"))
    watch.set_model(lenet())
    for epoch, value in enumerate([1.0, 3.0, 2.0, 3.0, 4.0]):
        watch.on_epoch_end(epoch, {"value": value})
    assert len(saves) == 3
    with pytest.raises(ligament.InvalidError, match="'value'"):
        watch.on_epoch_end(9, {"loss": 1.0})
    odd: Any = ({"epoch": "x"}, {"epoch": 1.5}, {"epoch": True}, {})
    for wrong in ({"hour": 1}, {"epoch": 0}, {"epoch": 1, "batch": 0}, *odd):
        with pytest.raises(ligament.InvalidError):
            CheckpointCallback("null", frequency=wrong)
    three: Any = 3
    for call in (lambda: CheckpointCallback(three), lambda: CheckpointCallback("null", "", three)):
        with pytest.raises(TypeError, match="should be a"):
            call()
    with pytest.raises(ligament.UnsupportedError, match="keep"):
        CheckpointCallback("null", keep=2)


def test_the_checkpointer(tmp_path: Path) -> None:
    a, b = lenet(), lenet()
    fit(a)
    with Checkpointer(tmp_path / "run") as ck:
        ck.save(3, model=a, optimizer=a.optimizer, rng=True, wait=False)
        b.optimizer.build(b.trainable_variables)
        at = ck.restore(model=b, optimizer=b.optimizer)
    assert at is not None and at.step == 3
    assert same(a.get_weights(), b.get_weights())
    assert same(a.optimizer.variables, b.optimizer.variables)


def test_layers_that_compute_what_they_save(store: ligament.Store) -> None:
    def make() -> Any:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
        model.layers[0].enable_lora(2)
        return model

    a, b = make(), make()
    a.layers[0].lora_kernel_b.assign(np.ones((2, 4)))
    want = a(np.ones((1, 4)))
    store.save("m", a)
    store.load("m", into=b)
    assert np.allclose(b(np.ones((1, 4))), want, atol=1e-5)


def test_an_unbuilt_model_is_refused(store: ligament.Store) -> None:
    with pytest.raises(ligament.InvalidError, match="not built"):
        store.save("m", keras.Sequential([keras.layers.Dense(3)]))

"""Models of Keras 2 (tf_keras): in processes of their own, because TensorFlow takes one Keras."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from warm_python import WarmPython

pytest.importorskip("tensorflow")

SETUP = """
import sys
import numpy as np, tensorflow as tf, ligament
from ligament.transfer import TransferMethods
keras = tf.keras
assert keras.layers.Dense.__module__.startswith("tf_keras.")
L = keras.layers

def build(width, seed=0):
    keras.utils.set_random_seed(seed)
    given = keras.Input((6, 4))
    value = L.Bidirectional(L.LSTM(5, return_sequences=True))(given)
    value = L.BatchNormalization()(L.Dense(8, activation="relu")(value))
    inner = keras.Sequential([keras.Input((6, 8)), L.Dense(8), L.Dense(8)])
    value = L.Add()([inner(value), value])
    return keras.Model(given, L.Dense(width)(L.Flatten()(value)))

def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.get_weights(), b.get_weights(), strict=True))

store = ligament.Store(sys.argv[1])
"""

ROUND_TRIP = """
one, other = build(3, 1), build(3, 2)
assert not same(one, other)
store.save("one", one)
store.load("one", into=other)
assert same(one, other)
names = list(store["one"].tensors)
assert len(names) == len(one.weights) and "layers/dense/vars/0" in names, names
assert "layers/bidirectional/forward_layer/cell/vars/0" in names, names
assert "layers/sequential/layers/dense_1/vars/1" in names, names
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = L.Dense(5), L.Dense(2)
    def call(self, x):
        return self.out(self.hidden(x))
net, copy = Net(), Net()
try:
    store.save("net", net)
except ligament.InvalidError as error:
    assert "not built" in str(error)
net(np.ones((1, 3))), copy(np.ones((1, 3)))
store.save("net", net)
assert set(store["net"].tensors) == {f"{l}/vars/{i}" for l in ("hidden", "out") for i in (0, 1)}
store.load("net", into=copy)
assert same(net, copy)
"""

SEARCH = """
methods = TransferMethods(store)
assert methods.transfer(build(3), 1) == ([], None)
one = build(3, 1)
assert methods.store(1, one, val_acc=0.5)
other = build(4, 2)
prefix, parent = methods.transfer(other, 2)
assert parent == 1 and other.layers[1].name in prefix and other.layers[-1].name not in prefix
assert np.array_equal(one.layers[2].get_weights()[0], other.layers[2].get_weights()[0])
assert methods.store(2, other, prefix, 0.6)
assert store["2"].own_bytes == (48 * 4 + 4) * 4
assert set(methods.get_composition(2)) == {1, 2}
"""

WEIGHTS = """
from ligament.checkpoint import load_weights, save_weights
def trained(seed):
    model = build(2, seed)
    model.compile("adam", "mse", run_eagerly=True)  # no graph to build
    model.fit(np.ones((4, 6, 4)), np.ones((4, 2)), verbose=0)
    return model
one, other = trained(1), trained(2)
save_weights(one, sys.argv[1] + "-w")
load_weights(other, sys.argv[1] + "-w")
assert same(one, other)
for a, b in zip(one.optimizer.variables, other.optimizer.variables, strict=True):
    assert np.array_equal(a.numpy(), b.numpy())
fresh = build(2, 3)
fresh.compile("adam", "mse")
load_weights(fresh, sys.argv[1] + "-w")
assert same(one, fresh) and int(fresh.optimizer.iterations) == 1
one.fit(np.ones((4, 6, 4)), np.zeros((4, 2)), verbose=0)
store.save("optimizer", one.optimizer)
store.load("optimizer", into=fresh.optimizer)
for a, b in zip(one.optimizer.variables, fresh.optimizer.variables, strict=True):
    assert np.array_equal(a.numpy(), b.numpy())
"""

CALLBACK = """
from ligament.checkpoint import CheckpointCallback
X, Y = np.linspace(0, 1, 16, dtype="f4").reshape(4, 4), np.ones((4, 3), "f4")

def compiled(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((4,)), L.Dense(3)])
    model.compile("adam", "mse", run_eagerly=True)
    return model

class Epochs(keras.callbacks.Callback):
    def __init__(self, stop_after=None):
        super().__init__()
        self.seen, self.stop_after = [], stop_after
    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(epoch)
        if epoch + 1 == self.stop_after:
            raise KeyboardInterrupt

def fit(model, epochs, *callbacks):
    model.fit(X, Y, 2, epochs, verbose=0, shuffle=False, callbacks=list(callbacks))

whole, cut, late, epochs = compiled(1), compiled(1), compiled(2), Epochs()
fit(whole, 5)
try:
    fit(cut, 5, CheckpointCallback(sys.argv[1], frequency={"epoch": 1, "batch": 3}), Epochs(3))
except KeyboardInterrupt:
    assert store["weights"].meta == {"epoch": 3, "batches": 6}, store["weights"].meta
fit(late, 5, CheckpointCallback(sys.argv[1], keep=1, monitor="loss", restore=True), epochs)
assert epochs.seen == [3, 4], epochs.seen
assert same(whole, late)
for a, b in zip(whole.optimizer.variables, late.optimizer.variables, strict=True):
    assert np.array_equal(a.numpy(), b.numpy())
fit(late, 1, again := Epochs())
assert again.seen == [0]  # the epoch reached is gone with the callback

class Tests(CheckpointCallback):
    def on_test_batch_end(self, batch, logs=None):
        self.tested = batch + 1
tests = Tests(sys.argv[1], frequency={"batch": 1})
late.evaluate(X, Y, 2, verbose=0, callbacks=[tests])
assert tests.tested == 2
"""

# What Keras 2 wrote is read into the same model of Keras 3, and the other way round.
THREE = """
import keras, ligament, numpy as np, sys
L = keras.layers
given = keras.Input((4,))
model = keras.Model(given, L.Dense(3)(L.BatchNormalization()(L.Dense(8)(given))))
store = ligament.Store(sys.argv[1])
if sys.argv[2] == "save":
    store.save("three", model)
else:
    store.load("two", into=model)
print([float(np.sum(np.array(w))) for w in model.get_weights()])
"""
TWO = """
given = keras.Input((4,))
model = keras.Model(given, L.Dense(3)(L.BatchNormalization()(L.Dense(8)(given))))
if sys.argv[2] == "save":
    store.save("two", model)
else:
    store.load("three", into=model)
print([float(np.sum(w)) for w in model.get_weights()])
"""


Run = Callable[..., str]


@pytest.fixture
def run(warm_keras2: WarmPython, request: pytest.FixtureRequest) -> Run:
    """Runs code under Keras 2, or under Keras 3; returns what it printed."""

    def start(code: str, *args: object, legacy: bool = True) -> str:
        environment = os.environ | {
            "TF_USE_LEGACY_KERAS": "1" if legacy else "0",
            "KERAS_BACKEND": "tensorflow",
        }
        python = warm_keras2 if legacy else request.getfixturevalue("warm_tensorflow")
        done = python.run("-c", (SETUP if legacy else "") + code, *args, env=environment)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return start


@pytest.mark.parametrize(
    "code", [ROUND_TRIP, SEARCH, WEIGHTS, CALLBACK], ids=["load", "find", "weights", "callback"]
)
def test_models(run: Run, code: str, tmp_path: Path) -> None:
    run(code, tmp_path / "store")


def test_either_version_reads_the_other(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "store"
    assert run(TWO, place, "save") == run(THREE, place, "load", legacy=False)
    assert run(THREE, place, "save", legacy=False) == run(TWO, place, "load")

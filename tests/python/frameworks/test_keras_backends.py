"""Keras on its other backends: the same names, so that one loads what another saved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from warm_python import WarmPython

pytest.importorskip("keras")

CODE = """
import sys, numpy as np, keras, ligament
from ligament.checkpoint import save_weights, load_weights, Checkpointer
place, action = sys.argv[1], sys.argv[2]
def make():
    layers = keras.layers
    parts = [layers.Dense(8), layers.BatchNormalization(), layers.Dense(2)]
    model = keras.Sequential([keras.Input((4,)), *parts])
    # In eager mode jax compiles every operation that it meets.
    model.compile("adam", "mse", run_eagerly=action != "jax")
    return model
def fit(model):
    model.fit(np.ones((16, 4), "f4"), np.ones((16, 2), "f4"), epochs=1, verbose=0)
def same(a, b):
    values = [[keras.ops.convert_to_numpy(x) for x in some] for some in (a, b)]
    return all(np.array_equal(x, y) for x, y in zip(*values, strict=True))
store = ligament.Store(place)
a, b = make(), make()
if "common" in store:  # in a new process nothing has been read yet
    store.load("common", into=b)
fit(a)
m = store.save("own", a, replace=True)
print("names", *m.tensors)
store.load("own", into=b)
assert same(a.weights, b.weights)
fit(b)
ticket = store.save("later", a, wait=False, replace=True)
want = a.get_weights()
fit(a)
ticket.result(60)
store.load("later", into=b)
assert all(np.array_equal(x, y) for x, y in zip(want, b.get_weights()))
save_weights(a, "file", place + "-weights")
c = make()
load_weights(c, "file", place + "-weights")
assert same(a.weights, c.weights) and same(a.optimizer.variables, c.optimizer.variables)
with Checkpointer(place + "-run") as ck:
    ck.save(1, model=a, optimizer=a.optimizer)
    ck.restore(model=c, optimizer=c.optimizer)
assert same(a.weights, c.weights)
if "common" in store:
    store.load("common", into=b)
    print("sum", float(sum(np.abs(w).sum() for w in b.get_weights())))
else:
    store.save("common", a)
    print("sum", float(sum(np.abs(w).sum() for w in a.get_weights())))
print("ok")
"""


def environment(backend: str) -> dict[str, str]:
    return os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}


def test_each_backend_and_across(tmp_path: Path) -> None:
    warm = {name: WarmPython("keras", env=environment(name)) for name in ("torch", "jax")}
    outs = []
    for backend in ("torch", "jax", "torch"):
        done = warm[backend].run("-c", CODE, tmp_path / "s", backend, env=environment(backend))
        assert done.stdout.endswith("ok\n"), done.stderr
        outs.append(done.stdout)
    for server in warm.values():
        server.close()
    assert outs[0] == outs[1] == outs[2]

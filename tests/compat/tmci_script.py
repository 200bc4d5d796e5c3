"""A script of TMCI's, run by `python -m ligament.compat`: tmci_script.py PLUGIN FOLDER. The last
line has the peaks of the memory of load_weights in MiB above the model, by backend."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf
import tmci.plugins
from tmci import ops
from tmci.checkpoint import CheckpointCallback, load_weights, save_weights

PLUGIN, FOLDER = sys.argv[1:]


def model(seed, width=96):
    keras.utils.set_random_seed(seed)
    made = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(width),
            keras.layers.Dense(width),
            keras.layers.Dense(1),
        ]
    )
    made.compile("adam", "mse", run_eagerly=True)
    return made


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.get_weights(), b.get_weights(), strict=True))


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"no {kind}")


def fit(made, callback, epochs=1, batches=4):
    data = np.ones((batches, 8)), np.ones((batches, 1))
    made.fit(*data, batch_size=1, epochs=epochs, verbose=0, callbacks=[callback])


def modules():
    library = tmci.plugins.load(PLUGIN)
    assert library is tmci.plugins.load(PLUGIN) and library.lig_plugin_at
    assert tmci.plugins.load.libraries[PLUGIN] is library
    assert tmci.checkpoint.save_weights is save_weights
    raises(OSError, lambda: tmci.plugins.load("/nowhere/libnone.so"))


def eager():
    a, b = tf.Variable(tf.random.normal([80, 70])), tf.Variable([1, 2, 3], dtype=tf.int64)
    scalar, flags = tf.Variable(2.5), tf.constant([True, False])
    want = [a.numpy(), b.numpy(), scalar.numpy(), flags.numpy()]
    assert ops.checkpoint(tensors=[a, b, scalar, flags], backend="keep", config="eager") is None
    for one in (a, b, scalar):
        one.assign(tf.zeros_like(one))
    before = a.read_value()  # shares the memory of the variable until that is written
    flags = tf.constant([False, False])
    assert ops.restore([a, b, scalar, flags], "keep", "eager") is None
    got = [a.numpy(), b.numpy(), scalar.numpy(), flags.numpy()]
    assert all(np.array_equal(x, y) for x, y in zip(want, got, strict=True))
    assert not before.numpy().any(), "another holder of the memory saw the load"
    ops.checkpoint([np.arange(4.0), [1, 2]], "keep", "arrays")
    into = tf.Variable(np.zeros(4)), tf.Variable([0, 0])
    ops.restore(list(into), "keep", "arrays")
    assert into[0].numpy().tolist() == [0, 1, 2, 3] and into[1].numpy().tolist() == [1, 2]


def sparse():
    """TensorFlow copies what it reads of a variable that was updated sparsely."""
    table = tf.Variable(tf.zeros([500, 16]))
    ops.checkpoint([tf.ones([500, 16])], "keep", "sparse")
    table.scatter_update(tf.IndexedSlices(tf.fill([1, 16], 7.0), [3]))
    ops.restore([table], "keep", "sparse")
    assert np.array_equal(table.numpy(), np.ones((500, 16)))
    table.scatter_update(tf.IndexedSlices(tf.fill([1, 16], 7.0), [3]))
    assert table.numpy().sum() == 499 * 16 + 7 * 16


def in_functions():
    v = tf.Variable(tf.zeros([100, 50]))
    kind = []

    @tf.function
    def step():
        v.assign(tf.ones([100, 50]))
        kind.append(type(ops.checkpoint(tensors=[v, v * 2.0], backend="keep", config="graph")))
        v.assign_add(tf.ones([100, 50]))  # after the save
        between = v.read_value()
        ops.restore(tensors=[v, other], backend="keep", config="graph")
        v.assign_add(tf.ones([100, 50]))  # after the load
        return between

    other = tf.Variable(tf.zeros([100, 50]))
    for _ in range(3):
        assert np.array_equal(step().numpy(), np.full((100, 50), 2.0))
        assert np.array_equal(v.numpy(), np.full((100, 50), 2.0))
        assert np.array_equal(other.numpy(), np.full((100, 50), 2.0))
    assert kind[0] is tf.Operation

    @tf.function
    def fails():
        ops.checkpoint([v], "keep", "full")

    raises(tf.errors.UnknownError, fails, "Save returned 28")  # TensorFlow's for any Python error


def through_plugin_and_store():
    for backend, config in (("keep", "weights"), ("file", f"{FOLDER}/store")):
        one, two, three = model(1), model(2), model(3)
        fit(one, keras.callbacks.Callback())
        save_weights(one, backend, config)
        load_weights(two, backend=backend, config=config)
        assert same(one, two) and not same(one, three)
        pairs = zip(one.optimizer.variables, two.optimizer.variables, strict=True)
        assert all(np.array_equal(x.numpy(), y.numpy()) for x, y in pairs)
        three.optimizer.build(three.trainable_variables)
        ops.restore([*three.weights, *three.optimizer.variables], backend, config)  # by position
        assert same(one, three)
        save_weights(one, backend, config, include_optimizer=False)
        load_weights(model(4), backend, config, include_optimizer=False)


def callbacks():
    saves = []
    CheckpointCallback._save = lambda self, label, logs: saves.append(label)  # type: ignore[method-assign]
    fit(model(1), CheckpointCallback("keep", frequency={"epoch": 2, "batch": 3}), epochs=4)
    want = ["batch-000000003", "batch-000000006", "epoch-000002", "batch-000000009"]
    assert saves == [*want, "batch-000000012", "batch-000000015", "epoch-000004"][: len(saves)], (
        saves
    )
    assert saves.count("epoch-000004") == 1 and len(saves) == 7
    del CheckpointCallback._save


def failures():
    made = model(1)
    for call in (
        lambda: CheckpointCallback(3),
        lambda: CheckpointCallback("keep", config=3),
        lambda: CheckpointCallback("keep", frequency=3),
        lambda: save_weights(made, 3),
        lambda: save_weights(made, "keep", config=None),
        lambda: load_weights(made, b"keep"),
        lambda: ops.checkpoint([made.weights[0]], 3, ""),
        lambda: ops.restore(made.weights[0], "keep", ""),
    ):
        raises(TypeError, call, "should be a")
    full = raises(
        tf.errors.InternalError, lambda: save_weights(made, "keep", "full"), "Save returned 28"
    )
    assert isinstance(full, OSError) and isinstance(full, RuntimeError)
    raises(tf.errors.InternalError, lambda: fit(made, CheckpointCallback("keep", "full")), "28")
    raises(
        tf.errors.InternalError, lambda: load_weights(made, "keep", "unknown"), "Load returned 2"
    )
    none = raises(tf.errors.InternalError, lambda: save_weights(made, "none"), "no backend 'none'")
    assert isinstance(none, KeyError)
    raises(tf.errors.InternalError, lambda: load_weights(made, "none"), "no backend 'none'")
    raises(tf.errors.InternalError, lambda: fit(made, CheckpointCallback("none")), "'none'")
    raises(
        tf.errors.InternalError,
        lambda: ops.checkpoint([made.weights[0]], "none", ""),
        "no backend 'none'",
    )
    assert not os.path.exists("none")


def peak_of(call):
    """How far the peak of the resident memory rises above its present size."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def resident(word):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(word)) / 1024


def memory():
    """240 MiB: one tensor of 160 MiB, two of 40."""
    made = keras.Sequential([keras.Input((1024,))])
    for width in (40960, 256, 40960):
        made.add(keras.layers.Dense(width, "relu", kernel_initializer="ones"))
    found = {}
    for backend, config in (("file", f"{FOLDER}/large"), ("keep", "large")):
        save_weights(made, backend, config, include_optimizer=False)
        for weight in made.weights:
            weight.assign(weight + 1)
        load = functools.partial(load_weights, made, backend, config, include_optimizer=False)
        found[backend] = peak_of(load)
        assert all(tf.reduce_all(one.value == 1) for one in made.weights if len(one.shape) == 2)
    found["dummy"] = memory_of_the_fork(made)
    return found


def memory_of_the_fork(made):
    """The calls of EvoStore's fork, with EvoStore's library."""
    library = tmci.plugins.load("libdummy.so")
    place = f"{FOLDER}/models".encode()
    library.set_servers(place, len(place))
    count = len(made.weights)
    ids, owners = (ctypes.c_uint64 * count)(*range(10, 10 + count)), (ctypes.c_uint64 * count)()
    owners[:] = [1] * count
    sizes = (ctypes.c_uint64 * count)(*(4 * int(np.prod(one.shape)) for one in made.weights))
    save_weights(made, None, "dummy", 1, ids[:])
    library.store_meta(1, (ctypes.c_uint64 * 2)(9, 10), 2, ids, owners, sizes, count)
    for weight in made.weights:
        weight.assign(weight + 1)
    peak = peak_of(lambda: load_weights(made, None, "dummy", owners[:], 1, ids[:]))
    assert all(tf.reduce_all(one.value == 1) for one in made.weights if len(one.shape) == 2)
    library.shutdown()
    return peak


for check in (modules, eager, sparse, in_functions, through_plugin_and_store, callbacks, failures):
    check()
    print(check.__name__, "passed", flush=True)
try:
    print(json.dumps(memory()))
except PermissionError:
    print("{}")

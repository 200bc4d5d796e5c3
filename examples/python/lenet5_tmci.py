"""A script written for TMCI.

python -m ligament.compat examples/python/lenet5_tmci.py [BACKEND [PLUGIN]]
"""

import sys

import keras
import numpy
import tmci.checkpoint
import tmci.plugins

backend = sys.argv[1] if len(sys.argv) > 1 else "print"
if len(sys.argv) > 2:
    tmci.plugins.load(sys.argv[2])

random = numpy.random.default_rng(0)
pictures = random.random((256, 32, 32, 1), numpy.float32)
labels = random.integers(0, 10, 256)

model = keras.Sequential(
    [
        keras.Input((32, 32, 1)),
        keras.layers.Conv2D(6, 5, activation="tanh"),
        keras.layers.AveragePooling2D(2),
        keras.layers.Conv2D(16, 5, activation="tanh"),
        keras.layers.AveragePooling2D(2),
        keras.layers.Flatten(),
        keras.layers.Dense(120, activation="tanh"),
        keras.layers.Dense(84, activation="tanh"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callback = tmci.checkpoint.CheckpointCallback(backend, config="", frequency={"epoch": 1})
model.fit(pictures, labels, epochs=1, batch_size=64, verbose=0, callbacks=[callback])
before = model.get_weights()
tmci.checkpoint.save_weights(model, backend=backend, config="", include_optimizer=True)
tmci.checkpoint.load_weights(model, backend=backend, config="", include_optimizer=True)
same = all(numpy.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
print("the weights are", "equal" if same else "DIFFERENT")

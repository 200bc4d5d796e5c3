"""The contenders of checkpoint.py: one class for each way of saving and loading a batch of tensors.

Each runs in a process of its own and says the same few verbs: `build`, `change` (every byte),
`save` (to the end of fsync of file and folder), `load`, `drop`. A save goes to a fresh name; the
one before is dropped afterwards, outside the clock, as a training loop that keeps the last does.
"""

import os
import shutil
from pathlib import Path
from typing import Any

ROW = 256  # every tensor is [n, ROW] float32


def sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def sync_tree(path: Path) -> None:
    """Every file below, and every folder up to the one that names `path`."""
    for folder, _, names in os.walk(path):
        for name in names:
            sync_path(Path(folder) / name)
        sync_path(Path(folder))
    if path.is_file():
        sync_path(path)
    sync_path(path.parent)


class Contender:
    # "place": into the tensors of the model; "own": what the peer's call returns by default;
    # "map": views of the file, all pages touched; "raw": the same without comparing checksums.
    modes: tuple[str, ...] = ("place",)
    suffix = ""

    def __init__(self, folder: Path, sizes: list[int]):
        self.folder, self.sizes, self.result = folder, sizes, None
        self.names = [f"layer{i:05d}.weight" for i in range(len(sizes))]

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step}{self.suffix}"

    def files(self, step: int) -> list[Path]:
        path = self.path(step)
        return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]

    def drop(self, step: int) -> None:
        path = self.path(step)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def start(self, step: int, state: dict[str, Any]) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class TorchContender(Contender):
    def build(self) -> None:
        import torch

        self.torch = torch
        torch.manual_seed(1)
        self.state = {}
        for name, size in zip(self.names, self.sizes, strict=True):
            self.state[name] = torch.empty(size // 4 // ROW, ROW).uniform_(-1, 1)
        self.bytes_of = [t.view(torch.uint8) for t in self.state.values()]

    def change(self) -> None:
        for view in self.bytes_of:
            view.add_(37)

    def probe(self) -> list[bytes]:
        views = [v for t in self.read().values() for v in (t[0, :4], t[-1, -4:])]
        return [bytes(v.numpy().tobytes()) for v in views]

    def read(self) -> dict[str, Any]:
        return self.state if self.result is None else self.result

    def touch(self, tensors: dict[str, Any]) -> None:
        """Reads one element per page, so that a lazy loader has loaded everything."""
        for tensor in tensors.values():
            tensor.view(-1)[:: 4096 // 4].sum()

    def copy_into(self, tensors: dict[str, Any]) -> None:
        with self.torch.no_grad():
            for name, tensor in self.state.items():
                tensor.copy_(tensors[name])


class Safetensors(TorchContender):
    modes, suffix = ("place", "map"), ".safetensors"

    def build(self) -> None:
        import safetensors.torch

        self.module = safetensors.torch
        super().build()

    def save(self, step: int) -> None:
        self.module.save_file(self.state, self.path(step))
        sync_tree(self.path(step))

    def load(self, step: int, mode: str) -> None:
        tensors = self.module.load_file(self.path(step))
        if mode == "place":
            self.copy_into(tensors)
        else:
            self.touch(tensors)
            self.result = tensors


class TorchSave(TorchContender):
    modes, suffix = ("own", "place"), ".pt"

    def save(self, step: int) -> None:
        self.torch.save(self.state, self.path(step))
        sync_tree(self.path(step))

    def load(self, step: int, mode: str) -> None:
        tensors = self.torch.load(self.path(step), weights_only=True)
        if mode == "place":
            self.copy_into(tensors)
        else:
            self.result = tensors


class Dcp(TorchContender):
    def build(self) -> None:
        import warnings

        import torch.distributed.checkpoint as dcp

        warnings.filterwarnings("ignore", category=UserWarning)
        self.dcp = dcp
        super().build()

    def save(self, step: int) -> None:
        writer = self.dcp.FileSystemWriter(self.path(step))
        self.dcp.save(self.state, storage_writer=writer, no_dist=True)
        sync_tree(self.path(step))

    def load(self, step: int, mode: str) -> None:
        reader = self.dcp.FileSystemReader(self.path(step))
        self.dcp.load(self.state, storage_reader=reader, no_dist=True)

    def start(self, step: int, state: dict[str, Any]) -> Any:
        writer = self.dcp.FileSystemWriter(self.path(step))
        return self.dcp.async_save(state, storage_writer=writer, no_dist=True)


class DcpAsync(Dcp):
    """A durable save with the asynchronous call, waited for immediately."""

    def save(self, step: int) -> None:
        self.start(step, self.state).result()
        sync_tree(self.path(step))


class Ligament(TorchContender):
    modes = ("place", "own", "map", "raw")
    store: Any = None

    def build(self) -> None:
        import ligament

        self.ligament = ligament
        super().build()

    def path(self, step: int) -> Path:
        return self.folder

    def opened(self) -> Any:
        if self.store is None:
            self.store = self.ligament.Store(str(self.folder / "store"))
        return self.store

    def save(self, step: int) -> None:
        self.opened().save(f"step-{step}", self.state)

    def load(self, step: int, mode: str) -> None:
        store, name = self.opened(), f"step-{step}"
        if mode == "place":
            store.load(name, into=self.state)
        elif mode == "own":
            self.result = store.load(name, framework="torch")
        else:
            self.result = store.load(name, framework="torch", map=True, verify=mode == "map")
            self.touch(self.result)

    def start(self, step: int, state: dict[str, Any]) -> Any:
        return self.opened().save(f"step-{step}", state, wait=False)

    def drop(self, step: int) -> None:
        self.opened().retire(f"step-{step}")

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


class TensorFlow(Contender):
    def build(self) -> None:
        import numpy as np
        import tensorflow as tf

        self.np, self.tf = np, tf
        source = np.random.default_rng(1)
        self.arrays = [source.random((s // 4 // ROW, ROW), np.float32) for s in self.sizes]
        self.make()

    def make(self) -> None:
        self.variables = [self.tf.Variable(a) for a in self.arrays]
        self.checkpoint = self.tf.train.Checkpoint(variables=self.variables)

    def change(self) -> None:
        for array, variable in zip(self.arrays, self.variables, strict=True):
            array.view(self.np.uint8)[...] += 37
            variable.assign(array)

    def probe(self) -> list[bytes]:
        views = [v.numpy() for x in self.variables for v in (x[0, :4], x[-1, -4:])]
        return [v.tobytes() for v in views]

    def files(self, step: int) -> list[Path]:
        return list(self.folder.glob(self.path(step).name + ".*"))

    def save(self, step: int) -> None:
        self.checkpoint.write(str(self.path(step)))
        for path in self.files(step):
            sync_path(path)
        sync_path(self.folder)

    def load(self, step: int, mode: str) -> None:
        self.checkpoint.read(str(self.path(step))).assert_consumed()

    def drop(self, step: int) -> None:
        for path in self.files(step):
            path.unlink()


class Keras(TensorFlow):
    """One layer holds all weights: the most favourable shape for the .weights.h5 format."""

    suffix = ".weights.h5"

    def make(self) -> None:
        os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        import keras

        layer = keras.layers.Layer()
        for index, array in enumerate(self.arrays):
            layer.add_weight(shape=array.shape, initializer="zeros", name=f"w{index}")
        self.model = keras.Sequential([layer])
        layer.built = self.model.built = True
        self.variables = [w.value for w in layer.weights]
        for variable, array in zip(self.variables, self.arrays, strict=True):
            variable.assign(array)

    def files(self, step: int) -> list[Path]:
        return [self.path(step)]

    def save(self, step: int) -> None:
        self.model.save_weights(self.path(step))
        sync_tree(self.path(step))

    def load(self, step: int, mode: str) -> None:
        self.model.load_weights(self.path(step))


class LigamentKeras(Keras):
    suffix = ""
    store: Any = None
    path = Ligament.path
    files = Contender.files
    opened = Ligament.opened
    drop = Ligament.drop
    close = Ligament.close

    def make(self) -> None:
        import ligament

        self.ligament = ligament
        super().make()

    def save(self, step: int) -> None:
        self.opened().save(f"step-{step}", self.model)

    def load(self, step: int, mode: str) -> None:
        self.opened().load(f"step-{step}", into=self.model)


CONTENDERS: dict[str, type[Contender]] = {
    "ligament": Ligament,
    "safetensors": Safetensors,
    "torch.save": TorchSave,
    "dcp": Dcp,
    "dcp async": DcpAsync,
    "tf checkpoint": TensorFlow,
    "keras h5": Keras,
    "ligament keras": LigamentKeras,
}

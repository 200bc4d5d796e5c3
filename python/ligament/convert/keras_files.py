"""Files of Keras, as arrays and text: neither Keras nor anything that a file describes is run."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import CorruptError, LimitError, UnsupportedError
from . import Found

_CONFIG, _ABOUT, _WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
_RATIO = 1000  # how much larger than its file a dataset may say that it is
_TEXT_BYTES = 256 << 20


def _h5py() -> Any:
    import h5py

    return h5py


# --- .h5 ----------------------------------------------------------------------------------------


def read_h5(path: str) -> Found:
    """Every dataset under its path, which in Keras's own `.weights.h5` is the name that a model has
    in a store; that of files of Keras 2 without its first group."""
    h5py = _h5py()
    limit = _RATIO * os.path.getsize(path)
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name.removeprefix("model_weights/")] = _array(item, name, path, limit)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)  # follows no link to another file
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, (UnsupportedError, CorruptError, LimitError)):
            raise
        raise CorruptError(f"'{path}' cannot be read: {error}") from None
    if not found:
        raise CorruptError(f"'{path}' holds no tensor")
    return Found({name: found[name] for name in sorted(found, key=_order)})


def _order(name: str) -> list[tuple[int, int | str]]:
    """Optimizers last, numbers as numbers."""
    first = 1 if name.startswith("optimizer") else 0
    words = [(0, int(w)) if w.isdecimal() else (1, w) for w in re.split(r"(\d+)", name) if w]
    return [(first, 0), *words]


def _array(item: Any, name: str, path: str, limit: int) -> Any:
    if item.is_virtual or item.external:
        raise UnsupportedError(f"'{name}' of '{path}' lies in other files")
    if item.dtype.kind in "OSU" or item.dtype.fields:
        raise UnsupportedError(f"'{name}' of '{path}' has dtype {item.dtype}, which is not numeric")
    if item.size * item.dtype.itemsize > limit:
        raise LimitError(f"'{name}' of '{path}' says that it is larger than its file can be")
    value = np.asarray(item[()])
    if value.dtype.kind != "V":
        return value
    if value.dtype.itemsize != 2:  # HDF5 has no word for these, and Keras writes them as bytes
        raise UnsupportedError(f"'{name}' of '{path}' has dtype {item.dtype}, which says nothing")
    return value.view(ml_dtypes.bfloat16)


def write_h5(arrays: Mapping[str, Any], path: str) -> None:
    """Datasets under the tensors' names, with bfloat16 as Keras marks it."""
    h5py = _h5py()
    for name, value in arrays.items():
        if value.dtype.kind == "V" and value.dtype != np.dtype(ml_dtypes.bfloat16):
            raise UnsupportedError(f"'{name}' is {value.dtype}, for which HDF5 has no word")
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            try:
                item = file.create_dataset(name, data=value)
            except (ValueError, OSError, TypeError, KeyError) as error:
                raise UnsupportedError(f"'{name}' cannot be in an HDF5 file: {error}") from None
            if value.dtype == np.dtype(ml_dtypes.bfloat16):
                item.attrs["dtype"] = "bfloat16"


# --- .keras -------------------------------------------------------------------------------------


def read_keras(path: str) -> Found:
    """The weights, optimizer included, and the architecture as the model's meta."""
    with _archive(path) as archive, tempfile.TemporaryDirectory() as room:
        about = _architecture(archive, path)
        place = os.path.join(room, _WEIGHTS)
        if _WEIGHTS not in archive.namelist():
            raise UnsupportedError(
                f"'{path}' has no {_WEIGHTS}: weights in parts are not read here"
            )
        size = archive.getinfo(_WEIGHTS).file_size
        if size > _RATIO * os.path.getsize(path):
            raise LimitError(f"'{path}' says that its weights are larger than it can hold")
        try:
            with archive.open(_WEIGHTS) as inside, open(place, "wb") as out:
                shutil.copyfileobj(inside, out, 1 << 20)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise CorruptError(f"'{path}' cannot be unpacked: {error}") from None
        return Found(read_h5(place).tree, {"keras": about})


def _archive(path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise CorruptError(f"'{path}' is no .keras file: {error}") from None


def _architecture(archive: zipfile.ZipFile, path: str) -> dict[str, Any]:
    names = archive.namelist()
    assets = [name for name in names if name.startswith("assets/") and not name.endswith("/")]
    if assets:
        raise UnsupportedError(
            f"'{path}' has files of its own ({assets[0]}), which a store has not"
        )
    found = {}
    for name in (_CONFIG, _ABOUT):
        if name not in names or archive.getinfo(name).file_size > _TEXT_BYTES:
            raise CorruptError(f"'{path}' has no {name}")
        try:
            found[name.removesuffix(".json")] = json.loads(archive.read(name))
        except (ValueError, RecursionError, zipfile.BadZipFile, RuntimeError) as error:
            raise CorruptError(f"{name} of '{path}' cannot be read: {error}") from None
    return found


def write_keras(arrays: Mapping[str, Any], meta: Any, path: str, like: Any) -> None:
    """A file for keras.models.load_model."""
    about = meta.get("keras") if isinstance(meta, dict) else None
    if like is not None:
        with _archive(os.fspath(like)) as other:
            about = _architecture(other, os.fspath(like))
    if not isinstance(about, dict) or not {"config", "metadata"} <= set(about):
        raise UnsupportedError(
            "the store has the weights and not the architecture, which a .keras file needs: "
            "--like FILE.keras takes that of another, or write .weights.h5"
        )
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as room:
        weights = os.path.join(room, _WEIGHTS)
        write_h5(arrays, weights)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(_ABOUT, json.dumps(about["metadata"]))
            archive.writestr(_CONFIG, json.dumps(about["config"]))
            archive.write(weights, _WEIGHTS)

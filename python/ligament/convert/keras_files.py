"""Reads and writes Keras files as arrays and text: neither Keras nor anything that a file describes
is executed."""

from __future__ import annotations

import json
import lzma
import math
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import CorruptError, Error, LimitError, UnsupportedError
from . import Found
from .memory_budget import Budget

_CONFIG, _ABOUT, _WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
_TEXT_BYTES = 16 << 20  # some forty times as much in memory
_DEPTH_MOST = 100
_BAD_ZIP = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, NotImplementedError,
    RuntimeError, OverflowError,
)  # fmt: skip


def _h5py() -> Any:
    import h5py

    return h5py


# --- .h5 ----------------------------------------------------------------------------------------


def read_h5(path: str, budget: Budget) -> Found:
    """Every dataset under its path, which in Keras's own `.weights.h5` is the name in a store; in
    files of Keras 2 without the first group."""
    h5py = _h5py()
    found: dict[str, Any] = {}
    try:
        with h5py.File(path, "r") as file:
            for name, item in _datasets(file, budget.source):
                found[name.removeprefix("model_weights/")] = _array(item, name, path, budget)
    except (Error, MemoryError):
        raise
    except Exception as error:  # a hostile file may make the library raise anything
        raise CorruptError(f"cannot read '{budget.source}': {error}") from None
    if not found:
        raise CorruptError(f"'{budget.source}' contains no tensor")
    return Found({name: found[name] for name in sorted(found, key=_order)})


def _datasets(file: Any, source: str) -> Iterator[tuple[str, Any]]:
    """The datasets reachable by hard links, each once: links to other files are not followed,
    cycles end, and depth uses no stack."""
    h5py = _h5py()
    todo, seen = [("", file)], set()
    while todo:
        path, group = todo.pop()
        if path.count("/") > _DEPTH_MOST:
            raise CorruptError(f"'{source}' has groups more than {_DEPTH_MOST} deep")
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            place = h5py.h5o.get_info(item.id).addr
            if place in seen:
                continue
            seen.add(place)
            whole = f"{path}/{name}" if path else name
            if isinstance(item, h5py.Group):
                todo.append((whole, item))
            elif isinstance(item, h5py.Dataset):
                yield whole, item


def _order(name: str) -> list[tuple[int, int | str]]:
    """Optimizers last, numbers in numeric order."""
    first = 1 if name.startswith("optimizer") else 0
    words = [(0, int(w)) if w.isdecimal() else (1, w) for w in re.split(r"(\d+)", name) if w]
    return [(first, 0), *words]


def _array(item: Any, name: str, path: str, budget: Budget) -> Any:
    source = budget.source
    if item.is_virtual or item.external:
        raise UnsupportedError(f"'{name}' of '{source}' is in other files")
    if item.dtype.kind in "OSU" or item.dtype.fields:
        raise UnsupportedError(
            f"'{name}' of '{source}' has dtype {item.dtype}, which is not numeric"
        )
    if item.shape is None:
        raise CorruptError(f"'{name}' of '{source}' has no shape")
    count = math.prod(item.shape) * item.dtype.itemsize
    if item.chunks is not None:  # one is unpacked whole, however little of it belongs to the tensor
        budget.check(math.prod(item.chunks) * item.dtype.itemsize, f"a chunk of '{name}'")
    budget.take(count, f"'{name}'")
    offset = item.id.get_offset()
    if offset is not None and count > 0:  # not packed: it is used in place
        value: Any = np.memmap(path, item.dtype, "r", offset, item.shape)
    else:
        value = np.asarray(item[()])
    if value.dtype.kind != "V":
        return value
    if value.dtype.itemsize != 2:  # HDF5 has no type for these, and Keras writes them as bytes
        raise UnsupportedError(f"'{name}' of '{source}' has the ambiguous dtype {item.dtype}")
    return value.view(ml_dtypes.bfloat16)


def write_h5(arrays: Mapping[str, Any], path: str) -> None:
    """Writes datasets under the tensors' names, with bfloat16 marked as Keras does it."""
    h5py = _h5py()
    for name, value in arrays.items():
        if value.dtype.kind == "V" and value.dtype != np.dtype(ml_dtypes.bfloat16):
            raise UnsupportedError(f"'{name}' has dtype {value.dtype}, which HDF5 does not support")
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            try:
                item = file.create_dataset(name, data=value)
            except (ValueError, OSError, TypeError, KeyError) as error:
                raise UnsupportedError(f"cannot store '{name}' in an HDF5 file: {error}") from None
            if value.dtype == np.dtype(ml_dtypes.bfloat16):
                item.attrs["dtype"] = "bfloat16"


# --- .keras -------------------------------------------------------------------------------------


def read_keras(path: str, budget: Budget) -> Found:
    """The weights, including the optimizer, and the architecture as the model's meta."""
    with _archive(path) as archive, tempfile.TemporaryDirectory() as room:
        about = _architecture(archive, path)
        place = os.path.join(room, _WEIGHTS)
        if _WEIGHTS not in archive.namelist():
            raise UnsupportedError(
                f"'{path}' has no {_WEIGHTS} (sharded weights are not supported)"
            )
        size = archive.getinfo(_WEIGHTS).file_size
        budget.check(size, _WEIGHTS)
        if size > shutil.disk_usage(room).free:
            raise LimitError(
                f"{_WEIGHTS} of '{path}' needs {size} bytes in '{tempfile.gettempdir()}', "
                "which has less space (set TMPDIR)"
            )
        try:
            with archive.open(_WEIGHTS) as inside, open(place, "wb") as out:
                shutil.copyfileobj(inside, out, 1 << 20)
        except _BAD_ZIP as error:
            raise CorruptError(f"cannot unpack '{path}': {error}") from None
        return Found(read_h5(place, budget).tree, {"keras": about})


def _archive(path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except _BAD_ZIP as error:
        raise CorruptError(f"'{path}' is not a .keras file: {error}") from None


def _architecture(archive: zipfile.ZipFile, path: str) -> dict[str, Any]:
    names = archive.namelist()
    assets = [name for name in names if name.startswith("assets/") and not name.endswith("/")]
    if assets:
        raise UnsupportedError(
            f"'{path}' contains additional files ({assets[0]}), which a store cannot hold"
        )
    found = {}
    for name in (_CONFIG, _ABOUT):
        if name not in names:
            raise CorruptError(f"'{path}' has no {name}")
        size = archive.getinfo(name).file_size
        if size > _TEXT_BYTES:
            raise LimitError(f"{name} of '{path}' has {size} bytes, but the limit is {_TEXT_BYTES}")
        found[name.removesuffix(".json")] = _json(archive, name, path)
    return found


def _json(archive: zipfile.ZipFile, name: str, path: str) -> Any:
    """A value that can be written again: not nested too deeply, and without unpaired surrogates."""
    try:
        value = json.loads(archive.read(name))
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise CorruptError(f"{name} of '{path}' is nested too deeply") from None
    except (*_BAD_ZIP, ValueError) as error:
        raise CorruptError(f"cannot read {name} of '{path}': {error}") from None
    todo = [(value, 0)]
    while todo:
        one, depth = todo.pop()
        if depth > _DEPTH_MOST:
            raise CorruptError(f"{name} of '{path}' is nested more than {_DEPTH_MOST} deep")
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        todo.extend((item, depth + 1) for item in inside)
    return value


def write_keras(arrays: Mapping[str, Any], meta: Any, path: str, like: Any) -> None:
    """Writes a file for keras.models.load_model."""
    about = meta.get("keras") if isinstance(meta, dict) else None
    if like is not None:
        with _archive(os.fspath(like)) as other:
            about = _architecture(other, os.fspath(like))
    if not isinstance(about, dict) or not {"config", "metadata"} <= set(about):
        raise UnsupportedError(
            "the store has the weights but not the architecture, which a .keras file "
            "needs (use --like FILE.keras to copy it from another file, or write "
            ".weights.h5)"
        )
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as room:
        weights = os.path.join(room, _WEIGHTS)
        write_h5(arrays, weights)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(_ABOUT, json.dumps(about["metadata"]))
            archive.writestr(_CONFIG, json.dumps(about["config"]))
            archive.write(weights, _WEIGHTS)

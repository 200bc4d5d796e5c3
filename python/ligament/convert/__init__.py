"""Imports and exports files of other formats: `.pt`, `.keras`, `.h5`, folders of
torch.distributed.checkpoint.

Nothing in a file is executed. `ligament cp` and `python -m ligament.convert` use it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .. import tensors
from ..errors import (
    CorruptError,
    Error,
    ExistsError,
    InvalidError,
    LimitError,
    NotFoundError,
    UnsupportedError,
    missing,
)
from ..export import renamed
from ..load import Loader
from ..store import Model, Store
from .memory_budget import Budget, check_tree

__all__ = ["Converted", "convert", "kind_of"]


def __dir__() -> list[str]:
    return sorted(__all__)


_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_KERAS, _H5 = (".keras",), (".h5", ".hdf5")
_CLI = (".safetensors", ".npz", ".safetensors.index.json")


@dataclass(frozen=True)
class Found:
    """The contents of a file: a tree of tensors and plain values, and additional data to store."""

    tree: Any
    meta: Any = None


@dataclass(frozen=True)
class Converted:
    """The result of `convert`."""

    source: str
    target: str
    tensors: int
    bytes: int


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    replace: bool = False,
    like: str | os.PathLike[str] | None = None,
    tags: Mapping[str, str] | None = None,
    metrics: Mapping[str, float] | None = None,
    limit: int | None = None,
    part: str | None = None,
    strip: str = "",
    rename: Mapping[str, str] | None = None,
) -> Converted:
    """Copies a model from a file or folder to a store, `URI#name`, or the other way round. The
    suffix determines the format; a folder without one is written by torch.distributed.checkpoint.
    `replace` replaces an existing target. `like` is a .keras file with the architecture, for
    .keras. `limit` is the number of bytes that the tensors of a file may need in total; None means
    100 times the file's size, limited to half of the free memory but at least the size of the file.
    `part`, `strip` and `rename` select and rename tensors as in `Store.export`. A target
    `URI#prefix/` is completed by the file's name without its suffix, as is a plain `URI`."""
    here, there = os.fspath(source), os.fspath(target)
    if "#" in here and "#" in there:
        raise InvalidError("both SOURCE and TARGET are models of stores: use `ligament cp`")
    if "#" not in here and "#" not in there and kind_of(there) is not None:
        raise InvalidError(f"neither '{here}' nor '{there}' is a model of a store (URI#name)")
    for place in (here, there):
        if place.endswith(_CLI):
            raise UnsupportedError(f"'{place}': use `ligament cp` for this format")
    if "#" in here:
        if tags or metrics:
            raise InvalidError("tags and metrics can be added only to models of a store")
        return _export(here, there, replace, like, (part, strip, rename))
    found = _read(here, limit)
    collected = tensors.collect(found.tree, with_frameworks=True)
    if part or strip or rename:
        collected = _renamed(collected, part, strip, rename)
    uri, _, _ = there.partition("#")
    with Store(uri) as store:
        model: Model = store._save(
            model_name(here, there),
            collected,
            tags=tags,
            metrics=metrics,
            meta=found.meta,
            replace=replace,
        )
        return Converted(here, f"{uri}#{model.name}", len(model.tensors), model.bytes)


def _renamed(
    found: tensors.Collected, part: str | None, strip: str, rename: Mapping[str, str] | None
) -> tensors.Collected:
    """Without the structure, whose names are not valid any more."""
    names = renamed(found.names, part, strip, rename)
    at = {name: i for i, name in enumerate(found.names)}
    return tensors.Collected(list(names.values()), [found.values[at[name]] for name in names])


def _read(source: str, limit: int | None) -> Found:
    """Converts every error of a reader, also for hostile or broken files, into an error message."""
    kind = kind_of(source)
    if not os.path.exists(source):
        raise NotFoundError(f"'{source}' does not exist")
    if kind is None:
        raise UnsupportedError(
            f"'{source}' has an unknown format (known: "
            f"{', '.join(_TORCH + _KERAS + _H5)}, a folder of "
            "torch.distributed.checkpoint)"
        )
    budget = Budget(source, _size(source), limit)
    try:
        found = _reader(kind)(source, budget)
        check_tree(found.tree, Budget(source, budget.size, limit))
        return found
    except (Error, OSError):
        raise
    except ImportError as error:
        raise missing(error, f"'{source}'") from None
    except MemoryError:
        raise LimitError(f"'{source}' does not fit into memory") from None
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise CorruptError(f"cannot read '{source}': {type(error).__name__}: {said}") from None


def _size(source: str) -> int:
    """The size of a file, or of the files in a folder."""
    if not os.path.isdir(source):
        return os.path.getsize(source)
    with os.scandir(source) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())


def _export(
    source: str,
    target: str,
    replace: bool,
    like: str | os.PathLike[str] | None,
    choice: tuple[str | None, str, Mapping[str, str] | None],
) -> Converted:
    uri, _, name = source.partition("#")
    kind = kind_of(target) or "dcp"
    if kind != "keras" and like is not None:
        raise InvalidError("`like` applies only to .keras files")
    with Store(uri, "r") as store, _place(target, replace) as temporary:
        model = store[name]
        names = renamed(Loader(store._resolve(model)).names, *choice) if any(choice) else None
        try:
            _write(kind, store, model, temporary, like, names)
        except ImportError as error:
            raise missing(error, f"'{target}'") from None
        written = [model.tensors[name].bytes for name in names or model.tensors]
        return Converted(f"{uri}#{name}", target, len(written), sum(written))


def kind_of(path: str) -> str | None:
    """The reader for a path; None for a store and for formats of `ligament cp`."""
    if "#" in path or "://" in path:
        return None
    if os.path.isdir(path):  # a store may have any name
        holds = [os.path.isfile(os.path.join(path, name)) for name in (".metadata", "ligament")]
        return "dcp" if holds == [True, False] else None
    for ends, kind in ((_TORCH, "torch"), (_KERAS, "keras"), (_H5, "h5")):
        if path.endswith(ends):
            return kind
    return None


def _reader(kind: str) -> Callable[[str, Budget], Found]:
    if kind == "torch":
        from .torch_files import read_torch

        return read_torch
    if kind == "dcp":
        from .dcp_folder import read_folder

        return read_folder
    from .keras_files import read_h5, read_keras

    return read_keras if kind == "keras" else read_h5


def _write(
    kind: str, store: Store, model: Model, path: str, like: Any, names: dict[str, str] | None
) -> None:
    """Writes everything as it was saved, or with `names` the tensors under new names."""
    if kind in ("torch", "dcp"):
        from .torch_files import write_folder, write_torch

        if names is None:
            tree = store.load(model, framework="torch", map=True)
        else:
            tree = _flat(store, model, names, "torch")
        (write_torch if kind == "torch" else write_folder)(tree, path)
        return
    from .keras_files import write_h5, write_keras

    if names is None:
        arrays = store.load(model, map=True)
        flat = {name: _at(arrays, name) for name in Loader(store._resolve(model)).names}
    else:
        flat = _flat(store, model, names, None)
    if kind == "keras":
        write_keras(flat, model.meta, path, like)
    else:
        write_h5(flat, path)


def _flat(
    store: Store, model: Model, names: dict[str, str], framework: str | None
) -> dict[str, Any]:
    made = Loader(store._resolve(model))._mapped(list(names), framework, None)
    return {new: made[old] for old, new in names.items()}


def _at(arrays: Any, name: str) -> Any:
    if not isinstance(arrays, dict) or name not in arrays:
        raise UnsupportedError(
            f"'{name}' is part of a tree, but an .h5 file can only contain named tensors"
        )
    return arrays[name]


def model_name(source: str, target: str) -> str:
    """The name that the model of a file gets in a store."""
    _, _, name = target.partition("#")
    return name if name and not name.endswith("/") else name + _stem(source)


def _stem(path: str) -> str:
    name = os.path.basename(os.path.abspath(path))
    for end in (".weights.h5", *_TORCH, *_KERAS, *_H5):
        if name.endswith(end) and name != end:
            return name.removesuffix(end)
    return name


@contextmanager
def _place(target: str, replace: bool) -> Iterator[str]:
    """A temporary file next to the target, which replaces it when everything is written and
    synced."""
    if os.path.lexists(target) and not replace:
        raise ExistsError(f"'{target}' already exists (use --replace to overwrite it)")
    if os.path.isdir(target) and os.listdir(target) and kind_of(target) != "dcp":
        raise ExistsError(
            f"'{target}' is not a torch.distributed.checkpoint folder (only those are replaced: "
            "move it away)"
        )
    folder = os.path.dirname(os.path.abspath(target))
    with tempfile.TemporaryDirectory(prefix=".ligament-", dir=folder) as room:
        temporary = os.path.join(room, os.path.basename(os.path.abspath(target)))
        yield temporary
        _sync(temporary)
        if os.path.isdir(target) and not os.path.islink(target):
            os.rename(target, os.path.join(room, "before"))
        elif os.path.isdir(temporary) and os.path.lexists(target):
            os.unlink(target)
        os.rename(temporary, target)
        _sync_one(folder)


def _sync(path: str) -> None:
    if os.path.isdir(path):
        for name in os.listdir(path):
            _sync(os.path.join(path, name))
    _sync_one(path)


def _sync_one(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

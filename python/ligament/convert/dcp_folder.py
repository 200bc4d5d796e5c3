"""Reads a folder of torch.distributed.checkpoint without unpickling: `.metadata` with our own
reader, tensors with torch's `weights_only` reader."""

from __future__ import annotations

import io
import math
import os
from typing import Any

from ..errors import CorruptError, UnsupportedError
from . import Found
from .memory_budget import Budget
from .pickled import Name, Record, read
from .torch_files import weights_only

_METADATA = ".metadata"
_METADATA_BYTES = 256 << 20  # some twenty times as much in memory


def read_folder(path: str, budget: Budget) -> Found:
    """Whole tensors, regardless of the chunks they were saved in, in their original structure."""
    place = os.path.join(path, _METADATA)
    if os.path.getsize(place) > _METADATA_BYTES:
        raise CorruptError(f"'{place}' is larger than 256 MiB")
    with open(place, "rb") as file:
        root = read(file.read(), place)
    if not isinstance(root, Record) or not _is(root.kind, "Metadata"):
        raise CorruptError(f"'{place}' was not written by torch.distributed.checkpoint")
    folder = _Folder(path, root, budget)
    return Found(_nested(folder.values(), root.get("planner_data")))


def _is(kind: Any, word: str) -> bool:
    return isinstance(kind, Name) and kind.text.rpartition(".")[2] == word


def _numbers(size: Any) -> tuple[int, ...]:
    """The numbers of a torch.Size."""
    items = size.args[0] if isinstance(size, Record) and size.args else size
    if items is None:
        return ()
    if not isinstance(items, (tuple, list)) or not all(
        type(n) is int and 0 <= n < 1 << 62 for n in items
    ):
        raise CorruptError("invalid size")
    return tuple(items)


class _Folder:
    def __init__(self, path: str, root: Record, budget: Budget) -> None:
        self.path = path
        self.budget = budget
        self.described = root.get("state_dict_metadata")
        stored = root.get("storage_data")
        if not isinstance(self.described, dict) or not isinstance(stored, dict):
            raise CorruptError(f"the metadata of '{path}' lists no tensors")
        self.stored: dict[tuple[str, tuple[int, ...]], Record] = {}
        for index, info in stored.items():
            if not isinstance(index, Record) or not isinstance(info, Record):
                raise CorruptError(f"invalid metadata of '{path}'")
            self.stored[str(index.get("fqn")), _numbers(index.get("offset"))] = info

    def values(self) -> dict[str, Any]:
        found = {}
        for name, one in self.described.items():
            if not isinstance(name, str) or not isinstance(one, Record):
                raise CorruptError(f"invalid metadata of '{self.path}'")
            if _is(one.kind, "TensorStorageMetadata"):
                found[name] = self._tensor(name, one)
            else:
                found[name] = self._piece(name, ())
        return found

    def _tensor(self, name: str, one: Record) -> Any:
        import torch

        shape, chunks = _numbers(one.get("size")), one.get("chunks")
        properties = one.get("properties")
        dtype = properties.state[0] if isinstance(properties, Record) and properties.state else None
        kind = getattr(torch, _word(dtype), None)
        if not isinstance(kind, torch.dtype) or not isinstance(chunks, list):
            raise CorruptError(f"'{name}' of '{self.path}' has no dtype or no chunks")
        boxes = [(_numbers(c.get("offsets")), _numbers(c.get("sizes"))) for c in chunks]
        if sum(math.prod(sizes) for _, sizes in boxes) != math.prod(shape):
            raise CorruptError(f"the chunks of '{name}' of '{self.path}' do not cover it")
        pieces = [(start, sizes, self._piece(name, start)) for start, sizes in boxes]
        for start, sizes, piece in pieces:
            self._check(name, piece, kind, sizes)
            if len(start) != len(shape) or any(
                a + n > whole for a, n, whole in zip(start, sizes, shape, strict=True)
            ):
                raise CorruptError(f"a chunk of '{name}' of '{self.path}' is outside the tensor")
        if len(pieces) == 1:
            return pieces[0][2]
        whole, filled = torch.empty(shape, dtype=kind), torch.zeros(shape, dtype=torch.bool)
        for start, sizes, piece in pieces:
            box = tuple(slice(a, a + n) for a, n in zip(start, sizes, strict=True))
            whole[box].copy_(piece)
            filled[box] = True
        if not filled.all():  # as many elements as it has, some of them twice
            raise CorruptError(f"the chunks of '{name}' of '{self.path}' do not cover it")
        return whole

    def _check(self, name: str, piece: Any, kind: Any, sizes: tuple[int, ...]) -> None:
        import torch

        if (
            not isinstance(piece, torch.Tensor)
            or piece.dtype != kind
            or tuple(piece.shape) != sizes
        ):
            raise CorruptError(
                f"a chunk of '{name}' of '{self.path}' does not match its description"
            )

    def _piece(self, name: str, start: tuple[int, ...]) -> Any:
        info = self.stored.get((name, start))
        if info is None:
            raise CorruptError(f"'{name}' of '{self.path}' is in no file")
        file, offset, length = (info.get(w) for w in ("relative_path", "offset", "length"))
        if not isinstance(file, str) or os.path.basename(file) != file or file in ("", ".", ".."):
            raise CorruptError(f"'{name}' is in no file of '{self.path}'")
        if info.get("transform_descriptors"):
            raise UnsupportedError(f"'{name}' of '{self.path}' was transformed when written")
        place = os.path.join(self.path, file)
        if not os.path.isfile(place):
            raise CorruptError(f"'{place}', which contains '{name}', does not exist")
        size = os.path.getsize(place)
        if not all(type(n) is int and 0 <= n <= size for n in (offset, length)) or (
            offset + length > size
        ):
            raise CorruptError(f"'{name}' is outside '{place}'")
        self.budget.take(length, f"'{name}'")  # many may refer to the same place
        with open(place, "rb") as opened:
            opened.seek(offset)
            return weights_only(io.BytesIO(opened.read(length)), f"{place}: {name}")


def _word(dtype: Any) -> str:
    return dtype.text.removeprefix("torch.") if isinstance(dtype, Name) else ""


def _nested(values: dict[str, Any], paths: Any) -> Any:
    """The structure that the planner flattened: strings are keys of dicts, numbers are indexes of
    lists."""
    if not isinstance(paths, dict):
        return values
    tree: dict[Any, Any] = {}
    for name, value in values.items():
        path = paths.get(name, (name,))
        if not isinstance(path, tuple) or not path or len(path) > 100:
            raise CorruptError(f"invalid path of '{name}'")
        at = tree
        for key in path[:-1]:
            at = at.setdefault(_key(key, name), {})
            if not isinstance(at, dict):
                raise CorruptError(
                    f"the path of '{name}' passes through a value that is not a container"
                )
        at[_key(path[-1], name)] = value
    return _lists(tree)


def _key(key: Any, name: str) -> Any:
    if not isinstance(key, (str, int)):
        raise CorruptError(f"invalid path of '{name}'")
    return key


def _lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    made = {key: _lists(item) for key, item in tree.items()}
    if made and all(isinstance(key, int) for key in made):
        return [made[key] for key in sorted(made)]
    return made

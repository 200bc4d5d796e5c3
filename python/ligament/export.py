"""Exports a stored model as `.safetensors`, or as a folder that `from_pretrained` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import ExistsError, InvalidError, NotFoundError, UnsupportedError
from .load import FILES, Loader
from .tensors import name_of

if TYPE_CHECKING:
    from . import _core

SHARD_BYTES = 5 << 30

_DTYPES = {
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
}


# --- names --------------------------------------------------------------------------------------


def renamed(
    names: Iterable[str],
    part: str | None = None,
    strip: str = "",
    rename: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The new name of each exported tensor: only those below `part`, without that prefix; then
    without the prefix `strip`; then renamed by the first entry of `rename` that equals the name or
    precedes a '.' or '/' in it."""
    kept = {name: name for name in names}
    if part:
        below = {name: _below(name, part) for name in kept}
        parts = list(dict.fromkeys(name.replace("/", ".").partition(".")[0] for name in kept))
        kept = {name: rest.lstrip("./") or name for name, rest in below.items() if rest is not None}
        if not kept:
            raise NotFoundError(f"the model has no part '{part}' (parts: {', '.join(parts)})")
    if strip:
        if not any(name.startswith(strip) for name in kept.values()):
            raise NotFoundError(f"no tensor name begins with '{strip}'")
        kept = {name: new.removeprefix(strip) or new for name, new in kept.items()}
    for old, new in (rename or {}).items():
        if all(_below(name, old) is None for name in kept.values()):
            raise NotFoundError(f"no tensor is named '{old}' or is below it")
        if not isinstance(new, str):
            raise InvalidError(f"rename={{{old!r}: {new!r}}}: names are strings")
    kept = {name: _first(new, rename or {}) for name, new in kept.items()}
    _refuse_doubles(kept)
    return kept


def _below(name: str, prefix: str) -> str | None:
    rest = name.removeprefix(prefix)
    if not name.startswith(prefix):
        return None
    return rest if not rest or rest[0] in "./" or prefix[-1] in "./" else None


def _first(name: str, rename: Mapping[str, str]) -> str:
    for old, new in rename.items():
        rest = _below(name, old)
        if rest is not None:
            return new + rest
    return name


def _refuse_doubles(kept: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for old, new in kept.items():
        if seen.setdefault(new, old) != old:
            raise InvalidError(f"'{seen[new]}' and '{old}' would both be named '{new}'")


# --- files --------------------------------------------------------------------------------------


@dataclass
class _Tensor:
    name: str
    dtype: str
    shape: list[int]
    memory: Any  # bytes in row-major order


def export(
    ref: _core.Ref,
    path: str,
    names: Mapping[str, str],
    shard_bytes: int = SHARD_BYTES,
    replace: bool = False,
) -> None:
    """Writes the tensors under their new names: to one file if the path ends in .safetensors, else
    to a folder, with the files that came with the model."""
    loader = Loader(ref)
    view = ref.map(False, True)
    found = [_tensor(loader, view, old, new) for old, new in names.items()]
    changed = any(old != new for old, new in names.items()) or len(names) < len(loader.names)
    metadata = _metadata(ref.model, not changed)
    if path.endswith(".safetensors"):
        _write_file(path, found, metadata, replace)
        return
    os.makedirs(path, exist_ok=True)
    for name, place in loader.files.items():
        _write_beside(path, name, view.memory(place), replace)
    _write_folder(path, found, {"format": "pt"} | metadata, shard_bytes, replace)


def _tensor(loader: Loader, view: _core.Model, old: str, new: str) -> _Tensor:
    _, code, shape, *_ = loader._row(old)
    dtype = _DTYPES.get(name_of(code))
    if dtype is None or new == "__metadata__" or (dtype == "F4" and not shape):
        raise UnsupportedError(f"'{new}' ({name_of(code)}) cannot be stored in .safetensors")
    sizes = list(shape)
    if dtype == "F4":
        sizes[-1] *= 2
    return _Tensor(new, dtype, sizes, view.memory(loader.index[old]))


def _metadata(model: _core.Model, whole: bool) -> dict[str, str]:
    """In the format of `ligament cp`."""
    made = dict(model.tags)
    if model.metrics:
        made["ligament.metrics"] = json.dumps(model.metrics)
    if model.meta:
        made["ligament.meta"] = model.meta
    if model.structure and whole:
        made["ligament.structure"] = model.structure
    return made


def _size(tensor: _Tensor) -> int:
    return memoryview(tensor.memory).nbytes


def _write_file(path: str, found: list[_Tensor], metadata: dict[str, str], replace: bool) -> None:
    # Wide elements first: without holes each tensor is then aligned to its elements.
    order = sorted(found, key=lambda tensor: -_width(tensor.dtype))
    begins, at = {}, 0
    for tensor in order:
        begins[tensor.name] = at
        at += _size(tensor)
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    for tensor in found:
        begin = begins[tensor.name]
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [begin, begin + _size(tensor)],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with _appearing(path, replace) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in order:
            file.write(memoryview(tensor.memory).cast("B"))


def _width(dtype: str) -> int:
    digits = "".join(c for c in dtype.split("_")[0] if c.isdigit())
    return int(digits) if digits else 8


def _write_folder(
    folder: str,
    found: list[_Tensor],
    metadata: dict[str, str],
    shard_bytes: int,
    replace: bool,
) -> None:
    """Writes a folder. The index is written last: without it the folder contains no model."""
    total = sum(map(_size, found))
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index) and not replace:
        raise ExistsError(f"'{index}' already exists (use replace=True to overwrite it)")
    if total <= shard_bytes:
        _write_file(os.path.join(folder, "model.safetensors"), found, metadata, replace)
        if os.path.exists(index):
            os.unlink(index)
        return
    shards: list[list[_Tensor]] = [[]]
    used = 0
    for tensor in found:
        if shards[-1] and used + _size(tensor) > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append(tensor)
        used += _size(tensor)
    where: dict[str, str] = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        _write_file(os.path.join(folder, name), shard, metadata, replace)
        where |= {tensor.name: name for tensor in shard}
    with _appearing(index, replace) as file:
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2)
        file.write(text.encode())


def _write_beside(folder: str, name: str, memory: Any, replace: bool) -> None:
    if not name or "/" in name or name.startswith("."):
        raise InvalidError(f"invalid name of a file stored with a model: '{name}'")
    path = os.path.join(folder, name)
    if replace or not os.path.exists(path):
        with _appearing(path, True) as file:
            file.write(memory)


@contextmanager
def _appearing(path: str, replace: bool) -> Iterator[Any]:
    """A file that appears atomically, complete and synced."""
    if os.path.lexists(path) and not replace:
        raise ExistsError(f"'{path}' already exists (use replace=True to overwrite it)")
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".ligament-{os.getpid()}-{name}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


__all__ = ["FILES", "SHARD_BYTES", "export", "renamed"]

"""Archives of NumPy for `ligament`, which runs this module in a child process (cli/python.h).

    python -m ligament.convert.npz read PATH LIMIT
    python -m ligament.convert.npz write PATH

Standard input is a socket. `read` sends the positions of the arrays of PATH through it; compressed
arrays are unpacked to standard output, a file, and may use LIMIT bytes in total (0: the default of
memory_budget.py). `write` receives a line of JSON and the elements of the tensors and writes the
archive PATH to standard output. A failure is reported as {"status", "error"}. No pickle is read."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import struct
import sys
import warnings
import zipfile
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from ..errors import BY_STATUS, CorruptError, Error, UnsupportedError
from .memory_budget import Budget

_DTYPES = (
    "bool", "int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_NAMES = {np.dtype(name).str: name for name in _DTYPES}
_VERSIONS = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,  # differs in the names of fields, which are refused anyway
}
_HEADER_BYTES = 64 << 10
_LOCAL = struct.Struct("<26xHH")
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Header:
    dtype: str
    shape: tuple[int, ...]
    fortran: bool
    bytes: int  # of the header


# --- reading ------------------------------------------------------------------------------------


def read(path: str, limit: int, unpacked: BinaryIO) -> list[dict[str, Any]]:
    """The positions of the arrays: in the archive, or unpacked. All checksums are verified."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        budget = Budget(path, size, limit or None)
        try:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
                # Overlapping entries would turn a small file into terabytes.
                if sum(info.compress_size for info in infos) > size:
                    raise CorruptError("total size of the entries exceeds the file")
                return [_array(archive, file, info, budget, unpacked) for info in infos]
        except CorruptError as error:
            raise CorruptError(f"'{path}' is not a valid .npz file: {error}") from None
        except (Error, MemoryError):
            raise
        except Exception as error:  # a hostile file may make zipfile raise anything
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a negative offset
                raise
            said = " ".join(str(error).split())[:300]
            raise CorruptError(f"'{path}' is not a valid .npz file: {said}") from None


def _array(
    archive: zipfile.ZipFile,
    file: BinaryIO,
    info: zipfile.ZipInfo,
    budget: Budget,
    unpacked: BinaryIO,
) -> dict[str, Any]:
    name = _name(info, budget.source)
    packed = info.compress_type != zipfile.ZIP_STORED
    if not packed and info.file_size != info.compress_size:
        raise CorruptError(f"'{name}' is stored with two different sizes")
    with archive.open(info) as entry:
        start = entry.read(_HEADER_BYTES)
        header = _header(start, name)
        size = math.prod(header.shape) * np.dtype(header.dtype).itemsize
        if size != info.file_size - header.bytes:
            raise CorruptError(f"'{name}': shape does not match the size of the data")
        where = {"offset": _offset(file, info) + header.bytes, "unpacked": False}
        if packed:
            budget.take(size, f"'{name}'")
            where = {"offset": unpacked.tell(), "unpacked": True}
            unpacked.write(start[header.bytes :])
        done = len(start)
        while piece := entry.read(_PIECE_BYTES):  # to the end, where the checksum is compared
            done += len(piece)
            if packed:
                unpacked.write(piece)
    if done != info.file_size:
        raise CorruptError(f"'{name}' is truncated")
    shape, fortran = header.shape, header.fortran and len(header.shape) > 1
    return {"name": name, "dtype": header.dtype, "shape": shape, "fortran": fortran, **where}


def _name(info: zipfile.ZipInfo, source: str) -> str:
    """The name of a tensor; nothing is extracted under this name."""
    if "\0" in info.orig_filename:
        raise CorruptError("NUL in an entry name")
    name = info.filename.removesuffix(".npy")
    if name in ("", info.filename):
        raise UnsupportedError(
            f"'{source}' contains '{info.filename[:200]}', which is not a .npy array"
        )
    if info.flag_bits & 1:
        raise UnsupportedError(f"'{source}': '{name[:200]}' is encrypted")
    # The other methods take memory as their headers say.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnsupportedError(
            f"'{source}': '{name[:200]}' is compressed by method {info.compress_type}: "
            "use np.savez or np.savez_compressed"
        )
    return name


def _offset(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """The offset of an entry's first byte, after its local header."""
    local = os.pread(file.fileno(), _LOCAL.size, info.header_offset)
    name_bytes, extra_bytes = _LOCAL.unpack(local)
    return int(info.header_offset + _LOCAL.size + name_bytes + extra_bytes)


def _header(start: bytes, name: str) -> _Header:
    stream = io.BytesIO(start)
    try:
        version = npy.read_magic(stream)
        if version not in _VERSIONS:
            raise UnsupportedError(
                f"array '{name[:200]}' has unsupported .npy version {version[0]}.{version[1]}"
            )
        shape, fortran, dtype = _VERSIONS[version](stream)
    except Error:
        raise
    except Exception as error:  # NumPy evaluates literals, which may be anything
        said = " ".join(str(error).split())[:300]
        raise CorruptError(f"'{name[:200]}' is not a valid .npy array: {said}") from None
    if any(count < 0 for count in shape):
        raise CorruptError(f"'{name[:200]}' is not a valid .npy array: negative dimension")
    return _Header(_dtype(dtype, name), tuple(map(int, shape)), bool(fortran), stream.tell())


def _dtype(dtype: np.dtype[Any], name: str) -> str:
    if dtype.fields is not None or dtype.subdtype is not None:
        raise UnsupportedError(
            f"array '{name[:200]}' has a structured dtype: only plain numbers can be stored"
        )
    if dtype.str in _NAMES:
        return _NAMES[dtype.str]
    if dtype.newbyteorder("<").str in _NAMES:
        raise UnsupportedError(
            f"array '{name[:200]}' is big-endian ('{dtype.str}'): convert it with "
            "array.astype(array.dtype.newbyteorder('<'))"
        )
    raise UnsupportedError(
        f"array '{name[:200]}' has dtype '{dtype.str}': only numbers can be stored"
    )


# --- writing ------------------------------------------------------------------------------------


def write(stream: BinaryIO, file: BinaryIO) -> None:
    """Writes an archive. Entries are uncompressed and dated 1980, so that equal tensors give equal
    files."""
    tensors = json.loads(stream.readline())
    for tensor in tensors:
        if tensor["dtype"] not in _DTYPES:
            raise UnsupportedError(
                f"tensor '{tensor['name'][:200]}' has dtype {tensor['dtype']}, which NumPy does "
                "not support (use .safetensors instead)"
            )
    with zipfile.ZipFile(file, "w") as archive:
        for tensor in tensors:
            _write_array(archive, tensor, stream)


def _write_array(archive: zipfile.ZipFile, tensor: dict[str, Any], stream: BinaryIO) -> None:
    about = {
        "descr": np.dtype(tensor["dtype"]).str,
        "fortran_order": False,
        "shape": tuple(tensor["shape"]),
    }
    header = io.BytesIO()
    npy.write_array_header_1_0(header, about)
    info = zipfile.ZipInfo(f"{tensor['name']}.npy")
    info.file_size = len(header.getvalue()) + tensor["bytes"]
    info.external_attr = 0o100644 << 16
    with archive.open(info, "w") as entry:
        entry.write(header.getvalue())
        left = tensor["bytes"]
        while left > 0:
            piece = stream.read(min(left, _PIECE_BYTES))
            if not piece:
                raise CorruptError("the tensor data is truncated")
            entry.write(piece)
            left -= len(piece)


# --- the child process --------------------------------------------------------------------------


def _do(words: list[str]) -> Any:
    with open(0, "rb", _PIECE_BYTES, closefd=False) as stream, open(1, "r+b", closefd=False) as out:
        if words[0] == "write":
            return write(stream, out)
        return {"tensors": read(words[1], int(words[2]), out)}


def _answer(words: list[str]) -> Any:
    try:
        return _do(words) or {}
    except Error as error:
        status = next(n for n, kind in BY_STATUS.items() if isinstance(error, kind))
        return {"status": status, "error": str(error)}
    except OSError as error:
        return {"status": 5, "error": f"cannot {words[0]} '{words[1]}': {error.strerror}"}
    except MemoryError:
        return {"status": 4, "error": f"out of memory for '{words[1]}'"}


def main(words: list[str]) -> int:
    """Runs the command given by the arguments and sends the reply."""
    warnings.simplefilter("ignore")  # NumPy's, about headers
    answer = json.dumps(_answer(words)).encode()
    with open(0, "wb", closefd=False) as reply:
        reply.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

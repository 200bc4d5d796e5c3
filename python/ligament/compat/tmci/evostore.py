"""EvoStore's C library in the form that its scripts load: they declare no argument types, and pass
NumPy's and ctypes' numbers, bytes or str."""

from __future__ import annotations

import ctypes
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ligament import plugins
from ligament.errors import BY_STATUS, InvalidError, NotFoundError

PATH = Path(__file__).resolve().parents[2] / "lib" / "libligament_evostore.so"
BACKEND = "evostore"  # what the library registers as

_Numbers = ctypes.POINTER(ctypes.c_uint64)


def number(value: Any) -> int:
    """A model's, layer's or tensor's number: int, NumPy's, or ctypes'."""
    value = getattr(value, "value", value) if isinstance(value, ctypes._SimpleCData) else value
    try:
        whole = operator.index(value)
    except TypeError:
        raise InvalidError(f"{value!r} is not a number of 64 bits") from None
    if not -(1 << 63) <= whole < 1 << 64:
        raise InvalidError(f"{whole} does not fit into 64 bits")
    return whole & ((1 << 64) - 1)


def numbers(values: Sequence[Any]) -> Any:
    """An array of numbers."""
    return (ctypes.c_uint64 * len(values))(*map(number, values))


class _Id:
    @classmethod
    def from_param(cls, value: Any) -> Any:
        return ctypes.c_uint64(number(value))


class _Text:
    @classmethod
    def from_param(cls, value: Any) -> Any:
        if isinstance(value, ctypes.c_char_p):
            return value
        return ctypes.c_char_p(value.encode() if isinstance(value, str) else value)


_ARGUMENTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "get_prefix": (ctypes.c_int, (_Numbers, ctypes.c_int, _Numbers, _Numbers)),
    "get_composition": (ctypes.c_int, (_Id, _Numbers, _Numbers, ctypes.c_int)),
    "store_layers": (ctypes.c_bool, (_Id, _Numbers, _Numbers, ctypes.c_void_p, ctypes.c_int)),
    "read_layers": (ctypes.c_bool, (_Id, _Numbers, ctypes.c_void_p, ctypes.c_int)),
    "update_ref_counter": (ctypes.c_bool, (_Id, ctypes.c_int)),
    "set_servers": (ctypes.c_int, (_Text, ctypes.c_size_t)),
    "shutdown": (ctypes.c_int, ()),
    "get_num_time_stamps": (ctypes.c_int, ()),
    "get_num_time_stamps_by_key": (ctypes.c_int, (_Text,)),
    "clear_time_stamps": (None, ()),
    "clear_time_stamps_by_key": (ctypes.c_bool, (_Text,)),
    "lig_evostore_stored": (
        ctypes.c_int,
        (_Id, _Numbers, _Numbers, ctypes.c_int, ctypes.POINTER(ctypes.c_ubyte)),
    ),
    "lig_evostore_status": (ctypes.c_int, ()),
    "lig_error_text": (ctypes.c_char_p, ()),
}
_NOT_FOUND = next(status for status, kind in BY_STATUS.items() if kind is NotFoundError)
_PLAIN = ("lig_evostore_status", "lig_error_text")
_META: Any = (
    _Id,
    _Numbers,
    ctypes.c_int,
    _Numbers,
    _Numbers,
    _Numbers,
    ctypes.c_int,
    ctypes.c_float,
)


class Library(ctypes.CDLL):
    """The functions with their types. A call that fails raises; one that finds nothing returns what
    the original's does."""

    def __init__(self, path: str | os.PathLike[str] = PATH) -> None:
        super().__init__(os.fspath(path))
        self.backend = plugins.load(path)
        for name, (result, arguments) in _ARGUMENTS.items():
            function = getattr(self, name)
            function.restype, function.argtypes = result, arguments
            if name not in _PLAIN:
                function.errcheck = self._check
        self._publish, self._stamps = self["store_meta"], self["get_time_stamps"]
        self._stamps_of = self["get_time_stamps_by_key"]
        self._publish.restype, self._publish.argtypes = ctypes.c_bool, _META
        self._publish.errcheck = self._check
        by_key: Any = (_Numbers, _Text)
        self._stamps.argtypes, self._stamps_of.argtypes = (_Numbers,), by_key

    def _check(self, result: Any, function: Any, arguments: Any) -> Any:
        status = self.lig_evostore_status()
        absent = status == _NOT_FOUND and function is self.update_ref_counter
        if not status or absent:  # retiring a missing model is not an error
            return result
        raise BY_STATUS[status](self.lig_error_text().decode(errors="replace"))

    def store_meta(self, *arguments: Any) -> bool:
        """Publishes a model; the eighth argument, its quality, came with a later version."""
        none = () if len(arguments) > len(_META) - 1 else (float("nan"),)
        return bool(self._publish(*arguments, *none))

    def get_time_stamps(self, out: Any) -> int:
        """Fills the array up to its length."""
        return self._fill(out, self.get_num_time_stamps(), self._stamps)

    def get_time_stamps_by_key(self, out: Any, key: str | bytes) -> int:
        """The same for one function; -1 if it was never called."""
        count: int = self.get_num_time_stamps_by_key(key)
        return self._fill(out, count, lambda ts: self._stamps_of(ts, key))

    def _fill(self, out: Any, count: int, call: Any) -> int:
        if count < 0:
            return count
        every = (ctypes.c_uint64 * max(count, 1))()
        fits: int = min(count, call(every), len(out))
        out[:fits] = every[:fits]
        return fits

    def stored(self, id: Any, lids: Sequence[Any], owners: Sequence[Any]) -> list[bool]:
        """Which of these tensors have bytes: a model can be announced without its weights."""
        flags = (ctypes.c_ubyte * max(len(lids), 1))()
        self.lig_evostore_stored(id, numbers(lids), numbers(owners), len(lids), flags)
        return [bool(flag) for flag in flags[: len(lids)]]

    def open(self, places: Sequence[str]) -> None:
        """Sets the stores."""
        text = b"\0".join(os.fsencode(place) for place in places)
        self.set_servers(text, len(text))

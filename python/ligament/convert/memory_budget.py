"""Limits the memory that all tensors of a file of another format may need."""

from __future__ import annotations

import os
from typing import Any

from ..errors import CorruptError, LimitError

_LEAST = 16 << 20
_RATIO = 100  # maximum ratio of unpacked bytes to the size of the file
_DEPTH_MOST = 100
_ITEMS_MOST = 2_000_000


class Budget:
    """The bytes that may be read into memory for one source, and how many are left."""

    def __init__(self, source: str, size: int, limit: int | None = None) -> None:
        self.source = source
        self.size = size
        self.limit = _default(size) if limit is None else limit
        self.left = self.limit

    def check(self, count: int, what: str) -> None:
        """Raises LimitError if that many more bytes exceed the limit."""
        if count > self.left:
            raise LimitError(
                f"{what} of '{self.source}' needs {count} bytes, but only {self.left} are left of "
                f"the {self.limit} bytes allowed for a file of {self.size} bytes (use --limit to "
                "allow more if you trust the file)"
            )

    def take(self, count: int, what: str) -> None:
        """The same, and reserves the bytes."""
        self.check(count, what)
        self.left -= count


def _default(size: int) -> int:
    """A broken or hostile file must not use more than half of the free memory. An uncompressed file
    always fits: its tensors need no more than its own size."""
    return max(min(max(_LEAST, _RATIO * size), _available() // 2), size)


def _available() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def check_tree(tree: Any, budget: Budget) -> None:
    """Checks the result of a reader: tensors that exceed the budget together (views that repeat
    their elements), endless nesting, or far more values than were written. Tensors with the same
    memory and layout count once."""
    todo: list[tuple[Any, int]] = [(tree, 0)]
    seen: set[Any] = set()
    items = 0
    while todo:
        value, depth = todo.pop()
        items += 1
        if depth > _DEPTH_MOST or items > _ITEMS_MOST:
            raise CorruptError(
                f"'{budget.source}' nests values more than {_DEPTH_MOST} deep, or has more than "
                f"{_ITEMS_MOST} of them"
            )
        if isinstance(value, dict):
            todo.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, (list, tuple)):
            todo.extend((item, depth + 1) for item in value)
        elif hasattr(value, "nbytes") and hasattr(value, "shape"):
            place = _place(value)
            if place not in seen:
                seen.add(place)
                budget.take(int(value.nbytes), "a tensor")


def _place(value: Any) -> Any:
    pointer = getattr(value, "data_ptr", None)
    if pointer is None:
        return id(value)
    try:
        return (pointer(), tuple(value.shape), value.stride(), value.dtype)
    except RuntimeError:  # a sparse tensor has none
        return id(value)

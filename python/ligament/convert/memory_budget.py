"""How much memory a file of another format may claim, all its tensors together."""

from __future__ import annotations

import os
from typing import Any

from ..errors import CorruptError, LimitError

_LEAST = 16 << 20
_RATIO = 100  # how much larger than its file what is unpacked from it may be
_DEPTH_MOST = 100
_ITEMS_MOST = 2_000_000


class Budget:
    """Bytes that may be read into memory for one source, and how many are left."""

    def __init__(self, source: str, size: int, limit: int | None = None) -> None:
        self.source = source
        self.size = size
        self.limit = _default(size) if limit is None else limit
        self.left = self.limit

    def check(self, count: int, what: str) -> None:
        """LimitError when that many bytes more are too many."""
        if count > self.left:
            raise LimitError(
                f"{what} of '{self.source}' claims {count} bytes, but only {self.left} are left of "
                f"the {self.limit} bytes that a file of {self.size} bytes may claim (use --limit "
                "to allow more if you trust the file)"
            )

    def take(self, count: int, what: str) -> None:
        """The same, and they are taken."""
        self.check(count, what)
        self.left -= count


def _default(size: int) -> int:
    """A broken or hostile file must not take more than half of the memory that is free. A file
    that is not packed always fits: its tensors need no more than it has itself."""
    return max(min(max(_LEAST, _RATIO * size), _available() // 2), size)


def _available() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def check_tree(tree: Any, budget: Budget) -> None:
    """What a reader has made: tensors that together say more than the budget (views that repeat
    their elements), values within each other without end, or far more of them than were written.
    Tensors that lie in the same memory in the same way count once."""
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

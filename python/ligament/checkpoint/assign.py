"""Who writes what: decided apart from writing, from what all ranks say that they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import MismatchError

_NAMED = 3

# What a rank says of a tensor: name, dtype, whole shape, start and shape of its box (None: it has
# all of it; []: nothing of it), bytes of its box, the number of the tensor that it is the same
# memory as (-1: none), and whether rank 0 is to write it where all have all of it.
Held = list[Any]


@dataclass(frozen=True)
class Box:
    """What is written once, whoever holds it."""

    start: tuple[int, ...] | None
    shape: tuple[int, ...] | None


def assign(held: list[list[Held]]) -> list[list[int]]:
    """For each rank the numbers of the tensors whose box it writes: every box by one of its
    holders, so that all write about as many bytes."""
    check(held)
    load = [0] * len(held)
    chosen: list[list[int]] = [[] for _ in held]
    boxes: list[tuple[int, int, Box, list[int]]] = []
    for number in range(len(held[0])):
        found: dict[Box, list[int]] = {}
        for rank, tensors in enumerate(held):
            for box in _box(tensors[number]):
                found.setdefault(box, []).append(rank)
        if not found or not any(_bytes(held[r][number]) for r in range(len(held))):
            found = {Box(None, None): [0]}  # without elements: somebody has to name it
        one = held[0][number]
        if one[3] is None and one[5] < 0 and one[6]:
            found = {Box(None, None): [0]}
        for box, ranks in found.items():
            boxes.append((_bytes(held[ranks[0]][number]), number, box, ranks))
    writer: dict[tuple[int, Box], int] = {}
    # What only one can write first, then the large before the small.
    for size, number, box, ranks in sorted(
        boxes, key=lambda b: (held[b[3][0]][b[1]][5] >= 0, len(b[3]) > 1, -b[0], b[1])
    ):
        tied = held[ranks[0]][number][5]
        rank = writer.get((tied, box), -1)
        if rank not in ranks:
            rank = min(ranks, key=lambda r: (load[r], r))
            load[rank] += size
        writer[number, box] = rank
        chosen[rank].append(number)
    return [sorted(numbers) for numbers in chosen]


def check(held: list[list[Held]]) -> None:
    """Raises unless all ranks hold boxes of the same tensors."""
    first = held[0]
    for rank, tensors in enumerate(held[1:], 1):
        ours, theirs = [t[0] for t in first], [t[0] for t in tensors]
        if ours != theirs:
            raise MismatchError(_names(ours, theirs, rank))
        for one, other in zip(first, tensors, strict=True):
            if one[1:3] != other[1:3]:
                raise MismatchError(
                    f"'{one[0]}' is {_said(one)} on rank 0 and {_said(other)} on rank {rank}"
                )
            if (one[3] is None) != (other[3] is None):
                whole, part = (0, rank) if one[3] is None else (rank, 0)
                raise MismatchError(
                    f"'{one[0]}' is a whole tensor on rank {whole} and distributed on rank {part}"
                )


def _box(held: Held) -> list[Box]:
    if held[3] is None:
        return [Box(None, None)]
    if not held[3] or held[4] == 0:
        return []
    start, shape = held[3]
    return [Box(tuple(start), tuple(shape))]


def _bytes(held: Held) -> int:
    size: int = held[4]
    return size


def _said(held: Held) -> str:
    return f"{held[1]} {list(held[2])}"


def _names(ours: list[str], theirs: list[str], rank: int) -> str:
    extra = [name for name in theirs if name not in set(ours)]
    lacking = [name for name in ours if name not in set(theirs)]
    if extra:
        return f"rank {rank} passes {_list(extra)}, which rank 0 does not"
    if lacking:
        return f"rank 0 passes {_list(lacking)}, which rank {rank} does not"
    return f"ranks 0 and {rank} pass the same tensors in another order"


def _list(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")

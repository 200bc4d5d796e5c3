"""Which rank writes what: a pure decision based on what all ranks hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import MismatchError
from ..plural import listed
from .replicas import ADVICE

# What a rank reports of a tensor: name, dtype, whole shape, start and shape of its box (None: it
# has all of it; []: nothing of it), bytes of its box, the number of the tensor whose memory it
# shares (-1: none), whether the first rank that has it writes it if all have all of it, and whether
# it belongs to a piece: a part of which other ranks hold other tensors.
Held = list[Any]


@dataclass(frozen=True)
class Box:
    """A part of a tensor that exactly one rank writes, even if several hold it."""

    start: tuple[int, ...] | None
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Written:
    """What one rank writes: the numbers of its tensors, each with its position in the model of all
    ranks, and the number of tensors of that model."""

    tensors: list[tuple[int, int]]
    count: int


def assign(held: list[list[Held]]) -> list[Written]:
    """What each rank writes: every box by one of its holders, so that all write about the same
    number of bytes."""
    check(held)
    numbers = [{one[0]: number for number, one in enumerate(tensors)} for tensors in held]
    names = _order(held)
    load = [0] * len(held)
    chosen: list[list[tuple[int, int]]] = [[] for _ in held]
    boxes: list[_Choice] = []
    for place, name in enumerate(names):
        boxes += _choices(
            place, {r: held[r][at[name]] for r, at in enumerate(numbers) if name in at}
        )
    places = {name: place for place, name in enumerate(names)}
    writer: dict[tuple[int, Box], int] = {}
    # Boxes with a single holder first, then large before small.
    for one in sorted(boxes, key=lambda b: (b.tie >= 0, len(b.ranks) > 1, -b.bytes, b.place)):
        first = one.ranks[0]
        tied = places[held[first][one.tie][0]] if one.tie >= 0 else -1
        rank = writer.get((tied, one.box), -1)
        if rank not in one.ranks:
            rank = min(one.ranks, key=lambda r: (load[r], r))
            load[rank] += one.bytes
        writer[one.place, one.box] = rank
        chosen[rank].append((numbers[rank][names[one.place]], one.place))
    return [Written(sorted(found), len(names)) for found in chosen]


def _order(held: list[list[Held]]) -> list[str]:
    """The names that all ranks hold together, part by part."""
    found = dict.fromkeys(one[0] for tensors in held for one in tensors)
    parts: dict[str, int] = {}
    for name in found:
        parts.setdefault(name.split(".", 1)[0], len(parts))
    return sorted(found, key=lambda name: parts[name.split(".", 1)[0]])


@dataclass(frozen=True)
class _Choice:
    """A box of a tensor of the model, and the ranks that can write it."""

    place: int
    box: Box
    ranks: list[int]
    bytes: int
    tie: int


def _choices(place: int, holders: dict[int, Held]) -> list[_Choice]:
    first = min(holders)
    found: dict[Box, list[int]] = {}
    for rank, one in holders.items():
        for box in _box(one):
            found.setdefault(box, []).append(rank)
    nothing = not any(_bytes(one) for one in holders.values())  # one rank has to name it
    one = holders[first]
    if not found or nothing or (one[3] is None and one[5] < 0 and one[6]):
        found = {Box(None, None): [first]}
    return [
        _Choice(place, box, ranks, _bytes(holders[ranks[0]]), holders[ranks[0]][5])
        for box, ranks in found.items()
    ]


def check(held: list[list[Held]]) -> None:
    """Raises unless all ranks hold boxes of the same tensors; for a tensor of a piece, the ranks
    that have it."""
    ours = [t[0] for t in held[0] if not t[7]]
    known: dict[str, tuple[int, Held]] = {}
    for rank, tensors in enumerate(held):
        theirs = [t[0] for t in tensors if not t[7]]
        if ours != theirs:
            raise MismatchError(_names(ours, theirs, rank))
        for other in tensors:
            first, one = known.setdefault(other[0], (rank, other))
            if one[1:3] != other[1:3]:
                raise MismatchError(
                    f"'{one[0]}' is {_said(one)} on rank {first} and {_said(other)} on rank {rank} "
                    f"({ADVICE})"
                )
            if (one[3] is None) != (other[3] is None):
                whole, part = (first, rank) if one[3] is None else (rank, first)
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
        return f"rank {rank} passes {listed(extra)}, which rank 0 does not ({ADVICE})"
    if lacking:
        return f"rank 0 passes {listed(lacking)}, which rank {rank} does not ({ADVICE})"
    return f"ranks 0 and {rank} pass the same tensors in a different order"

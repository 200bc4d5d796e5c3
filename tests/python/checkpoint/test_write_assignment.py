"""Who writes what, against what must hold for any layout."""

from __future__ import annotations

import random

import pytest
from ligament.checkpoint.write_assignment import assign
from ligament.errors import MismatchError


def held(
    name: str,
    rows: int,
    box: tuple[int, int] | None,
    tied: int = -1,
    lead: bool = False,
    piece: bool = False,
) -> list[object]:
    """A tensor of `rows` rows of 10 floats; of a box (first row, rows)."""
    place = None if box is None else [[box[0], 0], [box[1], 10]]
    size = 40 * (rows if box is None else box[1])
    return [name, "float32", [rows, 10], place, size, tied, lead, piece]


def assigned(tensors: list[list[list[object]]]) -> list[list[int]]:
    """The numbers that each rank writes."""
    return [[number for number, _ in one.tensors] for one in assign(tensors)]


def make(generator: random.Random) -> list[list[list[object]]]:
    """Tensors that all ranks have, that groups share, or that are split with remainders."""
    ranks = generator.randint(1, 7)
    tensors: list[list[list[object]]] = [[] for _ in range(ranks)]
    for number in range(generator.randint(1, 30)):
        rows, kind = generator.randint(0, 50), generator.choice(["all", "split", "groups"])
        parts = ranks if kind == "split" else max(1, ranks // 2)
        size = -(-rows // parts)
        for rank in range(ranks):
            part = rank % parts
            first = min(part * size, rows)
            box = None if kind == "all" else (first, min(size, rows - first))
            tensors[rank].append(held(f"t{number}", rows, box, lead=number % 3 == 0))
    return tensors


@pytest.mark.parametrize("seed", range(200))
def test_every_box_once_by_a_holder(seed: int) -> None:
    tensors = make(random.Random(seed))
    chosen = assigned(tensors)
    for number in range(len(tensors[0])):
        boxes = [one[number][3] for one in tensors]
        sizes = [one[number][4] for one in tensors]
        writers = [rank for rank, numbers in enumerate(chosen) if number in numbers]
        wanted = {str(box) for box, size in zip(boxes, sizes, strict=True) if size}
        assert sorted({str(boxes[rank]) for rank in writers if sizes[rank]}) == sorted(wanted)
        assert len(writers) == max(len(wanted), 1)


@pytest.mark.parametrize("seed", range(50))
def test_what_all_have_is_spread(seed: int) -> None:
    generator = random.Random(seed)
    ranks = generator.randint(2, 8)
    rows = [generator.randint(1, 100) for _ in range(40)]
    one = [held(f"t{i}", n, None) for i, n in enumerate(rows)]
    chosen = assigned([one] * ranks)
    loads = [sum(rows[number] for number in numbers) for numbers in chosen]
    assert sum(loads) == sum(rows)
    assert max(loads) - min(loads) <= max(rows)


def test_rank_0_writes_what_is_its_own() -> None:
    one = [held("a", 9, None), held("b", 1, None, lead=True), held("c", 1, None, lead=True)]
    chosen = assigned([one] * 3)
    assert {1, 2} <= set(chosen[0])
    assert chosen[0] != [0, 1, 2]


def test_tied_tensors_have_one_writer() -> None:
    one = [held("a", 5, None), held("b", 50, None), held("c", 5, None, tied=0, lead=True)]
    for numbers in assigned([one, one, one]):
        assert (0 in numbers) == (2 in numbers)


def test_ranks_that_differ() -> None:
    one = [held("a", 4, None), held("b", 4, (0, 2))]
    with pytest.raises(MismatchError, match="rank 1 passes 'c', which rank 0 does not"):
        assign([one, [*one, held("c", 1, None)]])
    with pytest.raises(MismatchError, match=r"\[4, 10\] on rank 0 and float32 \[5, 10\] on rank 1"):
        assign([one, [held("a", 5, None), one[1]]])
    with pytest.raises(MismatchError, match="whole tensor on rank 0 and distributed on rank 1"):
        assign([one, [held("a", 4, (0, 4)), one[1]]])


def test_pieces_of_one_model() -> None:
    """Two stages on two ranks each; the first and the last tensor are tied."""

    def stage(*names: str) -> list[list[object]]:
        first = [held(f"model.{name}", 4, None, piece=True) for name in names]
        return [*first, held("other", 2, None)]

    tied = held("model.head", 4, None, tied=0, piece=True)
    early = [*stage("embedding", "a"), tied]
    late = [*stage("head", "b"), held("model.embedding", 4, None, tied=0, piece=True)]
    written = assign([early, late, early, late])
    places: dict[int, list[str]] = {}
    for rank, one in enumerate(written):
        assert one.count == 5
        for number, place in one.tensors:
            name = [early, late][rank % 2][number][0]
            places.setdefault(place, []).append(str(name))
    assert [places[place] for place in range(5)] == [
        ["model.embedding"],
        ["model.a"],
        ["model.head"],
        ["model.b"],
        ["other"],
    ]
    names = [{[early, late][r % 2][n][0] for n, _ in one.tensors} for r, one in enumerate(written)]
    assert all(("model.head" in found) == ("model.embedding" in found) for found in names)
    with pytest.raises(MismatchError, match="'model.a' is .* on rank 0 and .* on rank 1"):
        assign([early, [held("model.a", 5, None, piece=True), held("other", 2, None)]])

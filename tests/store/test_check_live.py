"""check and check(repair=True) of a store that other processes write to."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ligament import Store

WRITERS, SAVES = 3, 40
SMALL, LARGE = 512, 1 << 14  # bytes in the catalog, bytes in a pack


def value_of(name: str) -> dict[str, Any]:
    writer, number = map(int, name.split("-"))
    return {"w": np.full(LARGE if number % 3 == 0 else SMALL, writer * 1000.0 + number)}


def kept(writer: int, saves: int) -> list[str]:
    """What stays when each fourth model was retired."""
    return [f"{writer}-{i}" for i in range(saves) if i % 4 != 1]


def save_all(place: str, writer: int, saves: int) -> None:
    with Store(place) as store:
        for number in range(saves):
            name = f"{writer}-{number}"
            store.save(name, value_of(name))
            if number % 4 == 1:
                store.retire(name)


def check_until_told(place: str, repair: bool, heard: int) -> list[str]:
    """Checks until the pipe's writers are gone, and once more."""
    os.set_blocking(heard, False)
    problems: list[str] = []
    with Store(place) as store:
        over = False
        while not over:
            try:
                over = os.read(heard, 1) == b""
            except BlockingIOError:
                pass
            problems += store.check(repair=repair).problems
    return problems


def check_nothing(place: str, repair: bool, heard: int) -> None:
    assert check_until_told(place, repair, heard) == []


def check_damage(place: str, repair: bool, heard: int) -> None:
    assert any("is damaged" in problem for problem in check_until_told(place, repair, heard))


def start(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return child


Checker = Callable[[str, bool, int], None]


def check_live(place: str, saves: int, checkers: list[tuple[Checker, str, bool]]) -> None:
    heard, told = os.pipe()
    children = [start(partial(save_all, place, i, saves)) for i in range(WRITERS)]
    os.close(told)
    for check, mode, repair in checkers:
        children.append(start(partial(check, place + mode, repair, heard)))
    os.close(heard)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert ends == [0] * len(ends)


def check_saved(store: Store, saves: int) -> None:
    assert store.check().problems == []
    names = [name for writer in range(WRITERS) for name in kept(writer, saves)]
    assert sorted(model.name for model in store.models()) == sorted(names)
    for name in names:
        assert np.array_equal(store.load(name)["w"], value_of(name)["w"]), name


ALL: list[tuple[Checker, str, bool]] = [
    (check_nothing, "", True),
    (check_nothing, "", False),
    (check_nothing, "&mode=r", False),
]


@pytest.mark.parametrize("log", ["8KiB", "64MiB"])
def test_a_check_beside_writers_finds_and_harms_nothing(tmp_path: Path, log: str) -> None:
    place = f"{tmp_path / 'store'}?fsync=0&log={log}"
    Store(place).close()
    check_live(place, SAVES, ALL)
    with Store(place) as store:
        check_saved(store, SAVES)


@pytest.mark.soak
def test_a_check_beside_writers_for_long(tmp_path: Path) -> None:
    place = f"{tmp_path / 'store'}?log=16KiB"
    Store(place).close()
    check_live(place, 1000, ALL)
    with Store(place) as store:
        check_saved(store, 1000)


def flip_byte_behind(path: Path, mark: bytes) -> None:
    """Damages the record that has the mark."""
    content = bytearray(path.read_bytes())
    at = content.index(mark) + len(mark)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 0xFF]))


def test_a_repair_beside_writers_loses_nothing(tmp_path: Path) -> None:
    place = f"{tmp_path / 'store'}?fsync=0"
    with Store(place) as store:
        store.save("damaged", {"w": np.zeros(4)})
        store.save("last", {"w": np.ones(4)})
        (segment,) = (tmp_path / "store/log").glob("segment-*")
        flip_byte_behind(segment, b"damaged")
        check_live(place, SAVES, [(check_damage, "", True)])
        assert np.array_equal(store.load("last")["w"], np.ones(4))
        store.retire("last")
        store.retire("damaged")
        check_saved(store, SAVES)
    with Store(place) as store:
        check_saved(store, SAVES)

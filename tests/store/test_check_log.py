"""What check and check(repair=True) say and do about a log of commits that lacks something."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from ligament import Store

SMALL = {"w": np.arange(16.0)}


def segment_of(store: Path) -> Path:
    (segment,) = (store / "log").glob("segment-*")
    return segment


def test_the_torn_record_of_a_killed_writer_is_no_problem(tmp_path: Path) -> None:
    full, torn = tmp_path / "full", tmp_path / "torn"
    with Store(full) as store:
        store.save("a", SMALL)
    shutil.copytree(full, torn)
    with Store(full) as store:
        store.save("b", SMALL)
    before, after = segment_of(torn).read_bytes(), segment_of(full).read_bytes()
    start = next(i for i, (x, y) in enumerate(zip(before, after, strict=False)) if x != y)
    end = len(after.rstrip(b"\0"))

    def tear() -> None:
        with open(segment_of(torn), "r+b") as file:
            file.seek(start)
            file.write(after[start : (start + end) // 2])

    tear()
    with Store(torn, mode="r") as store:
        assert store.check().problems == []
    with Store(torn) as store:
        assert store.check().problems == []
        tear()
        assert store.check().problems == []
        tear()
        assert store.check(repair=True).problems == []
        store.save("c", SMALL)
        assert sorted(model.name for model in store.models()) == ["a", "c"]
        assert store.check().problems == []

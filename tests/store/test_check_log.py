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


def test_the_frame_of_every_pack_is_checked(tmp_path: Path) -> None:
    place = tmp_path / "store"
    large = {"w": np.arange(1 << 14, dtype=np.float64)}
    with Store(place) as store:
        store.save("a", large)
        store.save("child", {**large, "v": np.ones(1 << 14)}, parent="a")
        (pack, _) = sorted((place / "packs").glob("*.pack"), key=lambda path: path.stat().st_size)
        for offset in (20, -20):  # the header's hash covers one, the trailer's the other
            content = bytearray(pack.read_bytes())
            content[offset] ^= 1
            pack.write_bytes(content)
            (problem,) = store.check().problems
            assert pack.stem in problem and "is damaged" in problem
            with Store(place, mode="r") as reader:
                assert reader.check().problems == [problem]
            content[offset] ^= 1
            pack.write_bytes(content)
            assert store.check().problems == []
        content[20] ^= 1
        pack.write_bytes(content)
        report = store.check(repair=True)
        assert len(report.problems) == 1 and report.repaired == 1
        assert not pack.exists() and store.check().problems == []
        for name in ("a", "child"):
            assert np.array_equal(store.load(name)["w"], large["w"])
    shutil.rmtree(place / "log")
    (place / "index.mdb").unlink()
    with Store(place) as store:  # made from the packs alone
        assert sorted(model.name for model in store.models()) == ["a", "child"]

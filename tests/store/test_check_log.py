"""What check and check(repair=True) say and do about a log of commits that lacks something."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import ligament
import numpy as np
import pytest
from ligament import Store

SMALL = {"w": np.arange(16.0)}
MEDIUM = {"w": np.arange(2000.0)}  # too large for the index, too small for a pack
LARGE = {"w": np.arange(1 << 14, dtype=np.float64)}


def names(store: Store) -> list[str]:
    return sorted(model.name for model in store.models())


def remove(store: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in store.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def make_store(place: Path) -> None:
    with Store(place) as store:
        store.save("small", SMALL)
        store.save("medium", MEDIUM)
        store.save("large", LARGE)


def check_usable(place: Path) -> None:
    """After a repair: nothing is wrong that cannot be told, and everything works."""
    with Store(place) as store:
        store.save("new", MEDIUM)
        assert np.array_equal(store.load("large")["w"], LARGE["w"])
    with Store(place) as store:
        assert np.array_equal(store.load("new")["w"], MEDIUM["w"])


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
        assert names(store) == ["a", "c"]
        assert store.check().problems == []


def test_the_frame_of_every_pack_is_checked(tmp_path: Path) -> None:
    place = tmp_path / "store"
    with Store(place) as store:
        store.save("a", LARGE)
        store.save("child", {**LARGE, "v": np.ones(1 << 14)}, parent="a")
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
            assert np.array_equal(store.load(name)["w"], LARGE["w"])
    shutil.rmtree(place / "log")
    (place / "index.mdb").unlink()
    with Store(place) as store:  # made from the packs alone
        assert names(store) == ["a", "child"]


@pytest.mark.parametrize("lost", [("log/segment-*", "index.mdb*"), ("log", "index.mdb*")])
def test_without_log_and_index_the_packs_tell_and_check_says_what_is_lost(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    place = tmp_path / "store"
    make_store(place)
    remove(place, *lost)
    with Store(place, mode="r") as store:
        (problem,) = store.check().problems
        assert "models below 64 KiB" in problem and names(store) == ["large"]
    for repair in (False, True):
        with Store(place) as store:
            (problem,) = store.check(repair=repair).problems
            assert "the log of commits" in problem and "was lost" in problem
            assert "restored from packs: 'large'" in problem and names(store) == ["large"]
    with Store(place) as store:
        assert store.check().problems == []
    check_usable(place)


@pytest.mark.parametrize("lost", [("log/segment-*",), ("log",)])
def test_without_a_log_the_index_tells_and_check_names_what_is_lost(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    place = tmp_path / "store"
    make_store(place)
    remove(place, *lost)
    for repair in (False, True):
        with Store(place) as store:
            problems = store.check(repair=repair).problems
            assert "log" in problems[0] and "'medium'" in problems[-1]
            assert names(store) == ["large", "medium", "small"]
            assert np.array_equal(store.load("small")["w"], SMALL["w"])
    with Store(place) as store:
        assert store.check().problems == ["model 'medium': its bytes are not in the catalog"]
        store.retire("medium")
        assert store.check().problems == []
    check_usable(place)


def test_a_store_of_small_models_whose_commits_are_witnessed(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        store.save("small", SMALL)
    remove(tmp_path / "store", "log/segment-*", "index.mdb*")
    with Store(tmp_path / "store") as store:
        (problem,) = store.check(repair=True).problems
        assert "up to version" in problem and "was lost" in problem
        assert store.check().problems == []


@pytest.mark.parametrize("name", ["index.mdb", "index.mdb-lock"])
def test_a_folder_in_the_place_of_the_index_is_kept_beside(tmp_path: Path, name: str) -> None:
    place = tmp_path / "store"
    make_store(place)
    (place / name).unlink()
    (place / name).mkdir()
    (place / name / "kept").touch()
    with Store(place) as store:
        assert store.check().problems == [] and names(store) == ["large", "medium", "small"]
    (aside,) = place.glob(f"{name}.aside-*")
    assert (aside / "kept").exists()


def test_values_of_a_damaged_record_are_lost_by_name(tmp_path: Path, program: Path) -> None:
    place = tmp_path / "store"
    with Store(place) as store:
        store.save("medium", MEDIUM)
        store.save("small", SMALL)
        segment = segment_of(place)
        content = bytearray(segment.read_bytes())
        at = content.index(MEDIUM["w"].tobytes())
        with open(segment, "r+b") as file:
            file.seek(at)
            file.write(b"\xff")
        for repair in (False, True, False):
            problems = store.check(repair=repair).problems
            assert "model 'medium'" in problems[-1]
        assert len(problems) == 1
        store.alias("prod", "medium")
        for name in ("prod", "medium"):
            line = [program, "rm", f"{store.uri}#{name}"]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stderr) == (0, "")
            assert ("alias" in done.stdout) == (name == "prod")
        assert store.check().problems == [] and names(store) == ["small"]


def test_messages_about_files_of_the_log_have_their_path(tmp_path: Path) -> None:
    place = tmp_path / "store"
    make_store(place)
    for name in ("head", "numbered"):
        path = place / "log" / name
        path.unlink(missing_ok=True)
        path.mkdir()
        with pytest.raises(ligament.Error, match=f"{place}/log/{name} is a folder"):
            Store(place)
        path.rmdir()


def test_a_repair_of_a_shared_log_removes_nothing_that_other_hosts_may_rely_on(
    tmp_path: Path,
) -> None:
    place = tmp_path / "store"
    one, other = (f"{place}?share=network&index={tmp_path / name}" for name in ("one", "other"))
    with Store(one) as first, Store(other) as second:
        for number in range(4):
            first.save(f"m{number}", SMALL)
        assert names(second) == ["m0", "m1", "m2", "m3"]
        segments = sorted((place / "log").glob("segment-*"))
        content = bytearray(segments[1].read_bytes())
        content[-20] ^= 0xFF
        segments[1].chmod(0o644)
        segments[1].write_bytes(content)
        assert any("is damaged" in problem for problem in first.check(repair=True).problems)
        assert set(segments) <= set((place / "log").glob("segment-*"))
        assert first.check().problems == [] and second.check().problems == []
        second.save("second", SMALL)
        first.save("first", SMALL)
        assert names(first) == names(second) == ["first", "m0", "m1", "m2", "m3", "second"]


def test_a_shared_log_whose_last_commit_is_damaged_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "store"
    one, other = (f"{place}?share=network&index={tmp_path / name}" for name in ("one", "other"))
    with Store(one) as store:
        store.save("a", SMALL)
        store.save("b", SMALL)
    last = sorted((place / "log").glob("segment-*"))[-1]
    last.chmod(0o644)
    last.write_bytes(bytes(200))
    with Store(other) as store:
        assert store.check(repair=True).problems
        assert store.check().problems == []
        store.save("c", SMALL)
        assert names(store) == ["a", "c"] and store.check().problems == []
    with Store(one) as store:
        assert "c" in names(store)
        store.save("d", SMALL)
        assert store.check().problems == []
    with Store(other) as store:
        assert "d" in names(store)

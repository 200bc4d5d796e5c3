"""Stores that somebody else made, shares, or removes while they are open."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ligament
import numpy
import pytest

MODEL = {"w": numpy.arange(1 << 16, dtype=numpy.float32), "b": numpy.ones(3)}
SMALL = {"b": numpy.ones(3)}


def campaign(program: Path, seed: int, count: int, timeout_s: float) -> None:
    script = Path(__file__).with_name("hostile_folders.py")
    command = [sys.executable, str(script), str(seed), str(count), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr


def test_odd_files_in_a_store(program: Path) -> None:
    campaign(program, 7, 48, 250)


@pytest.mark.soak
def test_every_odd_file_in_a_store(program: Path) -> None:
    campaign(program, 0, 0, 7000)


def replace_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    ligament.Store(folder).close()


def replace_packs(folder: Path) -> None:
    (folder / "packs").rename(folder.parent / "away")
    (folder / "packs").mkdir()


def replace_log(folder: Path) -> None:
    (folder / "log").rename(folder.parent / "away")
    shutil.copytree(folder.parent / "away", folder / "log")


def replace_index(folder: Path) -> None:
    copy = folder.parent / "copy"
    shutil.copy(folder / "index.mdb", copy)
    copy.rename(folder / "index.mdb")


LOSSES = {
    "store": shutil.rmtree,
    "store/packs": lambda folder: shutil.rmtree(folder / "packs"),
    "store/log": lambda folder: shutil.rmtree(folder / "log"),
    "store/log/head": lambda folder: (folder / "log/head").unlink(),
    "store/index.mdb": lambda folder: (folder / "index.mdb").unlink(),
    "new store": replace_folder,
    "new store/packs": replace_packs,
    "new store/log": replace_log,
    "new store/index.mdb": replace_index,
}


@pytest.mark.parametrize("lost", LOSSES)
@pytest.mark.parametrize("saved", [MODEL, SMALL], ids=["pack", "inline"])
@pytest.mark.parametrize("options", ["", "?fsync=0"])
def test_a_save_into_a_removed_folder_fails(
    tmp_path: Path, lost: str, saved: dict[str, numpy.ndarray], options: str
) -> None:
    folder = tmp_path / "store"
    with ligament.Store(f"{folder}{options}") as store:
        store.save("first", MODEL)
        LOSSES[lost](folder)
        with pytest.raises((ligament.StorageError, ligament.CorruptError)) as caught:
            store.save("second", saved)
        if isinstance(caught.value, ligament.StorageError):
            assert caught.value.errno == errno.ENOENT
        else:  # the segment that is written to went with its folder
            assert "is missing" in str(caught.value)
        assert lost.removeprefix("new ").split("/")[-1] in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_renamed_folder_is_the_same_store(tmp_path: Path) -> None:
    with ligament.Store(tmp_path / "store") as store:
        store.save("first", MODEL)
        (tmp_path / "store").rename(tmp_path / "moved")
        store.save("second", MODEL)
    with ligament.Store(tmp_path / "moved", mode="r") as store:
        assert sorted(store) == ["first", "second"]


def test_a_store_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    with ligament.Store(tmp_path / "link") as store:
        store.save("first", MODEL)
    with ligament.Store(tmp_path / "real", mode="r") as store:
        assert list(store) == ["first"]


def test_a_copy_made_of_hard_links(tmp_path: Path) -> None:
    """Its packs are shared with the original, which keeps them; its log is not written."""
    with ligament.Store(tmp_path / "store") as store:
        store.save("first", MODEL)
    shutil.copytree(tmp_path / "store", tmp_path / "copy", copy_function=os.link)
    with ligament.Store(tmp_path / "copy", mode="r") as store:
        store.load("first")
    segments = [f"log/{path.name}" for path in (tmp_path / "store/log").glob("segment-*")]
    for name in ("log/head", *segments):
        with pytest.raises(ligament.DeniedError, match=rf"{name} has 2 hard links"):
            ligament.Store(tmp_path / "copy")
        shutil.copy(tmp_path / "store" / name, tmp_path / "own")
        (tmp_path / "own").rename(tmp_path / "copy" / name)
    with ligament.Store(tmp_path / "copy") as store:
        store.retire("first")
        store.compact()
        assert not list((tmp_path / "copy/packs").iterdir())
    with ligament.Store(tmp_path / "store") as store:
        store.load("first")


AS_USER = """
import os, sys
user, group, shared = map(int, sys.argv[1:4])
import ligament, numpy
os.umask(0o002)
os.setgroups([shared])
os.setgid(group)
os.setuid(user)
with ligament.Store(sys.argv[4]) as store:
    store.save(f"of {user}", {"w": numpy.full(1 << 16, float(user))}, replace=True)
    for name in store:
        store.load(name)
    if sys.argv[5:]:
        store.retire(sys.argv[5])
        store.compact()
    assert store.check()
"""


def as_user(user: int, group: int, folder: Path, *retired: str) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in (user, group, 7003, folder, *retired)]
    command = [sys.executable, "-c", AS_USER, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_a_store_of_a_group() -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's folders are closed to others
        os.chmod(made, 0o755)
        folder = Path(made, "store")
        folder.mkdir()
        os.chown(folder, 7000, 7003)
        os.chmod(folder, 0o2775)
        for words in ((7001, 7001), (7002, 7002), (7001, 7001, "of 7002"), (7000, 7000)):
            done = as_user(words[0], words[1], folder, *words[2:])
            assert done.returncode == 0, done.stderr
        with ligament.Store(folder, mode="r") as store:
            assert sorted(store) == ["of 7000", "of 7001"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_strangers_pack_is_not_read(tmp_path: Path) -> None:
    with ligament.Store(tmp_path / "store") as store:
        store.save("first", MODEL)
    (pack,) = (tmp_path / "store/packs").iterdir()
    os.chown(pack, 7001, 7001)
    with ligament.Store(tmp_path / "store", mode="r") as store:
        with pytest.raises(ligament.DeniedError, match=f"{pack.name} belongs to user 7001"):
            store.load("first")
        os.chown(tmp_path / "store", 7001, 7001)
        store.load("first")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_may_write_to(tmp_path: Path, mode: int) -> None:
    with ligament.Store(tmp_path / "store") as store:
        store.save("first", MODEL)
    (pack,) = (tmp_path / "store/packs").iterdir()
    os.chown(pack, 7001, 7001)
    with ligament.Store(tmp_path / "store", mode="r") as store:
        os.chmod(tmp_path / "store", mode)
        store.load("first")
        os.chmod(tmp_path / "store", 0o755)
        with pytest.raises(ligament.DeniedError, match="belongs to user"):
            store.load("first")

"""Faults: a clear error, the previous state intact, nothing left behind."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def tree(seed: int = 0, size: int = 300_000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.random(size), "y": rng.integers(0, 9, 7)}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def files_of(place: Path) -> set[str]:
    return {str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()}


def kept_files(place: Path) -> set[str]:
    """Without the leases, which a process has while it has the store open."""
    return {name for name in files_of(place) if "/leases/" not in name}


# --- forks ----------------------------------------------------------------------------------------


def in_child(work: Any) -> int:
    """The exit status of a forked child that runs `work`."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(work())
        except BaseException:  # noqa: BLE001
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told(store: ligament.Store) -> None:
    store.save("m", tree())
    views = store.load("m", map=True)

    def child() -> int:
        for call in (lambda: store.load("m"), lambda: store.save("n", tree()), lambda: len(store)):
            try:
                call()
            except ligament.ClosedError as error:
                if "process" not in str(error):
                    return 2
            else:
                return 1
        if not equal({k: np.asarray(v) for k, v in views.items()}, tree()):
            return 3
        store.close()
        return 0

    assert in_child(child) == 0
    store.save("n", tree(1))  # the parent's handle works on
    assert equal(store.load("n"), tree(1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_may_open_its_own(tmp_path: Path) -> None:
    with ligament.Store(tmp_path / "s") as store:
        store.save("m", tree())

        def child() -> int:
            with ligament.Store(tmp_path / "s") as mine:
                mine.save("child", mine.load("m"))
            return 0

        assert in_child(child) == 0
        assert equal(store.load("child"), tree())


@pytest.mark.filterwarnings("ignore")
def test_data_loader_workers(files: ligament.Store) -> None:
    torch = pytest.importorskip("torch")
    files.save("m", tree(size=64))

    class Rows(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 16

        def __getitem__(self, i: int) -> Any:
            try:
                files.load("m")
            except ligament.ClosedError:
                return i
            return -1

    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, batch_size=4)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(16))
    ticket = files.save("n", tree(1), wait=False)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(16))
    ticket.result(60)
    assert equal(files.load("n"), tree(1))


# --- several processes ----------------------------------------------------------------------------

SAVER = """
import sys, numpy as np, ligament
place, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = ligament.Store(place)
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    value = {"x": np.full(5000, seed), "who": np.array(seed)}
    try:
        store.save("same", value)
        print("saved", flush=True)
    except FileExistsError:
        print("taken", flush=True)
    store.save("last", value, replace=True)
    back = store.load("last")
    assert (back["x"] == back["who"]).all()
"""


def test_two_processes_save_the_same_name(tmp_path: Path) -> None:
    place = tmp_path / "s"
    command = [sys.executable, "-c", SAVER, str(place)]
    pipe = subprocess.PIPE
    work = [
        subprocess.Popen([*command, str(seed), "8"], stdin=pipe, stdout=pipe, text=True)
        for seed in (1, 2, 3)
    ]
    for one in work:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    outs = [one.communicate("go\n", timeout=100)[0] for one in work]
    assert all(one.returncode == 0 for one in work)
    assert sum(out.count("saved") for out in outs) == 1
    with ligament.Store(place) as store:
        assert sorted(store) == ["last", "same"] and not store.check().problems


KILLED = """
import sys, numpy as np, ligament
store = ligament.Store(sys.argv[1])
rng = np.random.default_rng(0)
i = 0
while True:
    value = {"x": rng.random(200_000), "y": rng.random(7)}
    value["sum"] = np.array([value["x"].sum(), value["y"].sum()])
    store.save(f"m{i}", value, wait=bool(i % 2))
    if i >= 3:
        store.retire(f"m{i - 3}")
    i += 1
    print(i, flush=True)
"""


def test_killed_at_any_point(tmp_path: Path) -> None:
    place = tmp_path / "s"
    chance = random.Random(7)
    for _ in range(6):
        command = [sys.executable, "-c", KILLED, str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one:
            assert one.stdout is not None
            for _ in range(chance.randint(1, 6)):
                one.stdout.readline()
            time.sleep(chance.random() * 0.01)
            one.send_signal(signal.SIGKILL)
        with ligament.Store(place) as store:
            assert not store.check().problems
            for name in list(store):
                value = store.load(name)
                assert np.array_equal(value["sum"], [value["x"].sum(), value["y"].sum()]), name
                store.retire(name)
            store.compact()
            packs = store.stats()["packs"]
            assert packs == 0, files_of(place)


# --- disks ----------------------------------------------------------------------------------------


@ROOT_ONLY
def test_a_full_disk(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs may be mounted here")
    try:
        with ligament.Store(place / "s") as store:
            store.save("small", tree())
            before = kept_files(place)
            for wait in (True, False):
                with pytest.raises(ligament.StorageError) as caught:
                    ticket = store.save("large", tree(1, 6_000_000), wait=wait)
                    ticket.result(60)
                assert caught.value.errno == errno.ENOSPC
            assert "large" not in store and equal(store.load("small"), tree())
            assert kept_files(place) == before
            store.save("again", tree(2))
            assert not store.check().problems
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@ROOT_ONLY
def test_a_read_only_folder(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    with ligament.Store(place / "s") as store:
        store.save("m", tree())
    bind = ["mount", "--bind", str(place), str(place)]
    if subprocess.run(bind, capture_output=True).returncode != 0:
        pytest.skip("nothing may be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        with ligament.Store(place / "s", mode="r") as reader:
            assert equal(reader.load("m"), tree())
            assert equal(dict(reader.load("m", map=True)), tree())
        with pytest.raises((ligament.StorageError, ligament.DeniedError)):
            with ligament.Store(place / "s") as writer:
                writer.save("n", tree())
        with pytest.raises((ligament.StorageError, ligament.DeniedError)):
            ligament.Store(place / "new")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_place_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    for mode in ("r", "a", "w"):
        with pytest.raises(ligament.Error):
            ligament.Store(tmp_path / "file", mode=mode)
    with pytest.raises(ligament.Error):
        ligament.Store(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "hello"


# --- damage ---------------------------------------------------------------------------------------


def pack_of(place: Path) -> Path:
    """The largest file: the pack that holds the tensors."""
    return max((p for p in place.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with ligament.Store(place) as store:
        info = store.save("m", tree()).tensors["x"]
        other = store.save("other", tree(5))
        pack = [p for p in place.rglob("*") if p.is_file() and p.stat().st_size > 2_000_000]
        first = min(pack, key=lambda p: p.stat().st_mtime_ns)
        with open(first, "r+b") as file:
            file.seek(info.offset + 1_500_000)
            byte = file.read(1)[0]
            file.seek(info.offset + 1_500_000)
            file.write(bytes([byte ^ 4]))
        with pytest.raises(ligament.CorruptError, match="'x'"):
            store.load("m")
        with pytest.raises(ligament.CorruptError, match="'x'"):
            store.load("m", map=True)
        with pytest.raises(ligament.CorruptError, match="'x'"):
            store.load("m", tensors={"x": slice(180_000, 190_000)})
        part = store.load("m", tensors={"x": slice(0, 10)})["x"]  # another block
        assert np.array_equal(part, tree()["x"][:10])
        assert np.array_equal(store.load("m", tensors=["y"])["y"], tree()["y"])
        assert any("x" in problem for problem in store.check().problems)
        assert equal(store.load(other.name), tree(5))


def test_truncated_packs_and_rubbish(tmp_path: Path) -> None:
    with ligament.Store(tmp_path / "s") as store:
        store.save("m", tree())
    chance = random.Random(3)
    for i in range(12):
        place = tmp_path / f"c{i}"
        shutil.copytree(tmp_path / "s", place)
        victim = chance.choice(sorted(p for p in place.rglob("*") if p.is_file()))
        size = victim.stat().st_size
        with open(victim, "r+b") as file:
            if i % 3 == 0:
                file.truncate(chance.randrange(size) if size else 0)
            else:
                file.seek(chance.randrange(max(size, 1)))
                file.write(chance.randbytes(chance.choice([1, 64, 5000])))
        try:
            with ligament.Store(place) as store:
                for name in list(store):
                    assert equal(store.load(name), tree())
                store.check()
        except ligament.Error:
            pass  # said clearly; anything else fails the test


def test_rebuilding_a_lost_catalog(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with ligament.Store(place) as store:
        store.save("m", tree(), metrics={"acc": 0.5}, meta={"k": 1})
    pack = pack_of(place)
    for path in place.rglob("*"):
        if path.is_file() and path != pack and path.suffix == ".mdb":
            path.unlink()
    with ligament.Store(place) as store:
        store.check(repair=True)
        assert equal(store.load("m"), tree()) and store["m"].metrics == {"acc": 0.5}

"""Stores on RADOS when processes are killed or stopped and when the cluster has faults."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import ligament
import numpy as np
import pytest
from engine_writers import campaign, check, wait_for_progress, writers

# What takes an hour elsewhere takes a second: pins, claims and the grace of removed packs.
WINDOWS = "&ttl=2&grace=1"
QUOTA_S = 120  # after which the cluster has noticed that a pool is full, or no longer


def test_writers_side_by_side(rados_uri: str, tmp_path: Path) -> None:
    acknowledged = campaign(rados_uri + WINDOWS, tmp_path, 8, 3, 3.0, lambda _: None)
    assert acknowledged > 20


@pytest.mark.soak
def test_writers_side_by_side_for_long(rados_uri: str, tmp_path: Path) -> None:
    campaign(rados_uri + WINDOWS, tmp_path, 8, 60, 3.0, lambda _: None)


def test_osd_killed(rados_uri: str, tmp_path: Path, engines: Callable[..., None]) -> None:
    """In the middle of saves and loads: they wait, and none fails."""
    with ligament.Store(rados_uri):
        pass
    with writers(rados_uri, 3, tmp_path) as running:
        for osd in ("osd.0", "osd.2"):
            wait_for_progress(running)
            engines("kill", osd)
            wait_for_progress(running)
            engines("revive", osd)
        wait_for_progress(running)
        for writer in running:
            writer.end()
        check(rados_uri, running)
        failed = [fact for writer in running for fact in writer.facts() if "failed" in fact]
        assert failed == []


def test_missing_pool(cluster: dict[str, str]) -> None:
    with pytest.raises(ligament.NotFoundError, match="no pool 'nowhere'"):
        ligament.Store(f"rados://nowhere/x?conf={cluster['RADOS_CONF']}")


def test_wrong_key(cluster: dict[str, str]) -> None:
    with pytest.raises(ligament.DeniedError, match="refuses the key of client.admin"):
        ligament.Store(f"rados://{cluster['RADOS_POOL']}/x?conf={cluster['RADOS_BAD_CONF']}")


def test_unreachable(cluster: dict[str, str], tmp_path: Path) -> None:
    conf = tmp_path / "ceph.conf"
    keyring = os.path.dirname(cluster["RADOS_CONF"]) + "/keyring"
    conf.write_text(f"[global]\nmon_host = 127.0.0.1:1\nkeyring = {keyring}\n")
    with pytest.raises(ligament.TimeoutError, match="did not answer within 2 s"):
        ligament.Store(f"rados://{cluster['RADOS_POOL']}/x?conf={conf}&timeout=2")


def until_full(store: ligament.Store) -> list[str]:
    """Saves until one is refused; returns the names of the others."""
    saved: list[str] = []
    end = time.monotonic() + QUOTA_S
    while time.monotonic() < end:
        name = f"m{len(saved)}"
        try:
            store.save(name, {"w": np.random.default_rng(len(saved)).random(1 << 14)})
        except ligament.LimitError as error:
            assert "has reached its quota" in str(error)
            return saved
        saved.append(name)
    raise AssertionError("the pool was never full")


def test_full_pool(cluster: dict[str, str], prefix: str) -> None:
    """A save that does not fit fails with a sentence; what was saved before stays."""
    pool = cluster["RADOS_QUOTA_POOL"]
    uri = f"rados://{pool}/{prefix}?conf={cluster['RADOS_CONF']}&grace=0"
    end = time.monotonic() + QUOTA_S
    while True:  # the cluster may not have noticed yet that the test before has removed everything
        try:
            store = ligament.Store(uri)
            break
        except ligament.LimitError:
            assert time.monotonic() < end
    large = {"w": np.random.default_rng(0).random(1 << 18)}
    with store:
        store.save("large", large)
        saved = until_full(store)
        assert np.array_equal(store.load("large")["w"], large["w"])
        for number, name in enumerate(saved):
            expected = np.random.default_rng(number).random(1 << 14)
            assert np.array_equal(store.load(name)["w"], expected)
        assert store.check().problems == []
        for name in ["large", *saved]:
            store.retire(name)
        assert store.check().problems == []


def test_erasure_coded_packs(rados_uri: str, cluster: dict[str, str]) -> None:
    tree = {"w": np.random.default_rng(1).random(3 << 20)}
    with ligament.Store(f"{rados_uri}&data={cluster['RADOS_EC_POOL']}") as store:
        store.save("m", tree)
    with ligament.Store(rados_uri) as store:  # the store knows where its packs are
        assert np.array_equal(store.load("m")["w"], tree["w"])
        store.retire("m")
        assert store.check().problems == []


def test_catalog_on_an_erasure_coded_pool(cluster: dict[str, str], prefix: str) -> None:
    with pytest.raises(ligament.UnsupportedError, match="data="):
        ligament.Store(f"rados://{cluster['RADOS_EC_POOL']}/{prefix}?conf={cluster['RADOS_CONF']}")


def test_damaged_commit(rados_uri: str, cluster: dict[str, str], prefix: str) -> None:
    """An entry of the log that was overwritten hides none of the others, and is repaired."""
    tree = {"w": np.random.default_rng(1).random(1 << 15)}
    with ligament.Store(rados_uri) as store:
        for number in range(3):
            store.save(f"m{number}", tree)
    head = ["rados", "-c", cluster["RADOS_CONF"], "-p", cluster["RADOS_POOL"], "-N", prefix]
    keys = subprocess.run([*head, "listomapkeys", "head"], capture_output=True, text=True).stdout
    middle = sorted(key for key in keys.split() if key.startswith("log/"))[-2]  # that of m1
    subprocess.run([*head, "setomapval", "head", middle, "?"], check=True)
    with ligament.Store(rados_uri) as store:
        assert sorted(store) == ["m0", "m2"]
        assert np.array_equal(store.load("m2")["w"], tree["w"])
        number = int(middle.removeprefix("log/"), 16)
        assert any(f"commit {number}" in str(problem) for problem in store.check().problems)
        store.check(repair=True)
        store.save("n", tree)
        assert store.check().problems == []

"""The cluster itself: a second start changes nothing, removed objects free their memory, and a
killed OSD can be revived."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from s3_admin import request


def rados(cluster: dict[str, str], *arguments: str) -> str:
    pool = ["-c", cluster["RADOS_CONF"], "-p", cluster["RADOS_POOL"]]
    return subprocess.run(
        ["rados", *pool, *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_start_twice(cluster: dict[str, str], engines: Callable[..., None]) -> None:
    before = Path(cluster["RADOS_CONF"]).read_text()
    engines("start")
    assert Path(cluster["RADOS_CONF"]).read_text() == before


def gateway_objects(cluster: dict[str, str]) -> set[str]:
    """RADOS objects of the gateway's data: the first 4 MiB of each of its objects, and the rest."""
    pool = ["-c", cluster["RADOS_CONF"], "-p", "default.rgw.buckets.data", "ls"]
    listed = subprocess.run(["rados", *pool], capture_output=True, text=True, check=True).stdout
    return set(listed.splitlines())


def test_removed_objects_free_their_memory(cluster: dict[str, str], prefix: str) -> None:
    """By default radosgw keeps them for two hours, and the OSDs, in memory, become full."""
    path = f"/{cluster['S3_BUCKET']}/{prefix}"
    assert request(cluster, "PUT", f"{path}-first")[0] == 200  # makes the pool
    before = gateway_objects(cluster)
    assert request(cluster, "PUT", path, bytes(9 << 20))[0] == 200
    written = gateway_objects(cluster) - before
    assert len(written) == 3
    assert request(cluster, "DELETE", path)[0] == 204
    end = time.monotonic() + 60
    while written & gateway_objects(cluster):
        assert time.monotonic() < end


def test_killed_osd(
    cluster: dict[str, str], engines: Callable[..., None], prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(b"kept" * 1000)
    rados(cluster, "put", prefix, str(tmp_path / "in"))
    engines("kill", "osd.1")
    rados(cluster, "get", prefix, str(tmp_path / "degraded"))
    engines("revive", "osd.1")
    engines("kill", "osd.2")
    rados(cluster, "get", prefix, str(tmp_path / "out"))
    engines("revive", "osd.2")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "degraded").read_bytes() == b"kept" * 1000

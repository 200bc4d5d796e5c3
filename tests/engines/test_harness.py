"""The cluster itself: a second start changes nothing, and a killed OSD can be revived."""

import subprocess
from collections.abc import Callable
from pathlib import Path


def rados(cluster: dict[str, str], *arguments: str) -> str:
    pool = ["-c", cluster["RADOS_CONF"], "-p", cluster["RADOS_POOL"]]
    return subprocess.run(
        ["rados", *pool, *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_start_twice(cluster: dict[str, str], engines: Callable[..., None]) -> None:
    before = Path(cluster["RADOS_CONF"]).read_text()
    engines("start")
    assert Path(cluster["RADOS_CONF"]).read_text() == before


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

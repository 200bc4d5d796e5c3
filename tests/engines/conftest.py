"""The cluster that `tools/engines` started."""

import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engines)


@pytest.fixture(scope="session")
def cluster() -> dict[str, str]:
    """What `tools/engines env` prints, without the prefix: RADOS_CONF, S3_ENDPOINT, ..."""
    begin = "LIGAMENT_TEST_"
    known = {k.removeprefix(begin): v for k, v in os.environ.items() if k.startswith(begin)}
    assert "RADOS_CONF" in known, 'no cluster: tools/engines start; eval "$(tools/engines env)"'
    return known


@pytest.fixture(scope="session")
def engines(root: Path) -> Callable[..., None]:
    """engines("kill", "osd.1"): a command of tools/engines."""

    def command(*arguments: str) -> None:
        subprocess.run([root / "tools/engines", *arguments], check=True)

    return command


@pytest.fixture
def prefix() -> str:
    """A place in the pool or bucket that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def rados_uri(cluster: dict[str, str], prefix: str) -> str:
    """An empty place for a store on the replicated pool."""
    return f"rados://{cluster['RADOS_POOL']}/{prefix}?conf={cluster['RADOS_CONF']}&id={cluster['RADOS_ID']}"


@pytest.fixture
def s3_uri(
    cluster: dict[str, str], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """s3_uri(endpoint=..., bucket=...): an empty place for a store, with the keys in the
    environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", cluster["S3_KEY"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", cluster["S3_SECRET"])
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)

    def uri(endpoint: str = cluster["S3_ENDPOINT"], bucket: str = cluster["S3_BUCKET"]) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={endpoint}&region={cluster['S3_REGION']}"

    return uri

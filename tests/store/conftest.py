"""Fixtures of the store's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ligament
import pytest


@pytest.fixture(params=["file", "mem", "served"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ligament.Store]:
    """An empty store of each kind."""
    place = f"{tmp_path / 'store'}?fsync=0" if request.param == "file" else "mem:"
    if request.param == "served":
        place = request.getfixturevalue("serve")(f"{tmp_path / 'store'}?fsync=0")
    with ligament.Store(place) as one:
        yield one


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ligament.Store]:
    """An empty store on disk."""
    with ligament.Store(tmp_path / "store") as one:
        yield one

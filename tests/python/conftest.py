"""Fixtures of the Python tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ligament
import pytest


@pytest.fixture(params=["file", "mem", pytest.param("served", marks=pytest.mark.soak)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ligament.Store]:
    """An empty store of each kind."""
    place: Path | str = tmp_path / "store" if request.param == "file" else "mem:"
    if request.param == "served":
        place = request.getfixturevalue("serve")(tmp_path / "store")
    with ligament.Store(place) as one:
        yield one


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ligament.Store]:
    """An empty store on disk."""
    with ligament.Store(tmp_path / "store") as one:
        yield one


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code in a process of its own."""

    def run(code: str, *args: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *map(str, args)]
        return subprocess.run(command, text=True, capture_output=True, timeout=120, **options)  # type: ignore[call-overload, no-any-return]

    return run

"""Fixtures of the integration tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ligament
import pytest


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ligament.Store]:
    """An empty store on disk."""
    with ligament.Store(tmp_path / "store") as one:
        yield one


_HOLD = """
import sys, ligament
from ligament.checkpoint import runs
lock = runs.hold(ligament.Store(sys.argv[1]), sys.argv[2])
print(lock is not None, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[Callable[..., str]]:
    """Starts a process that writes a run of the store in a folder; returns how errors name it."""
    held: list[subprocess.Popen[str]] = []

    def hold(folder: Path, run: str) -> str:
        command = [sys.executable, "-c", _HOLD, str(folder), run]
        one = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        held.append(one)
        assert one.stdout is not None and one.stdout.readline() == "True\n"
        return f"process {one.pid} on "

    yield hold
    for one in held:
        one.kill()
        one.communicate()

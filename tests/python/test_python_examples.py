"""The Python examples run; the demo does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_the_demo(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = [root / "examples/python/demo.py", tmp_path, "--samples", "150"]
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KILLED" in done.stdout and "| lost " in done.stdout
    assert "identical to an uninterrupted run" in done.stdout


def test_stopped_and_started_again(root: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(root / "examples/python/preempt.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 1 of 2: steps 1 to " in done.stdout
    assert "rank 0 of 1: steps " in done.stdout
    assert "each of the 40 steps ran exactly once" in done.stdout

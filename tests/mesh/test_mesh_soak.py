"""A million requests leave memory flat: the C test of 22,000, prolonged."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LIGAMENT_TEST_BUILD", ROOT / "build"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_requests() -> None:
    program = BUILD / "tests/mesh_many_test"
    wanted = os.environ | {"LIGAMENT_SOAK_REQUESTS": "1000000"}
    done = subprocess.run([program], env=wanted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

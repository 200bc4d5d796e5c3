"""The kernels for cached rows, compiled as C, pass the tests of the cache: no GPU is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("refused", [False, True])
def test_the_cache_is_right_with_the_kernels(root: Path, refused: bool) -> None:
    """Also where the driver refuses them: then torch does their work."""
    fake = root / "build/tests/cuda"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("the fake driver is not built")
    path = f"{fake}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    words = [
        "-p",
        "kernels_on_host",
        "-p",
        "no:xdist",
        "-q",
        "tests/params/devices/test_device_rows.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=root,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": path,
            "PYTHONPATH": f"{root / 'tests/cuda'}:{os.environ.get('PYTHONPATH', '')}",
            "KERNELS_REFUSED": "1" if refused else "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) launches", done.stdout)
    assert found and (int(found[1]) == 0) == refused, done.stdout

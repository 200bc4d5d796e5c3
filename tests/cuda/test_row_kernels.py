"""The kernels for cached rows, compiled as C, pass the tests of the cache: no GPU is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def path(root: Path) -> str:
    """Of libraries: the fake driver first."""
    fake = root / "build/tests/cuda"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("the fake driver is not built")
    return f"{fake}:{os.environ.get('LD_LIBRARY_PATH', '')}"


@pytest.mark.parametrize("refused", [False, True])
def test_the_cache_is_right_with_the_kernels(root: Path, path: str, refused: bool) -> None:
    """Also where the driver refuses them: then torch does their work."""
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


FULL_QUEUE = """
import ctypes, threading
from ligament import _core

fake = ctypes.CDLL("libcuda.so.1")
fake.fake_cuda_stream.restype = ctypes.c_void_p
fake.fake_cuda_breach.restype = ctypes.c_char_p
rows = _core.DeviceRows(0, *[0] * 10, 1, 0, 0, 0.0, 0.0)
lookup = (0, 0, 1, 1, 1, 0, 0, 1, 1, 0, -1, 0)
step = (0, 0, 1, 1, 0, -1, 0, 0, 0.1)
for call, batch in ((rows.sum, lookup), (rows.step, step)):
    fake.fake_cuda_full(1)
    thread = threading.Thread(target=call, args=(fake.fake_cuda_stream(), *batch))
    thread.start()
    while not fake.fake_cuda_is_full() and thread.is_alive():
        pass
    fake.fake_cuda_full(0)
    thread.join()
    assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
print("done")
"""


TOO_MANY = """
from ligament import _core
from ligament.errors import LimitError

rows = _core.DeviceRows(0, *[0] * 10, 1, 0, 0, 0.0, 0.0)
lookup = (0, 0, 0, 2**31, 1, 1, 0, 0, 1, 1, 0, -1, 0)
step = (0, 0, 0, 2**31, 1, 0, -1, 0, 0, 0.1)
for call, batch in ((rows.find, lookup), (rows.sum, lookup), (rows.step, step)):
    try:
        call(*batch)
    except LimitError as error:
        assert "at most 2147483647 ids" in str(error)
    else:
        raise AssertionError(call)
print("done")
"""


@pytest.mark.parametrize("script", [FULL_QUEUE, TOO_MANY], ids=["full_queue", "too_many"])
def test_calls_of_the_kernels(path: str, script: str) -> None:
    """Other threads run while the queue of a stream is full; positions that kernels cannot note are
    refused."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LD_LIBRARY_PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr

"""The Python side of device memory over the fake driver: no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ligament.tensors import torch_gpu

SCENE = """
import ctypes
import numpy as np
import ligament
from ligament import _core

fake = ctypes.CDLL("libcuda.so.1")
fake.fake_cuda_alloc.restype = fake.fake_cuda_stream.restype = ctypes.c_void_p
fake.fake_cuda_breach.restype = ctypes.c_char_p
fake.fake_cuda_fill.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
FLOAT32 = _core.dtype_names()["float32"]

def tensor(count, value):
    address = fake.fake_cuda_alloc(ctypes.c_size_t(4 * count), 0)
    memory = (ctypes.c_float * count).from_address(address)
    array = np.frombuffer(memory, np.float32)
    array[:] = value
    return array, (array, address, FLOAT32, (count,), None, 0)

def check():
    assert fake.fake_cuda_breach() == b"", fake.fake_cuda_breach()
"""


@pytest.fixture
def run(root: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    fake = root / "build/tests/cuda"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("the fake driver is not built")

    def run(text: str) -> None:
        path = f"{fake}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        done = subprocess.run(
            [sys.executable, "-c", SCENE + text],
            cwd=tmp_path,
            env={**os.environ, "LD_LIBRARY_PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


def test_a_batch_of_device_memory_is_saved_and_filled(run) -> None:  # type: ignore[no-untyped-def]
    run("""
store = ligament.Store("store")
array, item = tensor(3_000_000, 1.5)
store._core.save("m", _core.Batch(["x"], [item]), (0, None, None, None, None, None, (), None, None))
array[:] = 0
store._core.resolve("m").load(_core.Batch(["x"], [item], True))
assert (array == 1.5).all()
assert (store.load("m")["x"] == 1.5).all()
check()
""")


def test_device_memory_that_has_no_copy_is_written_before_the_call_returns(run) -> None:  # type: ignore[no-untyped-def]
    run("""
store = ligament.Store("store")
late, item = tensor(3_000_000, 2.5)
early, copy = tensor(1_000_000, 3.5)
host = np.full(1000, 4.5, np.float32)
batch = _core.Batch(["late", "early", "host"], [item, copy, host])
options = (0, None, None, None, None, None, (), None, None)
arena = _core.allocate(4096, 64)
ticket = store._core.save_copy("m", batch, options, bytes([1, 0, 1]), arena)
late[:] = 0
host[:] = 0
ticket.wait()
back = store.load("m")
assert (back["late"] == 2.5).all() and (back["early"] == 3.5).all() and (back["host"] == 4.5).all()
check()
""")


def test_streams_are_followed(run) -> None:  # type: ignore[no-untyped-def]
    run("""
store = ligament.Store("mem:")
array, item = tensor(100, 0)
for number, stream in enumerate((0, 1, 2, fake.fake_cuda_stream())):
    fake.fake_cuda_fill(stream, item[1], number + 1, 400)
    _core.follow(0, stream)
    store._core.save(str(number), _core.Batch(["x"], [item]), (0, None, None, None, None, None, ()))
    assert (store.load(str(number))["x"].view(np.uint8) == number + 1).all()
stream = fake.fake_cuda_stream()
fake.fake_cuda_capture(ctypes.c_void_p(stream), 1)
try:
    _core.follow(0, stream)
    raise SystemExit("a captured stream was followed")
except ligament.InvalidError as error:
    assert "captured" in str(error)
check()
""")


def test_without_a_driver_the_kind_is_unavailable() -> None:
    """Where there is one, device 63 is unlikely."""
    import ligament
    from ligament import _core

    with pytest.raises(ligament.UnsupportedError, match="CUDA"):
        _core.follow(63, 0)


def test_the_last_tensors_go_into_a_snapshot_and_tied_ones_once() -> None:
    memories = {0: (1000, 600), 1: (2000, 100), 2: (3000, 512), 3: (2000, 100)}
    assert torch_gpu._choose(memories, 1 << 20) == (
        {(2000, 100): 0, (3000, 512): 512, (1000, 600): 1024},
        2048,
    )
    assert torch_gpu._choose(memories, 1024) == ({(2000, 100): 0, (3000, 512): 512}, 1024)
    assert torch_gpu._choose(memories, 511) == ({}, 0)

"""A plugin of pytest: rows cached on the CPU are in "device memory" of the fake driver, whose
kernels work on them. For `pytest -p kernels_on_host`."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from ligament import _core
from ligament.params import device_rows, row_kernels

_fake = ctypes.CDLL("libcuda.so.1")
_fake.fake_cuda_stream.restype = ctypes.c_void_p
_fake.fake_cuda_breach.restype = ctypes.c_char_p
_fake.fake_cuda_calls.argtypes = (ctypes.c_char_p,)
_stream = _fake.fake_cuda_stream()
if os.environ.get("KERNELS_REFUSED"):
    _fake.fake_cuda_fail(b"cuModuleLoadDataEx", 1, 222)


class _Finished:
    """What was queued has run when a call returns."""

    real = _core.DeviceRows

    def __init__(self, *rows: Any) -> None:
        self._core = self.real(*rows)

    def find(self, *batch: Any) -> bool:
        found = self._core.find(*batch)
        _fake.fake_cuda_finish(ctypes.c_void_p(_stream))
        return found

    def step(self, *batch: Any) -> None:
        self._core.step(*batch)
        _fake.fake_cuda_finish(ctypes.c_void_p(_stream))


_core.DeviceRows = _Finished  # type: ignore[misc, assignment]
row_kernels._number = lambda cache: 0
device_rows.DeviceRows._number = lambda self: _stream  # type: ignore[method-assign]


def pytest_sessionfinish(session: Any) -> None:
    print(f"{_fake.fake_cuda_calls(b'cuLaunchKernel')} launches")
    if _fake.fake_cuda_breach() != b"":
        print(f"breach: {_fake.fake_cuda_breach().decode()}")
        session.exitstatus = 1

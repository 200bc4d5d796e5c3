"""No copy of the model, no stop of the world: memory, and the lock of the interpreter."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest

MEASURED = """
import sys, numpy as np, ligament
def anonymous():
    with open("/proc/self/status") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith("RssAnon")) // 1024
kind, place = sys.argv[1], sys.argv[2]
store = ligament.Store(place)
size = 24 << 20  # 192 MiB
if kind == "torch":
    import torch
    torch.set_num_threads(1)
    value = {"x": torch.arange(float(size), dtype=torch.float64), "y": torch.zeros(3)}
else:
    value = {"x": np.arange(float(size)), "y": np.zeros(3)}
store.save("warm", {"x": np.zeros(1 << 20)})
store.load("warm")
start = anonymous()
store.save("m", value)
saved = anonymous()
store.load("m", into=value)
loaded = anonymous()
ticket = store.save("later", value, wait=False)
called = anonymous()
ticket.result()
views = store.load("m", map=True)
assert views["x"][-1] == size - 1
mapped = anonymous()
print(saved - start, loaded - start, called - start, mapped - start)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_no_copy_of_the_model(kind: str, tmp_path: Path, script: Any) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    done = script(MEASURED, kind, tmp_path / "s", env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    saved, loaded, called, mapped = map(int, done.stdout.split())
    assert saved <= 64 and loaded <= 64 and mapped <= 280
    if kind == "torch":  # shared until it is written; NumPy has to copy
        assert called <= 64


ALLOCATION_FREE = """
import sys, tracemalloc, numpy as np, ligament
store = ligament.Store(sys.argv[1])
value = {f"t{i}": np.zeros(1000) for i in range(100)}
store.save("m", value)
for _ in range(3):
    store.load("m", into=value)
    store.save("m", value, replace=True)
def anonymous():
    with open("/proc/self/status") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
tracemalloc.start()
before, rss = tracemalloc.get_traced_memory()[0], anonymous()
for _ in range(50):
    store.load("m", into=value)
    store.save("m", value, replace=True)
print(tracemalloc.get_traced_memory()[0] - before, anonymous() - rss)
"""


def test_nothing_is_left_behind_by_calls(tmp_path: Path, script: Any) -> None:
    done = script(ALLOCATION_FREE, tmp_path / "s")
    assert done.returncode == 0, done.stderr
    python, kilobytes = map(int, done.stdout.split())
    assert python < 100_000 and kilobytes < 16_000


def test_the_interpreter_goes_on(files: ligament.Store) -> None:
    """While a call is in the library another thread runs Python code."""
    batch = ligament._core.Batch(["x"], [np.random.default_rng(0).random(8 << 20)])
    stop = threading.Event()
    turns: list[float] = []

    def work() -> None:
        while not stop.is_set():
            turns.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for i in range(20):  # a busy machine may give the other thread no turn in one of them
            begin = time.perf_counter()
            files._core.save(f"m{i}", batch, (0, None, None, None, None, None))
            quarter = (time.perf_counter() - begin) / 4
            if any(begin + quarter < turn < begin + 3 * quarter for turn in turns):
                return
    finally:
        stop.set()
        thread.join()
    pytest.fail("no Python code ran while a save was going on")


def test_importing_starts_nothing(script: Any) -> None:
    done = script(
        "import sys, threading, ligament, os\n"
        "print(threading.active_count(), len(os.listdir('/proc/self/task')))\n"
        "print([m for m in ('torch', 'tensorflow', 'jax', 'keras') if m in sys.modules])"
    )
    assert done.stdout == "1 1\n[]\n", done.stdout + done.stderr

"""A process that holds the write lock of a store and does not go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAVES = """
import fcntl, os, signal, struct, sys, threading
import numpy, ligament

place = sys.argv[1]
store = ligament.Store(place + "?wait=86400")
store.save("first", {"w": numpy.zeros(1 << 16, numpy.float32)})  # reserves ids for the next ones

# The lock is one of an open file: that of this file keeps the store's own out.
head = os.open(place + "/log/head", os.O_RDWR)
F_OFD_SETLK = 37
WRITE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
fcntl.fcntl(head, F_OFD_SETLK, WRITE)


def interrupt():
    while len([name for name in os.listdir(place + "/packs") if name.endswith(".pack")]) < 2:
        pass
    os.kill(os.getpid(), signal.SIGINT)


weights = {"w": numpy.ones(1 << 16, numpy.float32)}
threading.Thread(target=interrupt).start()
try:
    store.save("m", weights)
except KeyboardInterrupt:
    os.close(head)
    store.save("n", weights)
    print(sorted(model.name for model in store.models()))
"""


def test_ctrl_c_ends_a_save(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVES, str(tmp_path / "store")]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60)
    assert (done.stdout, done.returncode) == ("['first', 'n']\n", 0), done.stderr

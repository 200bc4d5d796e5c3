"""A client that saves a large model while a thread of it overwrites the memory that it shares with
the server. It may crash.

    hostile_writer.py URI NAME

Prints "saved" if the server acknowledged the save.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
from pathlib import Path

import ligament
from serve_worker import content

# Two rings (src/net/shm/ring.h): control words, a first area, then the area of large messages.
# A client that breaks the control words or a message's head loses its session at once.
FIRST_BYTES, FULL_BYTES = 4096 + (256 << 10), 2 << 20
BURST = 64


def shared_areas() -> list[tuple[int, int]]:
    areas = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "rw-s" in line and "memfd:ligament" in line:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            for ring in (begin, begin + (end - begin) // 2):
                areas.append((ring + FIRST_BYTES, ring + FIRST_BYTES + FULL_BYTES))
    return areas


def scribble(areas: list[tuple[int, int]], ended: threading.Event) -> None:
    rng = random.Random(1)
    while not ended.is_set():
        begin, end = rng.choice(areas)
        ctypes.memset(rng.randrange(begin, end - BURST), rng.randrange(256), BURST)


def main() -> None:
    uri, name = sys.argv[1:]
    ended = threading.Event()
    model = {"w": content(name, 24 << 20)}
    with ligament.Store(uri) as store:
        thread = threading.Thread(target=scribble, args=(shared_areas(), ended), daemon=True)
        thread.start()
        store.save(name, model)
        print("saved", flush=True)
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()

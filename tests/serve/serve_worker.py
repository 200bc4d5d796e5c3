"""A client that saves, loads and retires until it is asked to stop; prints what was acknowledged.

    serve_worker.py URI NAME SEED

One JSON line per acknowledged change, flushed before the next begins. Ends at the end of its input.
"""

from __future__ import annotations

import json
import random
import select
import sys

import ligament
import numpy as np


def content(name: str, size: int) -> np.ndarray:
    seed = int.from_bytes(name.encode(), "little") % (1 << 63)
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def size_of(name: str) -> int:
    """Inline, small pack or large enough to be asked for in pieces."""
    return (100, 200_000, 6_000_000)[int(name.rsplit("-", 1)[1]) % 3]


def tell(**fact: object) -> None:
    print(json.dumps(fact), flush=True)


def step(store: ligament.Store, mine: list[str], name: str, rng: random.Random) -> None:
    tell(begin=name)
    store.save(name, {"w": content(name, size_of(name))})
    tell(saved=name)
    mine.append(name)
    other = rng.choice(mine)
    loaded = store.load(other)
    assert np.array_equal(loaded["w"], content(other, size_of(other))), other
    if len(mine) > 5:
        gone = mine.pop(rng.randrange(len(mine)))
        tell(retiring=gone)
        store.retire(gone)
        tell(retired=gone)


def main() -> None:
    uri, prefix, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    mine: list[str] = []
    with ligament.Store(uri) as store:
        number = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            step(store, mine, f"{prefix}-{number}", rng)
            number += 1
    tell(ended=number)


if __name__ == "__main__":
    main()

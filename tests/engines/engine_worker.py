"""A writer among several: saves, replaces, loads, retires and compacts until its input ends.

    engine_worker.py URI NAME SEED

One JSON line before and one after every change, flushed: {"begin": model, "version": n} and
{"done": model, "version": n or null}. A change that is refused or whose outcome is unknown is
{"failed": sentence}: it may or may not have been made.
"""

from __future__ import annotations

import json
import random
import select
import sys

import ligament
import numpy as np

SIZES = (100, 200_000, 5_000_000)  # in the commit itself, one stripe, several
OWN, SHARED = 4, 2


def content(name: str, version: int) -> np.ndarray:
    seed = int.from_bytes(f"{name}/{version}".encode(), "little") % (1 << 63)
    size = SIZES[seed % len(SIZES)]
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def verify(store: ligament.Store, name: str) -> int | None:
    """The version of a model, whose bytes must be that version's; None if there is no such model.
    The handle pins the packs, even if another process retires the model."""
    try:
        model = store[name]
        tree = store.load(model)
    except ligament.NotFoundError:
        return None
    version = int(model.tags["version"])
    assert np.array_equal(tree["w"], content(name, version)), f"{name} is not version {version}"
    return version


def tell(**fact: object) -> None:
    print(json.dumps(fact), flush=True)


def change(store: ligament.Store, name: str, version: int | None) -> None:
    tell(begin=name, version=version)
    try:
        if version is None:
            store.retire(name)
        else:
            tree = {"w": content(name, version)}
            store.save(name, tree, tags={"version": str(version)}, replace=True)
    except ligament.Error as error:
        # Another may have retired it. A save that finds something missing lost its claim.
        if version is None and isinstance(error, ligament.NotFoundError):
            tell(done=name, version=None)
        else:
            tell(failed=str(error))
    else:
        tell(done=name, version=version)


def step(store: ligament.Store, prefix: str, number: int, rng: random.Random) -> None:
    name = f"{prefix}-{rng.randrange(OWN)}"
    if rng.random() < 0.2:
        name = f"shared-{rng.randrange(SHARED)}"
    change(store, name, None if rng.random() < 0.2 else number)
    verify(store, f"shared-{rng.randrange(SHARED)}")
    verify(store, f"{prefix}-{rng.randrange(OWN)}")
    if rng.random() < 0.1:
        store.compact()


def main() -> None:
    uri, prefix, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    with ligament.Store(uri) as store:
        number = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            number += 1
            step(store, prefix, number, rng)


if __name__ == "__main__":
    main()

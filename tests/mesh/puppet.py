"""A member that is driven by the test: joins with the arguments of its first line, then runs every
line it reads and answers with one: the value, or the exception's name and sentence."""

import json
import sys

import ligament
import numpy as np

ONES = np.ones(4, "f4")


def push(count: int = 4) -> ligament.mesh.Request:
    """A request whose answer `got` holds."""
    global got
    got = np.zeros(count, "f4")
    return m.push_pull([np.ones(count, "f4")], [1], [got], [2])


def storm(rounds: int) -> bool:
    """Large requests, one after the other."""
    for _ in range(rounds):
        m.wait(push(300000), 20000)
    return bool((got == 1).all())


def echo(mode: str = "all", timeout_ms: float = 20000) -> list[int]:
    """Answers one batch; the workers that were in it."""
    batch = m.get_batch(timeout_ms, mode)
    for handler, tensors, _ in batch:
        m.respond(tensors, handler)
    return [handler.worker for handler, _, _ in batch]


def serve(mode: str) -> int:
    """Answers until the workers are gone."""
    count = 0
    while True:
        try:
            count += len(echo(mode, None))
        except (ligament.ClosedError, ligament.PeerError):
            return count


got = ONES
try:
    m = ligament.Mesh(**json.loads(sys.stdin.readline()))
except ligament.Error as error:
    print(f"{type(error).__name__}: {error}")
    raise SystemExit(0) from None
print("here")
for line in sys.stdin:
    try:
        print(repr(eval(line)))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

"""A node that is driven by the test: joins with the arguments of its first line, then runs every
line it reads and answers with one: the value, or the exception's name and sentence."""

import json
import sys
import threading

import ligament
import numpy as np
from ligament import params

options = json.loads(sys.stdin.readline())
tables, kind = options.pop("tables"), options.pop("kind", {})
try:
    if options.get("role") == "scheduler":
        print("here")
        params.scheduler(**options)
        raise SystemExit(0)
    params.setup(**options)
    server = params.Server(tables, **kind)
    kv = params.Worker(0, server)
except ligament.Error as error:
    print(f"{type(error).__name__}: {error}")
    raise SystemExit(0) from None
print("here")


def counted(call):
    """What a call said, and whether another thread ran meanwhile."""
    ticks, ended = [0], threading.Event()

    def tick():
        while not ended.is_set():
            ticks[0] += 1
            ended.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        call()
        said = "done"
    except ligament.Error as error:
        said = type(error).__name__
    ended.set()
    thread.join()
    return said, ticks[0] > 5


got = np.zeros(400, "f4")
ONES = np.ones(400, "f4")
for line in sys.stdin:
    try:
        print(repr(eval(line)))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        print("KeyboardInterrupt")

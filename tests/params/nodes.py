"""Several nodes in one process: each has its server, and a thread for each worker."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from ligament import params


def together(calls: list[Callable[[], Any]], timeout: float = 60) -> list[Any]:
    """Runs them side by side; the first failure is raised."""
    results: list[Any] = [None] * len(calls)
    failures: list[BaseException] = []

    def run(at: int) -> None:
        try:
            results[at] = calls[at]()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for one in threads:
        one.start()
    end = time.monotonic() + timeout
    while any(one.is_alive() for one in threads) and not failures:
        assert time.monotonic() < end, "a thread does not end"
        for one in threads:
            one.join(0.01)
    if failures:  # the others may wait for the one that failed
        raise failures[0]
    return results


class Nodes:
    """`run(work)` calls work(worker, node, id) on every worker, all at the same time."""

    def __init__(
        self, count: int, lengths: Any = 4, keys: int | None = 100, threads: int = 1, **options: Any
    ) -> None:
        names = ("use_techniques", "round_us", "timeout_ms", "liveness_ms", "hashed")
        common = {name: options.pop(name) for name in names if name in options}
        address = f"inproc:{uuid.uuid4().hex}"
        setups = [
            params.setup(keys, threads, rank=rank, servers=count, address=address, **common)
            for rank in range(count)
        ]
        self.servers: list[params.Server] = together(
            [lambda one=one: params.Server(lengths, setup=one, **options) for one in setups]
        )
        self.workers = [[params.Worker(i, one) for i in range(threads)] for one in self.servers]

    def run(self, work: Callable[[params.Worker, int, int], Any], timeout: float = 60) -> list[Any]:
        """What each returned, node by node."""
        return together(
            [
                lambda worker=worker, node=node, number=number: work(worker, node, number)
                for node, workers in enumerate(self.workers)
                for number, worker in enumerate(workers)
            ],
            timeout,
        )

    def finish(self) -> None:
        """All workers finalize, all nodes leave."""
        self.run(lambda worker, node, number: worker.finalize())
        together([one.shutdown for one in self.servers])

    def close(self) -> None:
        """Leaves at once."""
        for one in self.servers:
            one.close()

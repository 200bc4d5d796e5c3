"""AdaPM's module on the parameter manager: the same calls; DMLC_* variables give the role of a
process. Rows are float32; "async" can be given by position, as with the original."""

from __future__ import annotations

from typing import Any

import numpy as np

from ligament import environment, host_secret, params

__all__ = ["Server", "Worker", "scheduler", "setup"]

_LONG_MS = 600000


def setup(
    num_keys: int, num_threads: int, use_techniques: str = "", num_channels: int = -1
) -> None:
    """Must be called first, in every process but the scheduler."""
    secret = host_secret.for_address(environment.node().address)
    params.setup(
        num_keys, num_threads, use_techniques, num_channels, secret=secret, timeout_ms=_LONG_MS
    )


def scheduler(num_keys: int, num_threads: int) -> None:
    """Serves until all nodes have left."""
    secret = host_secret.for_address(environment.node("scheduler").address)
    params.scheduler(num_keys, num_threads, secret=secret, timeout_ms=_LONG_MS)


class Server(params.Server):
    """A node: one length for all keys, or a tensor with one for each."""

    def __init__(self, value_lengths: Any) -> None:
        super().__init__(value_lengths)
        self._lengths = self._tables[0].lengths

    def enable_sampling_support(  # type: ignore[override]
        self, scheme: str, with_replacement: bool, distribution: str, min: int, max: int
    ) -> None:
        """Keys from `min` to `max` - 1, "uniform" or "log-uniform"."""
        first, last = int(min), int(max)
        kind: Any = distribution
        if self._lengths is not None and 0 <= first < last <= len(self._lengths):
            kind = self._weights(distribution, first, last)
        super().enable_sampling_support(scheme, with_replacement, kind, first, last)

    def _weights(self, distribution: str, first: int, last: int) -> Any:
        """Sampled rows have one length, the most frequent one. Others are never drawn; the original
        would write past the end of the values."""
        assert self._lengths is not None
        lengths = self._lengths[first:last]
        found, counts = np.unique(lengths, return_counts=True)
        if len(found) == 1 or distribution not in ("uniform", "log-uniform"):
            return distribution
        weights = (lengths == found[counts.argmax()]).astype(np.float64)
        if distribution == "log-uniform":
            weights *= np.log1p(1.0 / np.arange(1, last - first + 1))
        return weights


class Worker(params.Worker):
    """A worker thread of a node."""

    def __init__(self, customer_id: int, server: Server) -> None:
        super().__init__(customer_id, server)

    def prepare_sample(self, K: int, start: int, end: int = 0) -> int:
        """Prepares K samples."""
        return super().prepare_sample(K, start, end)

    def wait_sync(self, timeout_ms: float | None = None) -> None:
        """The original waits for two rounds, after which earlier pushes are in every replica; here
        this is a flush."""
        super().wait_sync(timeout_ms)
        self.flush(timeout_ms)

    def wait_replica_sync(self) -> None:
        """The old name of `wait_sync`."""
        self.wait_sync()

    def get_key_size(self, key_id: int = 0) -> int:
        """Elements of a key's row."""
        return super().get_key_size(key_id)

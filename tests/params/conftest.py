"""Fixtures of the parameter manager's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "mesh"))

import processes  # noqa: E402
from ligament import params  # noqa: E402
from nodes import Nodes  # noqa: E402


@pytest.fixture
def party() -> Iterator[processes.Party]:
    """Processes that end with the test."""
    yield from processes.party()


Alone = Callable[..., tuple[params.Server, params.Worker]]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    """Makes a server of one process, and its worker."""
    made: list[params.Server] = []

    def make(lengths: Any = 4, keys: int | None = 100, threads: int = 1, **options: Any) -> Any:
        setup = params.setup(keys, threads)
        made.append(params.Server(lengths, setup=setup, **options))
        return made[-1], params.Worker(0, made[-1])

    yield make
    for server in made:
        server.close()


@pytest.fixture
def nodes() -> Iterator[Callable[..., Nodes]]:
    """Makes several nodes in this process, each with threads of its own."""
    made: list[Nodes] = []

    def make(*args: Any, **kwargs: Any) -> Nodes:
        made.append(Nodes(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close()

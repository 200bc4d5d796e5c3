"""Fixtures of the mesh's tests."""

from __future__ import annotations

from collections.abc import Iterator

import processes
import pytest


@pytest.fixture
def party() -> Iterator[processes.Party]:
    """Processes that end with the test."""
    yield from processes.party()

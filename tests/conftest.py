"""Fixtures for every test. .venv points at python/: after a build the tests run from the tree."""

import os
import signal
from pathlib import Path

import pytest

# Set before any framework is imported: they log and look for devices at import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Tests run side by side; one that takes every core makes the others wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts a job in the background has it ignore SIGINT, nohup has it ignore SIGHUP, and
# children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the tree."""
    return ROOT


@pytest.fixture(scope="session")
def program() -> Path:
    """The `ligament` program of this build."""
    path = ROOT / "python/ligament/bin/ligament"
    assert path.exists(), "no program: run `make` first"
    return path


@pytest.fixture(scope="session")
def library() -> Path:
    """libligament.so.0 of this build."""
    path = ROOT / "python/ligament/lib/libligament.so.0"
    assert path.exists(), "no library: run `make` first"
    return path


@pytest.fixture
def terminals() -> None:
    """Skips where no terminal can be made: a root without /dev/pts."""
    try:
        for end in os.openpty():
            os.close(end)
    except OSError as error:
        pytest.skip(f"no terminal can be made here: {error}")

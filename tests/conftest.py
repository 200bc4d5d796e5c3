"""Fixtures for every test. .venv points at python/: after a build the tests run from the tree."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from warm_python import WarmPython

# Set before any framework is imported: they log and look for devices at import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# The program reads and writes some formats through Python.
os.environ.setdefault("LIGAMENT_PYTHON", sys.executable)
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


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Makes a folder once for all workers of this run: `once(name, make)` returns it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def build(name: str, make: Callable[[Path], None]) -> Path:
        folder, made = shared / name, shared / f"{name}.made"
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                folder.mkdir(exist_ok=True)
                make(folder)
                made.touch()
        return folder

    return build


@pytest.fixture(scope="session")
def warm_torch() -> Iterator[WarmPython]:
    """Python with torch imported beforehand, and what optimizers and FSDP import at first use."""
    parts = ("torch._dynamo", "torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp")
    server = WarmPython("torch", *parts)
    yield server
    server.close()


@pytest.fixture(scope="session")
def warm_tensorflow() -> Iterator[WarmPython]:
    """Python with tensorflow imported beforehand, for Keras 3."""
    server = WarmPython("tensorflow")
    yield server
    server.close()


@pytest.fixture(scope="session")
def warm_keras2() -> Iterator[WarmPython]:
    """Python with tensorflow imported beforehand, whose tf.keras is Keras 2."""
    pytest.importorskip("tf_keras", reason="pip install --no-deps tf_keras")
    legacy = {"TF_USE_LEGACY_KERAS": "1", "KERAS_BACKEND": "tensorflow"}
    server = WarmPython("tensorflow", "tf_keras", env=os.environ | legacy)
    yield server
    server.close()


@pytest.fixture
def serve(program: Path) -> Iterator[Callable[..., str]]:
    """Starts `ligament serve` for a place, and returns the URI of the served store."""
    started: list[subprocess.Popen[str]] = []

    def start(place: object, *options: str) -> str:
        command = [str(program), "serve", str(place), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()  # it listens once it says so
        return "ligament://" + line.split("ligament://")[1].split()[0]

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0

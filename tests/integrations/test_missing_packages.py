"""A package that is not installed is a sentence with the line that installs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = {
    "import ligament.pipe": "ligament.pipe needs torch",
    "from ligament import pipe": "ligament.pipe needs torch",
    "import ligament.params.torch": "ligament.params.torch needs torch",
    "import ligament.checkpoint.dcp": "ligament.checkpoint.dcp needs torch",
    "from ligament.checkpoint.transformers import Callback": (
        "ligament.checkpoint.transformers needs transformers"
    ),
    "import ligament.checkpoint.lightning": "ligament.checkpoint.lightning needs lightning",
    "from ligament.checkpoint import CheckpointCallback": "CheckpointCallback needs keras",
    "store.load('m', framework='torch')": "framework='torch' needs torch",
    "store.load('m', framework='tensorflow')": "framework='tensorflow' needs tensorflow",
    "store.load('m', framework='jax')": "framework='jax' needs jax",
    "convert('x.pt', 'mem:#m')": "'x.pt' needs torch",
    "convert('x.h5', 'mem:#m')": "'x.h5' needs h5py",
    "convert('store#m', 'y.pt')": "framework='torch' needs torch",
    "convert('store#m', 'y.h5')": "'y.h5' needs h5py",
}
PROGRAM = """
import json, sys
absent = ("torch", "tensorflow", "jax", "keras", "tf_keras", "h5py", "lightning",
          "lightning_fabric", "pytorch_lightning", "transformers", "accelerate")
for name in absent:
    sys.modules[name] = None  # its import raises ModuleNotFoundError
import numpy, ligament
from ligament.convert import convert
store = ligament.Store("store")
store.save("m", {"w": numpy.arange(3.0)})
for call in json.loads(sys.argv[1]):
    try:
        exec(call)
        print(json.dumps("nothing was raised"))
    except ImportError as error:
        assert isinstance(error, ligament.UnsupportedError)
        print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("missing")
    for name in ("x.pt", "x.h5"):
        Path(folder, name).write_bytes(b"")
    words = [sys.executable, "-c", PROGRAM, json.dumps(list(CALLS))]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_the_sentence(said: list[str], number: int) -> None:
    call, start = list(CALLS.items())[number]
    package = start.rpartition(" ")[2]
    want = f"{start}, which is not installed: pip install {package}"
    assert said[number] == want, call

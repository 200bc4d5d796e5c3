"""Scripts of the originals, unchanged."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ligament.errors import ClosedError, InvalidError
from warm_python import WarmPython

LIGHT = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}  # quicker to import


def run(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ligament.compat", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, **options)  # type: ignore[call-overload, no-any-return]


def test_lenet5_as_the_original_describes_it(root: Path, warm_tensorflow: WarmPython) -> None:
    pytest.importorskip("tensorflow")
    script = root / "examples/python/lenet5_tmci.py"
    env = os.environ | {"KERAS_BACKEND": "tensorflow"}
    done = warm_tensorflow.run("-m", "ligament.compat", script, env=env)
    assert done.returncode == 0, done.stderr
    heads = re.findall(r"^(save|load) \S+ (\d+) tensors$", done.stdout, re.M)
    assert heads == [("save", "32"), ("save", "32"), ("load", "32")], done.stdout
    names = re.findall(r"bytes +(\S+)$", done.stdout, re.M)
    assert len(names) == 96 and names[:32] == names[32:64] == names[64:]
    assert "the weights are equal" in done.stdout


def test_modules_arguments_and_status(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("word = 'beside'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside, tmci, tmci.plugins\n"
        "from tmci.checkpoint import save_weights\n"
        "import tmci.checkpoint as again\n"
        "assert __name__ == '__main__' and again.save_weights is save_weights\n"
        "print(beside.word, sys.argv[1:], tmci.plugins.load.__module__)\n"
        "sys.exit(7)\n"
    )
    done = run(script, "a", "--b", env=LIGHT)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "beside ['a', '--b'] ligament.compat.tmci.plugins\n"
    assert run().returncode == 2


def test_the_package_itself_is_not_shadowed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tmci, ligament.compat.tmci as ours\n"
        "assert ours.__name__ == 'ligament.compat.tmci'\n"
    )
    assert run(script, env=LIGHT).returncode == 0


def test_command_line(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text("import sys, fserver_lib; print(fserver_lib, sys.argv[1:])")
    told = run("--help")
    assert (told.returncode, told.stderr) == (0, "") and "fserver_lib" in told.stdout
    ran = run("-m", "named", "-x", cwd=tmp_path)
    assert ran.returncode == 0 and "ligament.compat.fserver_lib" in ran.stdout, ran.stderr
    assert "['-x']" in ran.stdout
    for words, says in (([], "usage"), (["-c", "1"], "usage"), (["none.py"], "'none.py'")):
        wrong = run(*words, cwd=tmp_path)
        assert wrong.returncode == 2 and says in wrong.stderr
        assert "Traceback" not in wrong.stderr


def test_flags_are_checked() -> None:
    """They are numbers on a GPU; tests/mesh/test_mesh_gpu.py uses them."""
    torch = pytest.importorskip("torch")
    fserver = importlib.import_module("ligament.compat.fserver_lib")
    flags = importlib.import_module("ligament.mesh.device_flags")
    with pytest.raises(ClosedError):
        fserver.seq_add_one(torch.zeros(1, dtype=torch.int64))
    number = torch.zeros(1, dtype=torch.int64)
    for call in (flags.write, flags.wait):
        with pytest.raises(InvalidError, match="int64 tensor on a GPU"):
            call(None, number, number)
    with pytest.raises(InvalidError, match="pinned host memory"):
        flags.map_pinned(None, number, 0)
    assert not hasattr(fserver, "nothing")

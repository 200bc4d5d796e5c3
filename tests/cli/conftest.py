"""What the tests of the program share: running it, stores to look at, plugins to load."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Program:
    """Runs the program. `fails` wants one sentence and its exit status."""

    def __init__(self, path: Path, folder: Path):
        self.path = path
        self.folder = folder

    def run(self, *words, env=None, **options) -> subprocess.CompletedProcess:
        environment = {k: v for k, v in os.environ.items() if k != "LIGAMENT_PLUGINS"}
        return subprocess.run(
            [str(self.path), *map(str, words)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=environment | (env or {}),
            **options,
        )

    def __call__(self, *words, **options) -> str:
        done = self.run(*words, **options)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.stderr == ""
        return done.stdout

    def json(self, *words, **options):
        return json.loads(self(*words, "--json", **options))

    def fails(self, *words, status=1, **options) -> str:
        done = self.run(*words, **options)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.stderr.startswith("ligament: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr


@pytest.fixture
def ligament(request, tmp_path) -> Program:
    """The program, in a folder of its own. LIGAMENT_TEST_PROGRAM names that of another build."""
    other = os.environ.get("LIGAMENT_TEST_PROGRAM")
    return Program(Path(other) if other else request.getfixturevalue("program"), tmp_path)


def compile_plugin(folder: Path, name: str, source: str) -> Path:
    """A plugin made of C text."""
    (folder / f"{name}.c").write_text(source)
    library = folder / f"lib{name}.so"
    command = ["cc", "-shared", "-fPIC", f"-I{ROOT}/include", f"{name}.c", "-o", library.name]
    subprocess.run(command, cwd=folder, check=True)
    return library


@pytest.fixture(scope="session")
def build_plugin():
    return compile_plugin


@pytest.fixture(scope="session")
def dummy(tmp_path_factory) -> Path:
    """The plugin of the examples."""
    folder = tmp_path_factory.mktemp("dummy")
    return compile_plugin(folder, "dummy", (ROOT / "examples/plugin/dummy.c").read_text())

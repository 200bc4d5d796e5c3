"""Runs the program `ligament`, whose `cp` handles the formats that need no Python."""

from __future__ import annotations

import os
import subprocess
import sys

from ..errors import UnsupportedError


def find() -> str:
    """In the package of a source tree, else next to the interpreter of a wheel."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in (os.path.join(package, "bin"), os.path.dirname(sys.executable)):
        path = os.path.join(folder, "ligament")
        if os.access(path, os.X_OK):
            return path
    raise UnsupportedError(
        "the program `ligament` is neither in the package nor next to the Python interpreter"
    )


def copy(words: list[str]) -> int:
    """Runs `ligament cp WORDS` and returns its exit status."""
    sys.stdout.flush()
    return subprocess.run([find(), "cp", *words], check=False).returncode

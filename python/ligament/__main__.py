"""`python -m ligament` runs the program `ligament` of the same installation."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

_NAME = "ligament"


def _candidates() -> Iterator[Path]:
    """Possible locations, most reliable first: in a source tree, the installer's location, the
    folder of scripts."""
    yield Path(__file__).parent / "bin" / _NAME
    try:
        files = importlib.metadata.files("ligament") or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    yield from (Path(str(file.locate())) for file in files if file.parts[-2:] == ("bin", _NAME))
    yield Path(sysconfig.get_path("scripts")) / _NAME


def execute(words: Sequence[str]) -> NoReturn:
    """Replaces this process with `ligament WORDS`."""
    for path in _candidates():
        if path.is_file() and os.access(path, os.X_OK):
            sys.stdout.flush()
            os.execv(path, [_NAME, *words])
    sys.exit("ligament: the program 'ligament' is missing: install the package ligament again")


if __name__ == "__main__":
    execute(sys.argv[1:])

#!/usr/bin/env python3
"""Commits of a file volume against a bare append with fdatasync (catalog.c).

commits.py [--rounds 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from bars import Bar, report  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    program = HERE.parent / "build" / "bench" / "catalog"
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        command = [str(program), folder, str(given.rounds)]
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(text.rsplit("\n", 2)[0])
    one, eight = map(float, re.findall(r"process(?:es)?: ([0-9.]+) x", text))
    (opened,) = map(float, re.findall(r"current index: ([0-9.]+) ms", text))
    bars = [
        Bar("commit rate, 1 process / bare append and fdatasync", one, 0.7, at_least=True),
        Bar("commit rate, 8 processes / 1 process", eight, 2, at_least=True),
        Bar("time to open a store with a current index", opened, 1, unit="ms"),
    ]
    return report(bars, given.json)


if __name__ == "__main__":
    sys.exit(main())

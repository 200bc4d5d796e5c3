"""`python -m ligament.convert` is `ligament cp` with this interpreter."""

import os
import sys

from ..__main__ import execute

if __name__ == "__main__":
    os.environ["LIGAMENT_PYTHON"] = sys.executable
    execute(["cp", *sys.argv[1:]])

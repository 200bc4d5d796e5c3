"""Scripts written for AdaPM's bindings run unchanged under `python -m ligament.compat`."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Party

pytest.importorskip("torch")

SCRIPT = Path(__file__).parent / "adapm" / "nodes_script.py"
RUN = """
import runpy, sys
sys.argv[0] = "compat"
runpy.run_module("ligament.compat", run_name="__main__")
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_script(party: Party, method: str) -> None:
    port = party.address.split(":")[1]
    out = party.start(RUN, str(SCRIPT), port, method).end()
    assert out.count("ROWS ARE RIGHT") == 4, out

"""Scripts written for StepMesh run unchanged under `python -m ligament.compat`."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Party

HERE = Path(__file__).parent / "stepmesh"
RUN = """
import runpy, sys
sys.argv[0] = "compat"
runpy.run_module("ligament.compat", run_name="__main__")
"""


def start(party: Party, script: str, workers: int, servers: int, scheduler: bool) -> list[str]:
    host, port = party.address.split(":")
    names = ["scheduler"] * scheduler + ["server"] * servers + ["worker"] * workers
    members = []
    for i, role in enumerate(names):
        first = names.index(role)
        environ = {
            "DMLC_ROLE": role,
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
            "DMLC_NODE_RANK": str(i - first),
            "DMLC_PS_ROOT_URI": host,
            "DMLC_PS_ROOT_PORT": port,
            "STEPMESH_GPU": "0",
            "STEPMESH_BAKCEND": "CPU",
            "LIGAMENT_SCHEDULER": str(int(scheduler)),
        }
        members.append(party.start(RUN, str(HERE / script), environ=environ))
    return [one.end() for one in members]


@pytest.mark.parametrize(
    ("script", "says", "workers", "servers", "scheduler"),
    [
        ("sum_script.py", "SUMS ARE RIGHT", 2, 2, True),
        ("stages_script.py", "STAGES ARE RIGHT", 1, 1, True),
        ("dynamic_script.py", "ROWS ARE RIGHT", 2, 1, False),
    ],
)
def test_script(
    party: Party, script: str, says: str, workers: int, servers: int, scheduler: bool
) -> None:
    outs = start(party, script, workers, servers, scheduler)
    assert sum(says in out for out in outs) == workers, outs

"""Scripts written for StepMesh run unchanged under `python -m ligament.compat`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from processes import Port, clean
from warm_python import WarmPython

HERE = Path(__file__).parent / "stepmesh"


def start(
    python: WarmPython, port: Port, script: str, workers: int, servers: int, scheduler: bool
) -> list[str]:
    host, number = port.address.split(":")
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
            "DMLC_PS_ROOT_PORT": number,
            "STEPMESH_GPU": "0",
            "STEPMESH_BAKCEND": "CPU",
            "LIGAMENT_SCHEDULER": str(int(scheduler)),
        }
        words = ("-m", "ligament.compat", HERE / script)
        members.append(python.start(*words, env=clean() | environ))
    done = [one.wait(120) for one in members]
    assert not any(one.returncode for one in done), "\n".join(one.stderr for one in done)
    return [one.stdout for one in done]


@pytest.mark.parametrize(
    ("script", "says", "workers", "servers", "scheduler"),
    [
        ("sum_script.py", "SUMS ARE RIGHT", 2, 2, True),
        ("stages_script.py", "STAGES ARE RIGHT", 1, 1, True),
        ("dynamic_script.py", "ROWS ARE RIGHT", 2, 1, False),
    ],
)
def test_script(
    warm_torch: WarmPython, script: str, says: str, workers: int, servers: int, scheduler: bool
) -> None:
    with closing(Port()) as port:
        outs = start(warm_torch, port, script, workers, servers, scheduler)
    assert sum(says in out for out in outs) == workers, outs

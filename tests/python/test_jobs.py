"""The job scripts, with stand-ins for srun and mpiexec that start the processes on this machine."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SHOW = """
import json, os, sys
from ligament import environment
place = environment.place()
secret = environment.secret()
print(json.dumps([place.source, place.role, place.rank, place.workers, place.servers,
                  place.address, len(secret), os.environ["LIGAMENT_SECRET_FILE"], sys.argv[1:]]))
"""
MESH = """
import numpy as np
import ligament

mesh = ligament.Mesh(timeout_ms=60000)
out = np.zeros(8, np.float32)
for step in range(10):
    try:
        mesh.wait(mesh.push_pull([np.full(8, step, np.float32)], [0], [out], [1]), 60000)
        assert (out == 3 * step).all()
    except ligament.InvalidError:  # push_pull is for workers
        for handler, tensors, _ in mesh.get_batch(timeout_ms=60000):
            mesh.respond([tensors[0] * 3], handler)
mesh.stop(timeout_ms=60000)
print("worked")
"""
SRUN = """#!/bin/sh
echo "srun $1 $2" >&2
shift 2
for i in 0 1 2; do
    SLURM_PROCID=$i SLURM_NTASKS=3 SLURM_STEP_ID=0 "$@" || exit 1
done
"""
MPIEXEC = """#!/bin/sh
if [ "$1" = --version ]; then echo "mpiexec (OpenRTE) 4.1"; exit; fi
count=$2; shift 2
while [ "$1" = -x ]; do echo "passed $2" >&2; shift 2; done
i=0
while [ $i -lt "$count" ]; do
    OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$count "$@" || exit 1
    i=$((i + 1))
done
"""


@pytest.fixture
def job(tmp_path):
    """Runs a job script with the stand-ins; the lines that the processes print."""
    tools = tmp_path / "tools"
    tools.mkdir()
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    for name, text in (("srun", SRUN), ("mpiexec", MPIEXEC), ("python3", python)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "mesh.py").write_text(MESH)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PBS", "LIGAMENT"))}
    package = str(Path(sys.modules["ligament"].__file__).parents[1])

    def run(script, *words, **environ):
        command = ["bash", str(ROOT / "examples/jobs" / script), *words]
        return run_command(command, **environ)

    def run_command(command, **environ):
        environ |= {
            "PATH": f"{tools}:{kept['PATH']}",
            "HOME": str(tmp_path),
            "PYTHONPATH": package,
        }
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=kept | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    run.command = run_command
    return run


def lines(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_slurm(job, tmp_path):
    done = job(
        "slurm.sh",
        "show.py",
        "--epochs",
        "3",
        SLURM_JOB_ID="77",
        SLURM_NODELIST="a,b",
        SLURM_JOB_NODELIST="n[3-4]",
    )
    found = lines(done)
    assert [one[:5] for one in found] == [
        ["Slurm", "server", 0, 2, 1],
        ["Slurm", "worker", 0, 2, 1],
        ["Slurm", "worker", 1, 2, 1],
    ]
    assert {one[5] for one in found} == {"n3:20539"}
    assert all(one[6] == 64 and one[8] == ["--epochs", "3"] for one in found)
    assert not Path(found[0][7]).exists()
    assert "kill-on-bad-exit" in done.stderr


def test_pbs(job, tmp_path):
    nodes = tmp_path / "nodes"
    nodes.write_text("h1\nh1\nh2\nh2\n")
    done = job(
        "pbs.sh",
        PBS_JOBID="123456.server",
        PBS_NODEFILE=str(nodes),
        PROGRAM="show.py",
        LIGAMENT_SERVERS="2",
    )
    found = lines(done)
    assert [one[:5] for one in found] == [
        ["PBS", "server", 0, 2, 2],
        ["PBS", "server", 1, 2, 2],
        ["PBS", "worker", 0, 2, 2],
        ["PBS", "worker", 1, 2, 2],
    ]
    assert {one[5] for one in found} == {"h1:23457"}
    assert done.stderr.count("passed ") == 4
    assert not Path(found[0][7]).exists()


def test_launch(job, program):
    path = os.environ.get("LIGAMENT_TEST_PROGRAM", str(program))
    done = job.command(
        [path, "launch", "-w2", "-s1", "--no-prefix", "--", sys.executable, "mesh.py"]
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\n" * 3, "")


def keep(port):
    """A port that nobody else has and that stays free for who listens on it: it is bound here, and
    not listened on. What may be bound a second time is so from then on only."""
    place = socket.socket()
    try:
        place.bind(("127.0.0.1", port))
    except (OSError, OverflowError):
        place.close()
        return None
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return place


@pytest.fixture
def port():
    """One that is kept, as is the next: torchrun's own, and the mesh's."""
    while True:
        first = keep(0)
        number = first.getsockname()[1]
        with first, keep(number + 1) or contextlib.nullcontext() as second:
            if second is not None:
                yield number
                return


def test_torchrun(job, port):
    pytest.importorskip("torch")
    run = ["-m", "torch.distributed.run", "--nproc-per-node=3", f"--master-port={port}", "mesh.py"]
    done = job.command([sys.executable, *run], LIGAMENT_SERVERS="1", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("worked") == 3


@pytest.mark.parametrize("script", ["slurm.sh", "pbs.sh"])
def test_a_program_is_needed(job, script):
    done = job(script, SLURM_JOB_ID="1", PBS_JOBID="1", PBS_NODEFILE="/dev/null")
    assert done.returncode != 0
    assert "which program" in done.stderr


def test_they_can_be_run():
    for script in (ROOT / "examples/jobs").glob("*.sh"):
        assert script.stat().st_mode & stat.S_IXUSR

"""Trains on two processes until a scheduler preempts the job, and resumes at the same step.

    preempt.py               acts as the scheduler: starts, preempts (SIGTERM) and restarts the job
    preempt.py RUN FOLDER    one process of the job, as torchrun or Slurm would start it

The scheduler signals only one process; `preempted()` becomes true on both at the same step. They
save together and exit; the next job restores on any number of processes, here on one.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

STEPS = 40


def train(folder: str) -> None:
    """The training script of a user."""
    import torch
    import torch.distributed as dist
    from ligament.checkpoint import Checkpointer
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    ck = Checkpointer(f"{folder}/checkpoints", keep=2)
    at = ck.restore(model=model, optimizer=optimizer)
    first = at.step if at else 0
    step = first
    while step < STEPS and not ck.preempted():
        step += 1
        batch = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            with open(f"{folder}/progress", "a") as file:
                print(step, file=file)
        if step == 5 and first == 0:
            wait_for(f"{folder}/told")  # so that the job is still running when it is preempted
    ck.save(step, model=model, optimizer=optimizer)
    ck.close()
    print(
        f"rank {dist.get_rank()} of {dist.get_world_size()}: steps {first + 1} to {step}",
        flush=True,
    )
    dist.destroy_process_group()
    # Skips the shutdown of the interpreter: a thread of gloo may still release a tensor, and torch
    # then aborts (pytorch issue 190489).
    os._exit(0)


def wait_for(path: str) -> None:
    """Waits until the file exists."""
    while not os.path.exists(path):
        time.sleep(0.01)


def reserve() -> socket.socket:
    """Reserves a port while this is open: binds it without listening."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    return place


def start(folder: str, ranks: int, port: int) -> list[subprocess.Popen[str]]:
    """Starts the job as a scheduler does."""
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment |= {"WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "RUN", folder]
    return [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, text=True)
        for rank in range(ranks)
    ]


def ended(job: list[subprocess.Popen[str]]) -> None:
    """Waits for all processes; if one failed, the example fails."""
    if any(process.wait() for process in job):
        sys.exit("the job failed")


def schedule() -> None:
    """Acts as the scheduler."""
    with tempfile.TemporaryDirectory() as folder, reserve() as place:
        port = place.getsockname()[1]
        job = start(folder, 2, port)
        while not os.path.exists(f"{folder}/progress"):
            if any(process.poll() for process in job):
                sys.exit("the job failed")
            time.sleep(0.01)
        print("scheduler: time limit reached, sending SIGTERM to process 1", flush=True)
        job[1].send_signal(signal.SIGTERM)
        open(f"{folder}/told", "w").close()
        ended(job)
        print("scheduler: restarting the job on one process", flush=True)
        ended(start(folder, 1, port))
        with open(f"{folder}/progress") as file:
            steps = [int(line) for line in file]
        assert steps == list(range(1, STEPS + 1)), steps
        print(f"each of the {STEPS} steps ran exactly once")


if __name__ == "__main__":
    train(sys.argv[2]) if sys.argv[1:2] == ["RUN"] else schedule()

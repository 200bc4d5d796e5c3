"""A training run on two processes that its scheduler stops, and that resumes where it was.

    preempt.py               plays the scheduler: starts the job, stops it with SIGTERM, starts it
    preempt.py RUN FOLDER    one process of the job, as torchrun or Slurm would start it

The scheduler tells one process only; `preempted()` is true on both at the same step. They save
together and end; the next job restores on as many processes as it gets, here on one.
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
    """What a user writes."""
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
            wait_for(f"{folder}/told")  # so that the example is stopped while it runs
    ck.save(step, model=model, optimizer=optimizer)
    ck.close()
    print(
        f"rank {dist.get_rank()} of {dist.get_world_size()}: steps {first + 1} to {step}",
        flush=True,
    )
    dist.destroy_process_group()
    # Not through the interpreter's end: a thread of gloo may still let go of a tensor, and torch
    # aborts when it does so then (pytorch issue 190489).
    os._exit(0)


def wait_for(path: str) -> None:
    """Until somebody has made the file."""
    while not os.path.exists(path):
        time.sleep(0.01)


def reserve() -> socket.socket:
    """Reserves a port while this is open: it is bound, and not listened on."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    return place


def start(folder: str, ranks: int, port: int) -> list[subprocess.Popen[str]]:
    """The job, as a scheduler starts it."""
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment |= {"WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "RUN", folder]
    return [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, text=True)
        for rank in range(ranks)
    ]


def ended(job: list[subprocess.Popen[str]]) -> None:
    """Waits for all; a process that did not end well ends the example."""
    if any(process.wait() for process in job):
        sys.exit("the job failed")


def schedule() -> None:
    """What a scheduler does to a job."""
    with tempfile.TemporaryDirectory() as folder, reserve() as place:
        port = place.getsockname()[1]
        job = start(folder, 2, port)
        while not os.path.exists(f"{folder}/progress"):
            if any(process.poll() for process in job):
                sys.exit("the job failed")
            time.sleep(0.01)
        print("scheduler: the time is up, SIGTERM to process 1", flush=True)
        job[1].send_signal(signal.SIGTERM)
        open(f"{folder}/told", "w").close()
        ended(job)
        print("scheduler: there is room again, on one process", flush=True)
        ended(start(folder, 1, port))
        with open(f"{folder}/progress") as file:
            steps = [int(line) for line in file]
        assert steps == list(range(1, STEPS + 1)), steps
        print(f"every one of {STEPS} steps was made once")


if __name__ == "__main__":
    train(sys.argv[2]) if sys.argv[1:2] == ["RUN"] else schedule()

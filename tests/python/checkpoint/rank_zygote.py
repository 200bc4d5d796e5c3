"""Runs scenarios on several processes of a torch.distributed job, again and again.

Importing torch takes longer than any scenario, so that one process does it once, with the parts
that optimizers and FSDP import when they are first used, and forks the ranks. Told by lines of
JSON: {"scenario", "folder", "ranks", "arguments", "seconds"}; answers each with one line, a list of
{"result"}, {"error", "text"} or {"signal"}, one a rank."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
import traceback

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import numpy.random  # noqa: F401
import rank_scenarios
import torch._dynamo
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
import torch.distributed.tensor.parallel
import torch.profiler  # noqa: F401


def run(rank: int, request: dict, out: int) -> None:
    """One rank, in its own process."""
    folder = request["folder"]
    try:
        size = request["ranks"]
        if request.get("job", True):
            dist.init_process_group(
                "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size
            )
        scenario = getattr(rank_scenarios, request["scenario"])
        answer = {"result": scenario(rank, size, folder, **request["arguments"])}
    except BaseException as error:
        if os.environ.get("LIGAMENT_TEST_TRACE"):
            traceback.print_exc()
        answer = {"error": type(error).__name__, "text": str(error)}
    os.write(out, json.dumps(answer).encode())
    # Without the job's own farewell: a rank that failed must not wait for the others.
    os._exit(0)


def main() -> None:
    """Serves until its input ends."""
    gc.freeze()  # what is shared with the ranks stays shared
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if os.path.exists(f"{request['folder']}/meet"):
            os.remove(f"{request['folder']}/meet")
        pipes = {}
        for rank in range(request["ranks"]):
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(ours)
                run(rank, request, theirs)
            os.close(theirs)
            pipes[ours] = (rank, pid, [])
        print(json.dumps(collect(pipes, request)), flush=True)


def collect(pipes: dict, request: dict) -> list:
    """What every rank has to say, when all have ended or the time is up."""
    answers: list = [None] * request["ranks"]
    end = time.monotonic() + request["seconds"]
    while pipes:
        ready, _, _ = select.select(list(pipes), [], [], max(0, end - time.monotonic()))
        for one in ready or list(pipes):
            rank, pid, parts = pipes[one]
            if not ready:
                os.kill(pid, signal.SIGKILL)
            data = os.read(one, 1 << 16) if ready else b""
            parts.append(data)
            if data:
                continue
            os.close(one)
            del pipes[one]
            _, status = os.waitpid(pid, 0)
            text = b"".join(parts)
            if text:
                answers[rank] = json.loads(text)
            else:
                answers[rank] = {"signal": os.WTERMSIG(status), "late": not ready}
    return answers


if __name__ == "__main__":
    main()

"""Trains a model over two processes with a pipeline schedule, and compares the loss with that of
one process.

    python examples/python/pipe_train.py
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from ligament.pipe import pipe_model
from torch import nn

RANKS, MICROBATCHES, ROWS, STEPS = 2, 4, 8, 3


def make() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(16, 16), nn.Tanh())]
    rows = ROWS * MICROBATCHES
    return nn.Sequential(*layers), torch.randn(rows, 16), torch.randn(rows, 16)


def alone() -> list[float]:
    model, x, target = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def rank_main(rank: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    model, x, target = make()
    plan = pipe_model(
        model,
        (x[:ROWS],),
        stages=RANKS,
        devices=["cpu"] * RANKS,
        microbatches=MICROBATCHES,
        profile="flops",
    )
    schedule = plan.pipeline(loss_fn=nn.functional.mse_loss)
    mine = [p for stage in plan.stages_of(rank) for p in stage.parameters()]
    optimizer = torch.optim.SGD(mine, lr=0.1)
    wanted = alone()
    for step in range(STEPS):
        losses: list[torch.Tensor] = []
        optimizer.zero_grad()
        schedule.step(x, target=target, losses=losses)
        optimizer.step()
        if losses:  # the rank of the last stage
            mean = sum(loss.item() for loss in losses) / MICROBATCHES
            print(f"step {step}: {mean:.6f} over {RANKS} processes, {wanted[step]:.6f} in one")
            assert abs(mean - wanted[step]) < 1e-5
    dist.destroy_process_group()
    sys.stdout.flush()
    # Skips the shutdown of the interpreter: a thread of gloo may still release a tensor, and torch
    # then aborts (pytorch issue 190489).
    os._exit(0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (str(Path(folder) / "meeting"),), nprocs=RANKS)

"""What the ranks of test_stage_checkpoints do: train stages from and to checkpoints."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from ligament.checkpoint import Checkpointer
from ligament.pipe import pipe_model
from torch import nn

WORDS, WIDTH, ROWS, MICROBATCHES = 40, 16, 8, 4


class Tied(nn.Module):
    """A small language model whose head is its embedding; it has a buffer too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH)) for _ in range(5)
        )
        self.register_buffer("scale", torch.rand(WIDTH))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        value = self.embedding(words) * self.scale
        for block in self.blocks:
            value = value + block(value)
        found: torch.Tensor = self.head(value)
        return found


def make(seed: int) -> Tied:
    torch.manual_seed(seed)
    return Tied()


def optimizer_of(modules: list[Any]) -> torch.optim.Optimizer:
    """Matrices decay, vectors do not."""
    found = {id(p): p for module in modules for p in module.parameters()}.values()
    groups = [
        {"params": [p for p in found if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in found if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1000 + step)
    return torch.randint(WORDS, (ROWS, 6)), torch.randint(WORDS, (ROWS, 6))


def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def checkpoint(
    rank: int, world: int, store: str, stages: int, until: int, seed: int = 0, lists: bool = True
) -> dict[str, Any]:
    """Trains until a step, from the newest checkpoint; `world / stages` replicas of the stages."""
    plan = pipe_model(
        make(seed * (rank + 1)),
        (batch(0)[0][: ROWS // MICROBATCHES],),
        stages=stages,
        devices=["cpu"] * stages,
        profile="flops",
        method="contiguous",
        microbatches=MICROBATCHES,
    )
    replicas = [list(range(first, first + stages)) for first in range(0, world, stages)]
    groups = [dist.new_group(ranks) for ranks in replicas]
    schedule = plan.pipeline(group=groups[rank // stages], loss_fn=loss_fn)
    mine = plan.stages_of(rank % stages)
    optimizer = optimizer_of(mine)
    parts = {"model": mine if lists else mine[0], "optimizer": optimizer}
    losses = []
    with Checkpointer(store, timeout=300) as ck:
        at = ck.restore(**parts)
        for step in range(at.step if at else 0, until):
            words, target = batch(step)
            optimizer.zero_grad()
            found: list[torch.Tensor] = []
            schedule.step(words, target=target, losses=found)
            optimizer.step()
            losses.append(sum(one.item() for one in found) / MICROBATCHES if found else None)
            metrics = {"loss": losses[-1]} if found else None  # on the rank of the last stage
            saved: Any = ck.save(step + 1, **parts, metrics=metrics)
    weights = {n: t.tolist() for stage in mine for n, t in stage.state_dict().items()}
    return {"losses": losses, "weights": weights, "bytes": saved.bytes, "own": saved.own_bytes}

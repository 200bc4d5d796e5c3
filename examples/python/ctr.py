"""Predicts clicks: a model with embeddings, trained by several processes with PyTorch.

    python examples/python/ctr.py [--nodes 2]
    ligament launch -w 0 -s 2 -- python examples/python/ctr.py

`ligament.params.torch.Embedding` and `EmbeddingBag` replace torch's: the backward pass pushes
gradients, and the owner of a row applies AdaGrad to it. `ahead` reads some batches ahead from the
loader, announces which rows they will use, and advances the clock. The dense layers are rows as
well; all nodes need them all the time, so they are replicated to each node. Nodes see each other's
updates with a delay, so the loss agrees within 3 %, not bit for bit.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import training
from ligament import params
from ligament.params import torch as rows
from torch import nn

FIELDS, VALUES, ITEMS, WIDTH, BAG = 6, 200, 300, 8, 4
SHOWN, ASKED, BATCH, DENSE = 20_000, 4_000, 100, 64
FOREVER = 2**63 - 1
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def clicks() -> Batch:
    """Field values, previously viewed items, and clicks that depend on both."""
    random = torch.Generator().manual_seed(6)
    shape = (SHOWN + ASKED, FIELDS)
    skewed = (torch.rand(shape, generator=random) ** 2 * VALUES).long()
    fields = skewed + torch.arange(FIELDS) * VALUES
    items = (torch.rand((SHOWN + ASKED, BAG), generator=random) ** 2 * ITEMS).long()
    weight = torch.randn(FIELDS * VALUES, generator=random)
    taste = torch.randn(ITEMS, generator=random)
    chance = torch.sigmoid(weight[fields].sum(1) + taste[items].sum(1))
    return fields, items, (torch.rand(len(chance), generator=random) < chance).float()


class Dense:
    """The parameters of dense layers as rows of one table: pulled before a step, and their
    gradients pushed after it."""

    def __init__(self, layers: nn.Module, server: params.Server, worker: params.Worker) -> None:
        self.worker, self.parameters = worker, list(layers.parameters())
        count = sum(p.numel() for p in self.parameters)
        self.keys = server.offset("dense") + torch.arange(-(-count // DENSE))
        self.flat = torch.zeros(len(self.keys), DENSE)
        at = 0
        for p in self.parameters:  # the layers' parameters are views of `flat`
            p.data = self.flat.view(-1)[at : at + p.numel()].view_as(p).copy_(p.data)
            p.grad = None
            at += p.numel()

    def pull(self) -> None:
        """Pulls the parameters into the layers."""
        self.worker.pull(self.keys, self.flat)

    def push(self) -> None:
        """Pushes the gradients of the backward pass."""
        change = torch.cat([p.grad.flatten() for p in self.parameters])
        whole = torch.zeros_like(self.flat)
        whole.view(-1)[: len(change)] = change
        self.worker.push(self.keys, whole, True)


class Model(nn.Module):
    """Embeddings of the fields, the mean of the items' embeddings, and two dense layers."""

    def __init__(self, server: params.Server, worker: params.Worker) -> None:
        super().__init__()
        self.field = rows.Embedding(FIELDS * VALUES, WIDTH, server, table="field")
        self.item = rows.EmbeddingBag(ITEMS, WIDTH, server, table="item", mode="mean")
        torch.manual_seed(1)  # the same layers in every process
        self.layers = nn.Sequential(
            nn.Linear((FIELDS + 1) * WIDTH, 32), nn.ReLU(), nn.Linear(32, 1)
        )
        self.dense = Dense(self.layers, server, worker)

    def forward(self, fields: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """The logit of a click."""
        seen = torch.cat([self.field(fields).flatten(1), self.item(items)], 1)
        return self.layers(seen).squeeze(1)


class Trainer:
    """The model, its data, and this node's share of it."""

    def __init__(self, run: training.Run) -> None:
        dense = -(-((FIELDS + 1) * WIDTH * 32 + 32 + 32 + 1) // DENSE)
        run.setup(FIELDS * VALUES + ITEMS + dense)
        self.run = run
        self.server = params.Server(
            {"field": (FIELDS * VALUES, WIDTH), "item": (ITEMS, WIDTH), "dense": (dense, DENSE)},
            optimizer={"name": "adagrad", "lr": 0.02},
            init={"name": "normal", "std": 0.1, "seed": 8},
        )
        self.worker = params.Worker(0, self.server)
        self.model = Model(self.server, self.worker)
        self.data = clicks()
        dense_keys = self.model.dense.keys
        self.worker.begin_setup()
        if run.rank == 0:
            self.worker.set(dense_keys, self.model.dense.flat)
        self.worker.end_setup()
        self.worker.intent(dense_keys, 0, FOREVER)

    def batches(self, number: int) -> Iterator[Batch]:
        """This node's batches, in an order that every node derives from the seed."""
        random = torch.Generator().manual_seed(300 + number)
        mine = torch.randperm(SHOWN, generator=random)[self.run.rank :: self.run.nodes]
        for chosen in mine.split(BATCH):
            yield tuple(part[chosen] for part in self.data)

    def epoch(self, number: int) -> None:
        """An ordinary training loop."""
        count = SHOWN // BATCH // self.run.nodes
        model = self.model
        loader = rows.ahead(
            self.batches(number),
            keys=lambda batch: {model.field: batch[0], model.item: batch[1]},
            batches=20,
        )
        for i, (fields, items, clicked) in enumerate(loader):
            model.dense.pull()
            model.layers.zero_grad()
            logits = model(fields, items)
            nn.functional.binary_cross_entropy_with_logits(logits, clicked).backward()
            model.dense.push()
            self.run.show(number + (i + 1) / count)
        self.worker.waitall()

    @torch.no_grad()
    def loss(self) -> float:
        """The loss on held-out data."""
        self.model.dense.pull()
        fields, items, clicked = (part[SHOWN:] for part in self.data)
        logits = self.model(fields, items)
        return float(nn.functional.binary_cross_entropy_with_logits(logits, clicked))


def train(run: training.Run) -> None:
    """Trains for all epochs; after each, all updates are applied on all nodes."""
    torch.set_num_threads(1)
    trainer = Trainer(run)
    run.note(trainer.loss())
    for number in run.epochs:
        trainer.worker.barrier()
        trainer.epoch(number)
        trainer.worker.flush()
        trainer.worker.barrier()
        run.note(trainer.loss())
    trainer.worker.finalize()
    trainer.server.shutdown()


if __name__ == "__main__":
    training.main(train, 0.03, argparse.ArgumentParser(description=__doc__.splitlines()[0]), 5)

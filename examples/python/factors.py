"""Factorises a matrix in several processes, with the same bits as in one; saves and continues.

    python examples/python/factors.py [--nodes 2]
    ligament launch -w 0 -s 2 -- python examples/python/factors.py

Users and items are divided into four blocks. In each of four turns, every block of users is paired
with one block of items, and no two pairs of a turn share a user or an item, so the factors do not
depend on which node processes a pair, or in which order. Between turns the rows of the items are
relocated to the node that uses them next. Half-way through, the factors are saved to the store
factors-models and loaded by one more node.
"""

from __future__ import annotations

import argparse

import numpy as np
import training
from ligament import params

USERS, ITEMS, HIDDEN, WIDTH = 600, 400, 4, 8
BLOCKS, CELLS, BATCH = 4, 40_000, 100
STORE = "factors-models"
Rows = np.ndarray


def ratings() -> tuple[Rows, Rows, Rows]:
    """Some cells of a noisy low-rank matrix: users, items, values."""
    random = np.random.default_rng(5)
    users = random.standard_normal((USERS, HIDDEN))
    items = random.standard_normal((ITEMS, HIDDEN))
    cells = random.choice(USERS * ITEMS, CELLS, replace=False)
    u, i = cells // ITEMS, cells % ITEMS
    noise = 0.1 * random.standard_normal(CELLS)
    return u, i, ((users[u] * items[i]).sum(1) + noise).astype(np.float32)


class Factors:
    """Rows of users, then rows of items. Rows are only relocated, never replicated: a replica sums
    its pushes before it sends them on, and a different order of sums changes the last bits."""

    def __init__(self, run: training.Run) -> None:
        run.setup(USERS + ITEMS, "relocation_only")
        self.server = params.Server(
            {"user": (USERS, WIDTH), "item": (ITEMS, WIDTH)},
            optimizer={"name": "adagrad", "lr": 0.2},
            init={"name": "normal", "std": 0.5, "seed": 9},
        )
        self.worker = params.Worker(0, self.server)
        self.first_item = self.server.offset("item")
        self.users, self.items, self.values = ratings()

    def batches(self, user_block: int, item_block: int) -> list[Rows]:
        """Batches of the cells of a block."""
        inside = (self.users % BLOCKS == user_block) & (self.items % BLOCKS == item_block)
        cells = np.flatnonzero(inside)
        return np.split(cells, range(BATCH, len(cells), BATCH))

    def step(self, cells: Rows) -> None:
        """Gradients of the squared errors of some cells."""
        keys = np.append(self.users[cells], self.first_item + self.items[cells])
        rows = np.empty((len(keys), WIDTH), np.float32)
        self.worker.pull(keys, rows)
        user, item = np.split(rows, 2)
        error = (user * item).sum(1, keepdims=True) - self.values[cells, None]
        changes = np.concatenate([error * item, error * user])
        self.worker.push(*training.add_up(keys, changes), True)

    def turn(self, run: training.Run, number: int) -> None:
        """Processes this node's blocks of users, each with its block of items of this turn."""
        for user_block in range(run.rank, BLOCKS, run.nodes):
            item_block = (user_block + number) % BLOCKS
            batches = self.batches(user_block, item_block)
            now = self.worker.current_clock()
            wanted = self.first_item + np.arange(item_block, ITEMS, BLOCKS)
            mine = np.append(np.arange(user_block, USERS, BLOCKS), wanted)
            self.worker.intent(mine, now, now + len(batches))
            for cells in batches:
                self.step(cells)
                self.worker.advance_clock()
        self.worker.waitall()
        self.worker.barrier()

    def loss(self) -> float:
        """The root mean square error, in float64 and in a fixed order."""
        user = self.worker.get(np.arange(USERS)).astype(float)[self.users]
        item = self.worker.get(self.first_item + np.arange(ITEMS)).astype(float)[self.items]
        return float(np.sqrt((((user * item).sum(1) - self.values) ** 2).mean()))


def train(run: training.Run) -> None:
    """Trains from the beginning or from the saved model; saves the result if requested."""
    factors = Factors(run)
    if run.epochs.start > 0:
        factors.server.load(STORE, "half-way")
    else:
        run.note(factors.loss())
    factors.worker.barrier()
    for number in run.epochs:
        for turn in range(BLOCKS):
            factors.turn(run, turn)
            run.show(number + (turn + 1) / BLOCKS)
        run.note(factors.loss())
        factors.worker.barrier()
    if run.epochs.stop < run.options.epochs:
        factors.server.save(STORE, "half-way")
    factors.worker.finalize()
    factors.server.shutdown()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    training.main(train, 0, words, 10, resume=True)

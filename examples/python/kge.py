"""A knowledge graph learned by several processes: ComplEx, with negative samples.

    python examples/python/kge.py [--nodes 2]
    ligament launch -w 0 -s 2 -- python examples/python/kge.py

Facts (subject, relation, object) are made by a hidden model; a tenth of them is held back. Each
node takes its share of the rest and says some batches ahead which rows it will touch, so that
they are there when it does; objects that are wrong are drawn as early, and come with them.
Updates race, but nobody runs far ahead: the nodes meet every few batches. The loss is the same
within 5 %.
"""

from __future__ import annotations

import argparse

import numpy as np
import training
from ligament import params

ENTITIES, RELATIONS, WIDTH = 1000, 4, 64  # a row: 32 real parts, 32 imaginary ones
HIDDEN, RIGHT, BATCH, WRONG, AHEAD, MEET = 4, 12, 400, 100, 10, 2
LR = 0.2  # of the first epoch; it becomes less with each
Rows = np.ndarray


def facts() -> tuple[Rows, Rows]:
    """Of a hidden model the best objects of each subject and relation: to learn, to be asked."""
    random = np.random.default_rng(1)
    entities = random.standard_normal((ENTITIES, HIDDEN, 2)).view(complex)[..., 0]
    relations = random.standard_normal((RELATIONS, HIDDEN, 2)).view(complex)[..., 0]
    made = []
    for r in range(RELATIONS):
        scores = (entities * relations[r] @ entities.conj().T).real
        for s, best in enumerate(np.argpartition(-scores, RIGHT)[:, :RIGHT]):
            made += [(s, r, o) for o in best]
    order = random.permutation(np.array(made))
    return order[len(order) // 10 :], order[: len(order) // 10]


def times(a: Rows, b: Rows) -> Rows:
    """Complex products of rows."""
    ar, ai, br, bi = *np.split(a, 2, -1), *np.split(b, 2, -1)
    return np.concatenate([ar * br - ai * bi, ar * bi + ai * br], -1)


def conjugate(a: Rows) -> Rows:
    """Of rows."""
    real, imaginary = np.split(a, 2, -1)
    return np.concatenate([real, -imaginary], -1)


def softplus(x: Rows) -> Rows:
    """log(1 + exp(x))."""
    return np.logaddexp(0, x)


def sigmoid(x: Rows) -> Rows:
    """Its derivative."""
    return 1 / (1 + np.exp(-x))


def gradients(s: Rows, r: Rows, o: Rows, wrong: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """Of softplus(-score of the right object) + the mean of softplus(score of a wrong one)."""
    question = times(s, r)
    right = -sigmoid(-(question * o).sum(-1, keepdims=True))
    others = sigmoid(question @ wrong.T) / len(wrong)
    of_question = right * o + others @ wrong
    return (
        times(of_question, conjugate(r)),
        times(of_question, conjugate(s)),
        right * question,
        others.T @ question,
    )


class Graph:
    """The rows of the model, and what is asked of them."""

    def __init__(self, run: training.Run) -> None:
        run.setup(ENTITIES + RELATIONS)
        self.server = params.Server(
            {"entity": (ENTITIES, WIDTH), "relation": (RELATIONS, WIDTH)},
            optimizer={"name": "adagrad", "lr": LR},
            init={"name": "normal", "std": 0.05, "seed": 7},
        )
        self.server.enable_sampling_support("preloc", True, "uniform", 0, ENTITIES)
        self.worker = params.Worker(0, self.server)
        self.first_relation = self.server.offset("relation")
        self.learned, self.asked = facts()
        self.values = np.empty((3 * BATCH, WIDTH), np.float32)
        self.wrong = np.empty((WRONG, WIDTH), np.float32)
        self.wrong_keys = np.empty(WRONG, np.int64)

    def keys(self, batch: Rows) -> Rows:
        """Of subjects, relations, objects."""
        return np.concatenate([batch[:, 0], batch[:, 1] + self.first_relation, batch[:, 2]])

    def step(self, batch: Rows, sample: int) -> None:
        """Pull, compute, push."""
        keys = self.keys(batch)
        values = self.values[: len(keys)]
        self.worker.pull(keys, values)
        self.worker.pull_sample(sample, self.wrong_keys, self.wrong)
        parts = gradients(*np.split(values, 3), self.wrong)
        changes = np.concatenate(parts)
        self.worker.push(*training.add_up(np.append(keys, self.wrong_keys), changes), True)

    def epoch(self, run: training.Run, number: int) -> None:
        """This node's share, in an order that all nodes come to by themselves."""
        order = np.random.default_rng(100 + number).permutation(len(self.learned))
        mine = self.learned[order[run.rank :: run.nodes]]
        size = BATCH // run.nodes
        batches = np.split(mine, range(size, len(mine), size))
        clock, samples = self.worker.current_clock(), []
        for i in range(-AHEAD, len(batches)):
            if i + AHEAD < len(batches):
                then = clock + i + AHEAD
                self.worker.intent(self.keys(batches[i + AHEAD]), then)
                samples.append(self.worker.prepare_sample(WRONG, then))
            if i >= 0:
                self.step(batches[i], samples[i])
                self.worker.advance_clock()
                if i % MEET == MEET - 1 and i < len(self.learned) // BATCH:
                    self.meet()
                run.show(number + (i + 1) / len(batches))
        self.meet()

    def meet(self) -> None:
        """All nodes are here, and all they have pushed is in every copy."""
        self.worker.flush()
        self.worker.barrier()

    def scores(self, facts: Rows) -> tuple[Rows, Rows]:
        """Of the right objects, and of all."""
        entities = self.worker.get(np.arange(ENTITIES))
        relations = self.worker.get(self.first_relation + np.arange(RELATIONS))
        s, r, o = facts.T
        scores = times(entities[s], relations[r]) @ entities.T
        return scores[np.arange(len(o)), o], scores

    def loss(self) -> float:
        """On some facts that were learned, against all entities alike."""
        right, scores = self.scores(self.learned[:1000])
        return float((softplus(-right) + softplus(scores).mean(1)).mean())

    def found(self) -> float:
        """How often, on facts that were held back, the right object is among the twenty best."""
        right, scores = self.scores(self.asked)
        return float(((scores > right[:, None]).sum(1) < 20).mean())


def train(run: training.Run) -> None:
    """All epochs; between two of them everything is applied everywhere."""
    graph = Graph(run)
    run.note(graph.loss())
    graph.worker.barrier()
    for number in run.epochs:
        graph.server.lr = LR * (1 - number / run.options.epochs)
        graph.epoch(run, number)
        run.note(graph.loss())
        graph.worker.barrier()
    run.say(f"a fact that was held back is among the twenty best of 1000: {graph.found():.0%}")
    graph.worker.finalize()
    graph.server.shutdown()


if __name__ == "__main__":
    training.main(train, 0.05, argparse.ArgumentParser(description=__doc__.splitlines()[0]), 8)

"""Trains word vectors in several processes: skip-gram with negative samples.

    python examples/python/words.py [--nodes 2]
    ligament launch -w 0 -s 2 -- python examples/python/words.py

The text is generated: each sentence has a topic, from which its words are drawn by frequency. A
node reads its share of the sentences and announces some batches ahead which words they contain.
Negative samples are drawn by word frequency to the power of 3/4. Rows of frequent words, which all
nodes use at once, are replicated; those of rare words are relocated. Nodes see each other's updates
with a delay, so the loss agrees within 3 %, not bit for bit.
"""

from __future__ import annotations

import argparse

import numpy as np
import training
from ligament import params

WORDS, TOPICS, WIDTH = 600, 20, 24
SENTENCES, LENGTH, WINDOW, BATCH, WRONG, WEIGHT, AHEAD = 4000, 12, 2, 40, 100, 5, 10
Rows = np.ndarray


def text() -> Rows:
    """Sentences of equal length. Word w has topic w % TOPICS; the larger w, the rarer the word."""
    random = np.random.default_rng(2)
    topics = random.integers(TOPICS, size=(SENTENCES, 1))
    chances = 1 / np.arange(1, WORDS // TOPICS + 1)
    nth = random.choice(len(chances), (SENTENCES, LENGTH), p=chances / chances.sum())
    stray = random.random((SENTENCES, LENGTH)) < 0.1
    anything = random.integers(WORDS, size=(SENTENCES, LENGTH))
    return np.where(stray, anything, nth * TOPICS + topics)


def pairs(sentences: Rows) -> tuple[Rows, Rows]:
    """Words and their neighbours."""
    found = []
    for distance in range(1, WINDOW + 1):
        left, right = sentences[:, :-distance].ravel(), sentences[:, distance:].ravel()
        found += [(left, right), (right, left)]
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def sigmoid(x: Rows) -> Rows:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


class Vectors:
    """Two rows per word: one as a word, one as a context."""

    def __init__(self, run: training.Run) -> None:
        run.setup(2 * WORDS)
        self.server = params.Server(
            {"word": (WORDS, WIDTH), "context": (WORDS, WIDTH)},
            optimizer={"name": "adagrad", "lr": 0.1},
            init={"name": "uniform", "low": -0.2, "high": 0.2, "seed": 3},
        )
        self.beside = self.server.offset("context")
        self.sentences = text()
        counts = np.bincount(self.sentences.ravel(), minlength=WORDS) + 1.0
        self.server.enable_sampling_support(
            "pool", True, counts**0.75, self.beside, self.beside + WORDS
        )
        self.worker = params.Worker(0, self.server)
        random = np.random.default_rng(4)
        self.asked = self.sentences[random.choice(SENTENCES, 200, replace=False)]

    def step(self, sentences: Rows, sample: int) -> None:
        """Pull, compute, push."""
        a, b = pairs(sentences)
        word, context = np.empty((2, len(a), WIDTH), np.float32)
        wrong, wrong_keys = np.empty((WRONG, WIDTH), np.float32), np.empty(WRONG, np.int64)
        self.worker.pull(a, word)
        self.worker.pull(self.beside + b, context)
        self.worker.pull_sample(sample, wrong_keys, wrong)
        right = -sigmoid(-(word * context).sum(1, keepdims=True))
        others = WEIGHT * sigmoid(word @ wrong.T) / WRONG
        keys = np.concatenate([a, self.beside + b, wrong_keys])
        changes = np.concatenate([right * context + others @ wrong, right * word, others.T @ word])
        self.worker.push(*training.add_up(keys, changes), True)

    def epoch(self, run: training.Run, number: int) -> None:
        """Trains on this node's share, in an order that every node derives from the seed."""
        order = np.random.default_rng(200 + number).permutation(SENTENCES)
        mine = self.sentences[order[run.rank :: run.nodes]]
        batches = np.split(mine, range(BATCH, len(mine), BATCH))
        clock, samples = self.worker.current_clock(), []
        for i in range(-AHEAD, len(batches)):
            if i + AHEAD < len(batches):
                words = np.unique(batches[i + AHEAD])
                self.worker.intent(np.append(words, words + self.beside), clock + i + AHEAD)
                samples.append(self.worker.prepare_sample(WRONG, clock + i + AHEAD))
            if i >= 0:
                self.step(batches[i], samples[i])
                self.worker.advance_clock()
                run.show(number + (i + 1) / len(batches))
        self.worker.waitall()

    def loss(self) -> float:
        """softplus(-true) + WEIGHT x mean softplus(false), on some sentences, with all words as
        negative samples."""
        word = self.worker.get(np.arange(WORDS))
        context = self.worker.get(self.beside + np.arange(WORDS))
        a, b = pairs(self.asked)
        wrong = np.logaddexp(0, word @ context.T).mean(1)
        right = np.logaddexp(0, -(word[a] * context[b]).sum(1))
        return float((right + WEIGHT * wrong[a]).mean())

    def neighbours(self) -> float:
        """The share of words whose nearest neighbour has the same topic."""
        word = self.worker.get(np.arange(WORDS))
        word /= np.linalg.norm(word, axis=1, keepdims=True)
        near = word @ word.T - 2 * np.eye(WORDS)
        return float((near.argmax(1) % TOPICS == np.arange(WORDS) % TOPICS).mean())


def train(run: training.Run) -> None:
    """Trains for all epochs; after each, all updates are applied on all nodes."""
    vectors = Vectors(run)
    run.note(vectors.loss())
    for number in run.epochs:
        vectors.worker.barrier()
        vectors.epoch(run, number)
        vectors.worker.flush()
        vectors.worker.barrier()
        run.note(vectors.loss())
    run.say(f"words whose nearest neighbour has the same topic: {vectors.neighbours():.0%}")
    vectors.worker.finalize()
    vectors.server.shutdown()


if __name__ == "__main__":
    training.main(train, 0.03, argparse.ArgumentParser(description=__doc__.splitlines()[0]), 8)

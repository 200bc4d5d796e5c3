"""Runs the attention and the feed-forward layers of a transformer in separate processes.

    ligament launch -w 2 -s 1 -- python examples/python/afd.py

Without `ligament launch`, the script launches itself in this way. Workers run the attention half of
each layer, servers the feed-forward half; the hidden states are sent back and forth once per layer.
Three micro-batches are in flight, so that the server computes one while the workers compute
another. The result is compared with the same model in one process, and the worker prints how long
each part of a request took.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import ligament
import numpy as np
from ligament import mesh

LAYERS, WIDTH, HEADS, TOKENS, MICRO_BATCHES = 4, 64, 4, 16, 3
PARTS = ("send", "to the server", "queue", "compute", "respond", "back", "wait notified")


def weights(layer: int) -> dict[str, np.ndarray]:
    """Weights from a seed, so that they are the same in every process."""
    random = np.random.default_rng(layer)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    return {
        name: random.standard_normal(shape, np.float32) / shape[0] ** 0.5
        for name, shape in shapes.items()
    }


def norm(x: np.ndarray) -> np.ndarray:
    """RMS normalisation."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def attention(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    """The half with state (in a real model, the KV cache), which the worker runs."""
    q, k, v = (
        part.reshape(TOKENS, HEADS, -1).swapaxes(0, 1)
        for part in np.split(norm(x) @ w["qkv"], 3, axis=-1)
    )
    scores = q @ k.swapaxes(1, 2) / (WIDTH // HEADS) ** 0.5
    scores -= scores.max(-1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(-1, keepdims=True)
    return x + (chances @ v).swapaxes(0, 1).reshape(TOKENS, WIDTH) @ w["out"]


def feed_forward(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    """The large half without state: one server can serve many workers."""
    return x + np.maximum(norm(x) @ w["up"], 0) @ w["down"]


def key(layer: int, micro_batch: int) -> int:
    """The key of a buffer."""
    return layer << 8 | micro_batch


def serve() -> None:
    """Multiplies the rows of all workers at once, until the workers have stopped."""
    model = [weights(layer) for layer in range(LAYERS)]
    while True:
        try:
            batch = mesh.get_batch()
        except ligament.ClosedError:
            return
        layer = batch[0][2][0] >> 8
        rows = np.concatenate([tensors[0] for _, tensors, _ in batch])
        done = feed_forward(rows, model[layer])
        for i, (handler, _, _) in enumerate(batch):
            mesh.respond([done[i * TOKENS : (i + 1) * TOKENS]], handler)


def work(rank: int, steps: int) -> None:
    """Runs the layers in order, with all micro-batches in flight at once."""
    model = [weights(layer) for layer in range(LAYERS)]
    random = np.random.default_rng(1000 + rank)
    pushed = [mesh.empty((TOKENS, WIDTH)) for _ in range(MICRO_BATCHES)]
    pulled = [np.empty((TOKENS, WIDTH), np.float32) for _ in range(MICRO_BATCHES)]
    stamps = []
    for step in range(steps):
        inputs = random.standard_normal((MICRO_BATCHES, TOKENS, WIDTH), np.float32)
        states = list(inputs)
        for layer in range(LAYERS):
            flight = []
            for i in range(MICRO_BATCHES):
                pushed[i][:] = attention(states[i], model[layer])
                flight.append(
                    mesh.push_pull([pushed[i]], [key(layer, i)], [pulled[i]], [key(layer, i)])
                )
            for i, handler in enumerate(flight):
                mesh.wait(handler)
                states[i] = pulled[i].copy()
                stamps.append(mesh.fetch_trace(handler))
        for i in range(MICRO_BATCHES):
            check(inputs[i], states[i], model, f"worker {rank}, step {step}, micro-batch {i}")
    report(rank, np.array(stamps))


def check(x: np.ndarray, got: np.ndarray, model: list[dict[str, np.ndarray]], where: str) -> None:
    """Compares the result with the model in one process."""
    for w in model:
        x = feed_forward(attention(x, w), w)
    if not np.allclose(x, got, rtol=1e-4, atol=1e-4):
        raise SystemExit(f"{where}: differs from the one-process model by {abs(x - got).max()}")


def report(rank: int, stamps: np.ndarray) -> None:
    """Prints the time spent in each part of a request."""
    if rank != 0:
        return
    middle = np.median(np.diff(stamps.astype(np.int64), axis=1), axis=0) / 1e3
    print(f"{len(stamps)} requests, equal to the one-process model; median by part:")
    for part, microseconds in zip(PARTS, middle, strict=True):
        print(f"  {part:14} {microseconds:9.1f} us")
    whole = np.median(stamps[:, 7] - stamps[:, 0]) / 1e3
    print(f"  {'request':14} {whole:9.1f} us", flush=True)


def launch() -> None:
    """Starts two workers and a server of this script."""
    program = Path(ligament.__file__).parent / "bin/ligament"
    words = ["ligament", "launch", "-w", "2", "-s", "1", "--", sys.executable, *sys.argv]
    os.execvp(program if program.exists() else "ligament", words)


def main() -> None:
    """Runs one of the roles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--trace", help="a folder for `ligament trace`")
    options = parser.parse_args()
    if not any(name in os.environ for name in ("DMLC_ROLE", "RANK", "SLURM_PROCID", "PBS_JOBID")):
        launch()
    member = mesh.init(framework="numpy")
    if options.trace:
        mesh.trace_to(options.trace)
    if member.role == "server":
        serve()
    elif member.role == "worker":
        work(member.rank, options.steps)
    mesh.stop()


if __name__ == "__main__":
    main()

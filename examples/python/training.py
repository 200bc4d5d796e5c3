"""Code shared by the examples of ligament.params: processes, progress bar, plot.

An example has a function train(run), which records the loss before the first epoch and after each.
`main` runs it in one process and on several nodes, plots both curves, and compares the final
losses. Under `ligament launch -w 0 -s 2 -- python kge.py` the process is one of the nodes.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ligament import params

BAR = 30
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 20, 44, 44
COLOURS = ("#f2a65a", "#1d5c96", "#3c8d5a", "#9b4f96")


@dataclass
class Run:
    """A training run over `nodes` processes, as seen by one of them."""

    name: str
    options: argparse.Namespace
    nodes: int
    rank: int
    address: str | None  # None: the launcher provides the address
    epochs: range
    losses: list[float] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    shown: float = 0.0

    def setup(self, key_count: int, techniques: str = "") -> None:
        """Configures one worker per node."""
        place: dict[str, Any] = {}
        if self.address is not None and self.nodes > 1:
            place = {"role": "server", "rank": self.rank, "servers": self.nodes}
            place["address"] = self.address
        params.setup(key_count, 1, techniques, **place)

    def note(self, loss: float) -> None:
        """Records the loss after an epoch, or before the first."""
        self.losses.append(loss)
        done = len(self.losses) - 1
        self.show(done, done == self.epochs.stop)

    def show(self, done: float, last: bool = False) -> None:
        """Draws a progress bar on node 0: live on a terminal, otherwise only its final state."""
        live = sys.stderr.isatty()
        now = time.monotonic()
        if self.rank != 0 or not (last or (live and now - self.shown > 0.1)):
            return
        self.shown = now
        share = done / self.options.epochs
        bar = ("#" * round(share * BAR)).ljust(BAR, ".")
        where = "alone" if self.nodes == 1 else f"{self.nodes} nodes"
        text = f"{self.name}, {where:8} [{bar}] {share:4.0%}  loss {self.losses[-1]:.6f}"
        print(("\r" if live else "") + text, end="\n" if last else "", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Adds a line to print at the end."""
        self.remarks.append(text)


def _node(train: Callable[[Run], None], run: Run, pipe: Any) -> None:
    train(run)
    if run.rank == 0:
        pipe.send((run.losses, run.remarks))


def start(train: Callable[[Run], None], run: Run) -> Run:
    """Runs `train` in one new process per node; returns the run of node 0."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    run.address = f"shm:{run.name}-{os.getpid()}"
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the nodes share the processors of this machine
    children = []
    for rank in range(run.nodes):
        run.rank = rank
        children.append(context.Process(target=_node, args=(train, run, theirs)))
        children[-1].start()
    theirs.close()
    try:
        run.losses, run.remarks = ours.recv()
    except EOFError:
        pass  # it failed and printed the reason
    for child in children:
        child.join()
    if any(child.exitcode != 0 for child in children):
        raise SystemExit(f"{run.name}: a node failed")
    return run


def main(
    train: Callable[[Run], None],
    tolerance: float,
    parser: argparse.ArgumentParser,
    epochs: int,
    resume: bool = False,
) -> None:
    """Trains in one process, then on several nodes. `tolerance` is relative; 0 means equal bits.
    With `resume`, a node is added half-way and train continues from its last save."""
    name = os.path.basename(sys.argv[0]).removesuffix(".py")
    parser.add_argument("--nodes", type=int, default=2, help="number of processes (default: 2)")
    parser.add_argument("--epochs", type=int, default=epochs, help=f"2 or more; {epochs}")
    picture = f"{name}.svg"
    parser.add_argument("--picture", default=picture, help=f"an SVG of the losses; {picture}")
    options = parser.parse_args()
    if options.nodes < 1 or options.epochs < 2:
        parser.error("--nodes must be at least 1, --epochs at least 2")
    whole = range(options.epochs)
    if os.environ.get("DMLC_ROLE") == "server":
        nodes, rank = (int(os.environ[f"DMLC_{which}"]) for which in ("NUM_SERVER", "NODE_RANK"))
        run = Run(name, options, nodes, rank, None, whole)
        train(run)
        if rank == 0:
            finish(run, {f"{nodes} nodes": run.losses})
        return
    alone = start(train, Run(name, options, 1, 0, None, whole))
    if options.nodes == 1:
        finish(alone, {"one process": alone.losses})
        return
    middle = len(whole) // 2 if resume else len(whole)
    label = f"{options.nodes} nodes" + (f", then {options.nodes + 1}" if resume else "")
    run = start(train, Run(name, options, options.nodes, 0, None, whole[:middle]))
    if resume:
        losses = run.losses
        run = start(train, Run(name, options, options.nodes + 1, 0, None, whole[middle:], losses))
    finish(run, {"one process": alone.losses, label: run.losses})
    compare(alone, run, tolerance, label)


def finish(run: Run, curves: dict[str, list[float]]) -> None:
    """Writes the plot and prints the lines of the example."""
    draw(run.options.picture, f"{run.name}: loss by epoch", curves)
    for text in run.remarks:
        print(text)
    print(f"loss curve: {run.options.picture}", flush=True)


def compare(alone: Run, run: Run, tolerance: float, label: str) -> None:
    """Checks that the losses agree."""
    one, other = alone.losses[-1], run.losses[-1]
    tolerance *= run.nodes - 1  # rows become staler as nodes are added
    held = alone.losses == run.losses if tolerance == 0 else abs(other - one) <= tolerance * one
    said = "equal bits in every epoch" if tolerance == 0 else f"equal within {tolerance:.0%}"
    print(
        f"loss {one:.6f} in one process, {other:.6f} on {label}: {said if held else 'NOT ' + said}"
    )
    if not held:
        raise SystemExit(1)


def add_up(keys: np.ndarray, changes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each key once, with the sum of its gradients, so that a batch is one optimizer step."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return distinct, np.add.reduceat(changes[order], first)


# --- the plot -------------------------------------------------------------------------------------


def step_of(top: float) -> float:
    """A round distance between grid lines, of which there are four to ten."""
    power = 10.0 ** math.floor(math.log10(top))
    return power / 5 if top < 2 * power else power / 2 if top < 5 * power else power


def draw(path: str, title: str, curves: dict[str, list[float]]) -> None:
    """Plots the curves as SVG. The first is wide and pale, so that one on top of it is visible."""
    longest = max(len(losses) for losses in curves.values())
    top = max(max(losses) for losses in curves.values()) * 1.05
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(epoch: float) -> float:
        return LEFT + wide * epoch / max(1, longest - 1)

    def y(loss: float) -> float:
        return TOP + high * (1 - loss / top)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{title}</text>',
    ]
    step = step_of(top)
    for i in range(int(top / step) + 1):
        at = y(i * step)
        out.append(f'<path d="M{LEFT} {at:.1f}h{wide}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    for epoch in range(0, longest, max(1, longest // 10)):
        out.append(
            f'<text x="{x(epoch):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{epoch}'
            f"</text>"
        )
    out.append(f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 8}" text-anchor="middle">epoch</text>')
    out.append(f'<rect x="{WIDTH - 156}" y="{TOP}" width="136" height="42" fill="white"/>')
    for number, (label, losses) in enumerate(curves.items()):
        colour, broad = COLOURS[number % len(COLOURS)], number == 0 and len(curves) > 1
        points = " ".join(f"{x(i):.1f},{y(loss):.1f}" for i, loss in enumerate(losses))
        out.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" '
            f'stroke-width="{7 if broad else 2}" stroke-linejoin="round"/>'
        )
        if not broad:
            out += [
                f'<circle cx="{x(i):.1f}" cy="{y(loss):.1f}" r="3" fill="{colour}"/>'
                for i, loss in enumerate(losses)
            ]
        at = TOP + 14 + 20 * number
        out.append(
            f'<path d="M{WIDTH - 150} {at - 4}h24" stroke="{colour}" '
            f'stroke-width="{7 if broad else 2}"/>'
        )
        out.append(f'<text x="{WIDTH - 118}" y="{at}">{label}</text>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*out, "</svg>\n"]))

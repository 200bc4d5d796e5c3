"""Trains LeNet-5 with a checkpoint after every epoch, is killed during a save, and resumes.

Shows what was saved, how fast compared with the disk, and that nothing was lost.

    python examples/python/demo.py [FOLDER] [--samples N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EPOCHS, KILLED_AT, BATCH = 6, 4, 50
CHANNELS, HIDDEN = 2, 16  # times those of the original, so that there is something to save
BAR = 24


# --- model and data ----------------------------------------------------------------------------


def make_data(samples: int) -> tuple[Any, Any]:
    """Generates ten classes of noisy, shifted strokes, so that no download is needed."""
    import torch

    generator = torch.Generator().manual_seed(1)
    strokes = (torch.rand(10, 1, 8, 8, generator=generator) > 0.6).float()
    strokes = torch.nn.functional.interpolate(strokes, scale_factor=3)
    labels = torch.randint(0, 10, (samples,), generator=generator)
    pictures = torch.randn(samples, 1, 32, 32, generator=generator) * 0.6
    for i, label in enumerate(labels.tolist()):
        x, y = torch.randint(0, 8, (2,), generator=generator).tolist()
        pictures[i, :, y : y + 24, x : x + 24] += strokes[label]
    return pictures, labels


def lenet5() -> Any:
    """LeNet-5 with wider layers."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 6 * CHANNELS, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6 * CHANNELS, 16 * CHANNELS, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * CHANNELS * 25, 120 * HIDDEN), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(120 * HIDDEN, 84 * HIDDEN), nn.ReLU(), nn.Linear(84 * HIDDEN, 10),
    )  # fmt: skip


class Run:
    """A model, its optimizer and schedule, and a training epoch."""

    def __init__(self, samples: int) -> None:
        import torch

        torch.set_num_threads(
            1
        )  # the same sums in the same order, independent of the machine's load
        torch.manual_seed(0)
        self.pictures, self.labels = make_data(samples)
        self.model = lenet5()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.7)

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}

    def epoch(self) -> Iterator[tuple[float, float, float]]:
        """Yields (progress, loss so far, accuracy so far)."""
        import torch

        right = total = 0.0
        batches = torch.randperm(len(self.labels)).split(BATCH)
        for number, batch in enumerate(batches, 1):
            self.optimizer.zero_grad()
            scores = self.model(self.pictures[batch])
            loss = torch.nn.functional.cross_entropy(scores, self.labels[batch])
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            right += (scores.argmax(1) == self.labels[batch]).float().mean().item()
            yield number / len(batches), total / number, right / number
        self.schedule.step()

    def digest(self) -> str:
        """A hash of all bits of the model and its optimizer."""
        states = [self.model.state_dict(), *self.optimizer.state_dict()["state"].values()]
        sums = hashlib.sha256()
        for state in states:
            for name, tensor in state.items():
                sums.update(str(name).encode() + tensor.numpy().tobytes())
        return sums.hexdigest()[:16]


# --- the training process ------------------------------------------------------------------------


def train(folder: Path, samples: int) -> None:
    """Continues from the newest checkpoint; reports its progress as lines of JSON."""
    import torch
    from ligament.checkpoint import Checkpointer

    torch.set_num_threads(os.cpu_count() or 1)

    def tell(**what: Any) -> None:
        print(json.dumps(what), flush=True)

    run = Run(samples)
    with Checkpointer(folder, keep=3, best=("loss", "min")) as checkpoints:
        at = checkpoints.restore(**run.parts())
        start = at.step if at else 0
        tell(event="start", epoch=start, digest=run.digest() if at else None)
        for epoch in range(start + 1, EPOCHS + 1):
            loss = right = 0.0
            for share, loss, right in run.epoch():
                tell(event="train", epoch=epoch, share=share, loss=loss, right=right)
            checkpoints.wait()  # the previous save, which ran during this epoch
            tell(event="epoch", epoch=epoch, loss=loss, right=right, digest=run.digest())
            before = time.perf_counter()
            metrics = {"loss": loss}
            checkpoints.save(epoch, **run.parts(), rng=True, metrics=metrics, wait=False)
            tell(event="saving", epoch=epoch, stalled_ms=(time.perf_counter() - before) * 1e3)
        checkpoints.wait()
        tell(event="end", digest=run.digest())


# --- the process that starts and kills it ---------------------------------------------------------


def say(text: str) -> None:
    print(text, flush=True)


class Line:
    """A progress bar on a terminal; otherwise only its final state."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty()

    def show(self, epoch: int, share: float, loss: float, right: float, end: str = "") -> None:
        filled = round(share * BAR)
        bar = "#" * filled + "." * (BAR - filled)
        text = f"  epoch {epoch}/{EPOCHS} [{bar}] loss {loss:6.3f}  accuracy {right:6.1%}{end}"
        if end:
            say(("\r" if self.live else "") + text)
        elif self.live:
            print("\r" + text, end="", flush=True)


def watch(folder: Path, samples: int, kill: bool) -> dict[str, Any]:
    """Starts a training process and shows its progress; kills it during a save if requested."""
    command = [sys.executable, __file__, str(folder), "--train", "--samples", str(samples)]
    seen: dict[str, Any] = {"digests": {}, "stalls": []}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = Line()
        last: dict[str, Any] = {}
        for text in child.stdout:
            what = json.loads(text)
            if what["event"] == "train":
                line.show(what["epoch"], what["share"], what["loss"], what["right"])
            elif what["event"] == "epoch":
                last = what
                seen["digests"][what["epoch"]] = what["digest"]
            elif what["event"] == "saving":
                if kill and what["epoch"] == KILLED_AT:
                    os.kill(child.pid, signal.SIGKILL)
                    line.show(last["epoch"], 1, last["loss"], last["right"], "  saving ... KILLED")
                    break
                stall = f"  saved in the background, training paused {what['stalled_ms']:.1f} ms"
                line.show(last["epoch"], 1, last["loss"], last["right"], stall)
                seen["stalls"].append(what["stalled_ms"])
            else:
                seen[what["event"]] = what
        child.wait()
    if not kill and child.returncode != 0:
        raise SystemExit(f"the training process failed with status {child.returncode}")
    return seen


def plain_write(folder: Path, blob: bytes) -> float:
    """Seconds to write the same bytes to a plain file, including fsync."""
    path = folder / "plain"
    before = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        file.write(blob)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - before
    path.unlink()
    return seconds


def measure(folder: Path, run: Run) -> tuple[int, float, float]:
    """The size of a checkpoint, and the seconds of a durable save and of a plain write."""
    import ligament

    state = {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}
    saves, writes = [], []
    with ligament.Store(folder / "measure") as store:
        count = store.save("warm", state).bytes
        blob = os.urandom(1 << 20) * (count // (1 << 20) + 1)
        for number in range(5):
            for tensor in run.model.state_dict().values():
                tensor.add_(1e-3)
            before = time.perf_counter()
            store.save(f"m{number}", state, progress=False)
            saves.append(time.perf_counter() - before)
            writes.append(plain_write(folder, blob[:count]))
    return count, statistics.median(saves), statistics.median(writes)


def speed(count: int, seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms, {count / seconds / 1e9:.2f} GB/s"


def table(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    rule = "+-" + "-" * width + "-+-" + "-" * max(len(value) for _, value in rows) + "-+"
    say(rule)
    for name, value in rows:
        say(f"| {name:<{width}} | {value:<{len(rule) - width - 7}} |")
    say(rule)


def main(folder: Path, samples: int) -> int:
    from ligament.checkpoint import Checkpointer

    started = time.perf_counter()
    say(f"LeNet-5 on {samples} generated images, a checkpoint after every epoch: {folder}")
    say(f"\nTraining, until the process is killed (SIGKILL) during the save of epoch {KILLED_AT}:")
    first = watch(folder / "run", samples, kill=True)
    with Checkpointer(folder / "run") as checkpoints:
        survived, problems = checkpoints.latest(), checkpoints.store.check().problems
        there = f"the store has epochs {checkpoints.steps()}"
        state = f"PROBLEMS: {problems}" if problems else "all intact."
        say(f"\nAfter the kill, {there}, {state}")
    say("\nTraining again, from the newest checkpoint:")
    second = watch(folder / "run", samples, kill=False)
    say("\nFor comparison, the same training without the kill ...")
    run = Run(samples)
    for _ in range(EPOCHS):
        for _ in run.epoch():
            pass
    same_start = second["start"]["digest"] == first["digests"][survived]
    reference = run.digest()
    same_end = second["end"]["digest"] == reference
    count, save_s, write_s = measure(folder, run)
    with Checkpointer(folder / "run") as checkpoints:
        kept = ", ".join(map(str, checkpoints.steps()))
        problems += checkpoints.store.check().problems
    say("")
    stalls = [*first["stalls"], *second["stalls"]]
    resumed = "identical to what was saved" if same_start else "DIFFERENT from what was saved"
    ended = "identical to" if same_end else "DIFFERENT from"
    whole = same_start and same_end and not problems
    table([
        ("checkpoint", f"{count / 1e6:.1f} MB: model, optimizer, schedule, random state"),
        ("kept", f"epochs {kept} (the last three and the best)"),
        ("durable save, including fsync", speed(count, save_s)),
        ("plain write of the same size", speed(count, write_s)),
        ("training paused for a save", f"{statistics.median(stalls):.1f} ms"),
        ("resumed from", f"epoch {survived}, {resumed}"),
        ("after all epochs", f"{ended} an uninterrupted run ({reference})"),
        ("lost", "nothing" if whole else f"SOMETHING {problems}"),
    ])  # fmt: skip
    say(f"{time.perf_counter() - started:.0f} s")
    return 0 if whole else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Trains a model, kills the training and resumes it."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, help="folder of the store; by default a temporary one"
    )
    parser.add_argument("--samples", type=int, default=600, help="number of training images")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.folder, given.samples)
        raise SystemExit(0)
    place = given.folder or Path(tempfile.mkdtemp(prefix="ligament-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        raise SystemExit(main(place, given.samples))
    finally:
        if given.folder is None:
            shutil.rmtree(place, ignore_errors=True)

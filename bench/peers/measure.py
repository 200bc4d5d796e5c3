"""The measured process of checkpoint.py: one contender, one case, times as JSON lines.

Reads its job from the first line of standard input. Where it says {"sample": what} it waits for a
line, and the parent watches its memory until it says {"sampled": what}.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import CONTENDERS, ROW, Contender

SLOW_S = 20.0  # a repeat that takes longer is repeated once


class Channel:
    """The parent's pipe; output of libraries is redirected to standard error."""

    def __init__(self) -> None:
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def tell(self, **event: Any) -> None:
        self.out.write(json.dumps(event) + "\n")

    def sampled(self, what: str, work: Callable[[], Any]) -> None:
        self.tell(sample=what)
        sys.stdin.readline()
        work()
        self.tell(sampled=what)


def clock(work: Callable[[], Any]) -> float:
    gc.collect()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def cool(paths: list[Path], system_wide: bool) -> None:
    """Evicts these files from the page cache; all files if permitted."""
    os.sync()
    if system_wide:
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
            return
        except OSError:
            pass
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def warm(paths: list[Path]) -> None:
    piece = bytearray(1 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(piece):
                pass


def save_rounds(contender: Contender, channel: Channel, repeats: int) -> int:
    """Returns the step that is left on disk."""
    step, slow = 0, False
    while step <= (1 if slow else repeats):
        if step:
            contender.change()
        os.sync()
        taken = clock(lambda step=step: contender.save(step))
        slow = taken > SLOW_S
        channel.tell(metric="save" if step else "first", seconds=taken)
        if step:
            contender.drop(step - 1)
        step += 1
    return step - 1


def load_once(contender: Any, step: int, mode: str, expected: list[bytes]) -> float:
    taken = clock(lambda: contender.load(step, mode))
    if contender.probe() != expected:
        raise SystemExit(f"{type(contender).__name__} loaded other bytes than it saved ({mode})")
    contender.result = None
    return taken


def load_rounds(contender: Any, channel: Channel, job: dict[str, Any], step: int) -> None:
    expected = contender.probe()
    for mode in contender.modes:
        contender.change()
        cool(contender.files(step), job["system_wide"])
        taken = load_once(contender, step, mode, expected)
        channel.tell(metric=f"cold {mode}", seconds=taken)
        contender.change()
        warm(contender.files(step))
        taken = load_once(contender, step, mode, expected)
        channel.tell(metric=f"warm {mode}", seconds=taken)


def measure_files(job: dict[str, Any], contender: Any, channel: Channel) -> None:
    contender.build()
    step = save_rounds(contender, channel, job["saves"])
    stored = sum(p.stat().st_blocks * 512 for p in contender.files(step))
    channel.tell(metric="bytes", seconds=stored / sum(job["sizes"]))
    load_rounds(contender, channel, job, step)


def measure_memory(job: dict[str, Any], contender: Any, channel: Channel) -> None:
    """The first of each in this process, so that buffers kept for later are counted."""
    contender.build()
    channel.sampled("save", lambda: contender.save(0))
    for mode in contender.modes:
        channel.sampled(f"load {mode}", lambda mode=mode: contender.load(0, mode))
        contender.result = None


class Training:
    """Linear layers whose weights are the case's tensors, and SGD.

    Gradients are written into kept buffers: fresh memory for them would cost more than the step
    and drown what a save costs.
    """

    def __init__(self, names: list[str], sizes: list[int], batch: int):
        import torch

        torch.manual_seed(1)
        self.torch, self.input = torch, torch.randn(batch, ROW)
        self.weights = {}
        for name, size in zip(names, sizes, strict=True):
            weight = torch.empty(size // 4 // ROW, ROW).uniform_(-0.01, 0.01)
            self.weights[name] = torch.nn.Parameter(weight)
            self.weights[name].grad = torch.zeros_like(weight)
        self.optimizer = torch.optim.SGD(self.weights.values(), lr=1e-3)
        self.step()

    def step(self) -> None:
        with self.torch.no_grad():
            for weight in self.weights.values():
                value = self.input @ weight.t()
                value.mul_(2 / value.numel())
                self.torch.mm(value.t(), self.input, out=weight.grad)
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {name: weight.detach() for name, weight in self.weights.items()}


def measure_training(job: dict[str, Any], contender: Any, channel: Channel) -> None:
    """Time lost = steps with one save at their beginning, minus as many without, median."""
    training = Training(contender.names, contender.sizes, job["batch"])
    prepare(contender)
    calls = 0

    def steps() -> None:
        for _ in range(job["steps"]):
            training.step()

    def steps_with_save() -> None:
        nonlocal calls
        begin = time.perf_counter()
        ticket = contender.start(calls, training.state())
        taken = time.perf_counter() - begin
        channel.tell(metric="call" if calls else "first call", seconds=taken)
        calls += 1
        steps()
        ticket.result()

    steps_with_save()
    for _ in range(job["repeats"]):
        begin = time.process_time()
        base = clock(steps)
        middle = time.process_time()
        lost = clock(steps_with_save) - base
        end = time.process_time()
        contender.drop(calls - 2)
        channel.tell(metric="lost", seconds=lost)
        channel.tell(metric="lost processor", seconds=(end - middle) - (middle - begin))
        channel.tell(metric="step", seconds=base / job["steps"])
    channel.sampled("async", steps_with_save)


def prepare(contender: Any) -> None:
    """The contender's imports, without tensors."""
    sizes, contender.sizes = contender.sizes, []
    names, contender.names = contender.names, []
    contender.build()
    contender.sizes, contender.names = sizes, names


def main() -> None:
    channel = Channel()
    job = json.loads(sys.stdin.readline())
    contender = CONTENDERS[job["contender"]](Path(job["folder"]), job["sizes"])
    phases = {"files": measure_files, "memory": measure_memory, "training": measure_training}
    try:
        phases[job["phase"]](job, contender, channel)
    finally:
        contender.close()
    channel.tell(done=True)


if __name__ == "__main__":
    main()

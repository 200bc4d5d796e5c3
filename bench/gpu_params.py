"""What does a batch cost with an embedding whose rows are in the parameter manager?

    .venv/bin/python bench/gpu_params.py [--quick] [--json FILE] [--rows N]

Batches of 65,536 Zipf ids, rows of 128 floats: forward, backward and the step of SGD. On a GPU:
10 M rows, against nn.EmbeddingBag on the device with sparse gradients, which holds the whole table
there. On the host: 1 M rows, against nn.Embedding with sparse SGD. Contenders take turns in one
run; a figure is the median. Results are checked against torch's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ligament import params

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from bars import Bar, show  # noqa: E402

BATCH, LENGTH, PER_BAG = 65536, 128, 8
RATE = 0.5
PEER = "nn.Embedding, sparse SGD"


def zipf(rows: int, batches: int, seed: int = 0) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Ids with p(rank) ~ 1 / rank, and all ids by rank: they are scattered over the table."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.randperm(rows, generator=draw)
    found = []
    for _ in range(batches):
        u = torch.rand(BATCH, generator=draw, dtype=torch.float64)
        ranks = torch.exp(u * torch.log(torch.tensor(float(rows)))).long().clamp_(1, rows) - 1
        found.append(places[ranks])
    return found, places


class Timer:
    """Milliseconds per call, by name."""

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"
        self.samples: dict[str, list[float]] = {}

    def time(self, name: str, call: Callable[[], Any]) -> None:
        """One call, including the work that it queued."""
        if self.cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if self.cuda:
            torch.cuda.synchronize()
        self.samples.setdefault(name, []).append((time.perf_counter() - begin) * 1e3)

    def medians(self) -> dict[str, float]:
        """Of all samples."""
        return {name: statistics.median(found) for name, found in self.samples.items()}


def serve(rows: int) -> params.Server:
    """One node; all rows are zeros."""
    return params.Server(LENGTH, optimizer={"name": "sgd", "lr": RATE}, setup=params.setup(rows, 1))


def theirs(kind: Any, rows: int, device: str) -> tuple[Any, Any]:
    """torch's module with sparse gradients, and its optimizer; all rows are zeros."""
    module = kind(rows, LENGTH, sparse=True, _weight=torch.zeros(rows, LENGTH, device=device))
    return module, torch.optim.SGD(module.parameters(), lr=RATE)


def step(module: Any, ids: torch.Tensor, grad: torch.Tensor, optimizer: Any = None) -> None:
    """One batch."""
    if optimizer is not None:
        optimizer.zero_grad()
    module(ids).backward(grad)
    if optimizer is not None:
        optimizer.step()


def check(ours: Any, module: Any, ids: torch.Tensor) -> None:
    """The gradients are whole numbers: the rows are equal."""
    some = ids.reshape(-1)[:5000].cpu()
    expected = module.weight.detach()[some.to(module.weight.device)].cpu()
    assert torch.equal(ours.rows(some), expected), "the rows differ from torch's"


def host(quick: bool) -> dict[str, float]:
    """nn.Embedding with sparse SGD and ours, in host memory."""
    rows, timer = 1_000_000, Timer("cpu")
    batches, _ = zipf(rows, 6 if quick else 12)
    uniform = [torch.randint(0, rows, (BATCH,)) for _ in batches]
    grad = torch.ones(BATCH, LENGTH)
    for kind, lists in (("zipf", batches), ("uniform", uniform)):
        with serve(rows) as server:
            ours = params.torch.Embedding(rows, LENGTH, server)
            module, optimizer = theirs(torch.nn.Embedding, rows, "cpu")
            for turn, ids in enumerate(lists):
                name = f"host {kind}" if turn > 1 else f"host {kind}, first"
                timer.time(f"{name}: {PEER}", partial(step, module, ids, grad, optimizer))
                timer.time(f"{name}: params.torch.Embedding", partial(step, ours, ids, grad))
            check(ours, module, lists[-1])
    return timer.medians()


def device(rows: int, quick: bool) -> dict[str, float]:
    """torch's EmbeddingBag on the GPU, and Ligament's with several sizes of the cache."""
    timer = Timer("cuda")
    count = 30 if quick else 100
    shape = (BATCH // PER_BAG, PER_BAG)
    drawn, by_rank = zipf(rows, count)
    batches = [ids.view(shape).cuda() for ids in drawn]
    grad = torch.ones(shape[0], LENGTH, device="cuda")
    module, optimizer = theirs(torch.nn.EmbeddingBag, rows, "cuda")
    module.mode = "sum"
    for turn, ids in enumerate(batches):
        name = "device" if turn > 2 else "device, first"
        timer.time(
            f"{name}: nn.EmbeddingBag, sparse SGD", partial(step, module, ids, grad, optimizer)
        )
    found = {}
    for cached, label in ((rows, "all"), (rows // 5, "20 %"), (0, "none")):
        with serve(rows) as server:
            bag = params.torch.EmbeddingBag(rows, LENGTH, server, device_rows=cached)
            if cached:  # the most frequent rows, as after a while
                bag(batches[0])
                for part in by_rank[:cached].split(min(1 << 20, cached // 2)):
                    bag.prefetch(part)
                stats(server).update(hits=0, misses=0)
            for ids in batches if cached else batches[:10]:
                name = f"device: params.torch.EmbeddingBag, cached {label}"
                timer.time(name, partial(step, bag, ids, grad))
            if cached:
                check(bag, module, batches[-1])
                found[f"hits, cached {label}"] = hit_rate(server)
    found |= {"device memory, GiB": torch.cuda.max_memory_allocated() / (1 << 30)}
    return timer.medians() | found


def stats(server: params.Server) -> dict[str, int]:
    """Of the only cache."""
    (cache,) = server.worker()._caches.values()
    found: dict[str, int] = cache.stats
    return found


def hit_rate(server: params.Server) -> float:
    """Of all ids since the cache was filled."""
    found = stats(server)
    return found["hits"] / (found["hits"] + found["misses"])


def bars(found: dict[str, float]) -> list[Bar]:
    wanted = [
        ("batch time on the host, Zipf ids: ours / nn.Embedding",
         "host zipf: params.torch.Embedding", "host zipf: nn.Embedding, sparse SGD", 1.0),
        ("batch time on the host, uniform ids: ours / nn.Embedding",
         "host uniform: params.torch.Embedding", "host uniform: nn.Embedding, sparse SGD", 1.0),
        ("batch time on the GPU, all rows cached: ours / nn.EmbeddingBag",
         "device: params.torch.EmbeddingBag, cached all",
         "device: nn.EmbeddingBag, sparse SGD", 2.0),
    ]  # fmt: skip
    return [
        Bar(name, found[ours] / found[peer], most)
        for name, ours, peer, most in wanted
        if ours in found
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    begin = time.perf_counter()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{gpu}, {os.cpu_count()} cores, {versions}", flush=True)
    found = host(arguments.quick)
    if torch.cuda.is_available():
        found |= device(arguments.rows, arguments.quick)
    for name, value in found.items():
        print(f"{name:<56} {value:9.3f}")
    judged = [show(bar) for bar in bars(found)]
    print(f"{time.perf_counter() - begin:.0f} s in all")
    if arguments.json:
        about = {"gpu": gpu, "cores": os.cpu_count(), "torch": torch.__version__}
        content = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": about,
            "results": {"ms per batch": found},
            "bars": [bar.record() for bar in judged],
        }
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(bar.met for bar in judged) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checkpoints of several processes: Ligament, torch.distributed.checkpoint, torch.save on rank 0.

    bench/distributed.py [--mib 1024] [--rounds 3] [--ranks 2 4] [--mode ddp fsdp]
                         [--folder FOLDER] [--json FILE]

All contenders run in the same processes, in turn, round by round; a figure is the median over the
rounds of the slowest rank, from a barrier to a barrier. Every byte changes between saves, every
save is durable (files and folders synced; DCP syncs its files). `lost` is how much longer a number
of training steps takes with one asynchronous save among them than without (before and after).
`restore` is into the parameters of a module on the other number of ranks, from an emptied page
cache, against plain reads of as many bytes, past the cache, by as many processes into memory that
is there. `fine-tune` changes a twentieth of the weights and sees how much the store grows.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from bars import Bar, show  # noqa: E402

MIB = 1 << 20
TENSORS = 40  # of equal size, and some small ones
STEPS = 6
BATCH = 16
NOISE = 0.05
PATIENCE_S = 300
WORDS = {
    "save": "save time, DCP / ours",
    "lost": "training time lost to an asynchronous save / DCP",
    "restore": "restore time / plain reads",
    "fine-tune": "bytes written / bytes changed",
}
BARS = {"save": 1.5, "lost": 0.5, "restore": 1.3, "fine-tune": 1.01}


# --- one rank -----------------------------------------------------------------------------------


class Rank:
    """The work of every rank, controlled by the driver through arguments."""

    def __init__(self, mode: str, mib: int, folder: Path) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        self.torch, self.dist, self.folder, self.mode = torch, dist, folder, mode
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # DCP's asynchronous save calls collectives in a thread: not in the group of our barriers.
        self.group = dist.new_group(backend="gloo")
        self.mesh = init_device_mesh("cpu", (self.size,))
        rows = mib * MIB // TENSORS // 4 // 1024 // 16 * 16
        self.tensors: dict[str, Any] = {}
        for i in range(TENSORS):
            self.tensors[f"layer{i}.weight"] = self.make(rows, 1024, i)
            self.tensors[f"layer{i}.bias"] = self.make(64, 16, i)
        self.bytes = sum(t.numel() * t.element_size() for t in self.tensors.values())

    def make(self, rows: int, columns: int, seed: int) -> Any:
        from torch.distributed.tensor import DTensor, Shard

        generator = self.torch.Generator().manual_seed(seed)
        if self.mode == "ddp":
            return self.torch.randn(rows, columns, generator=generator)
        mine = self.torch.randn(rows // self.size, columns, generator=generator)
        return DTensor.from_local(mine, self.mesh, [Shard(0)], run_check=False)

    def local(self, tensor: Any) -> Any:
        return tensor if self.mode == "ddp" else tensor.to_local()

    def change(self, every: int = 1) -> None:
        for i, tensor in enumerate(self.tensors.values()):
            if i % every == 0:
                self.local(tensor).add_(1)

    def slowest(self, call: Any) -> float:
        """Seconds of the slowest rank."""
        self.dist.barrier()
        begin = time.perf_counter()
        call()
        self.dist.barrier()
        spent = self.torch.tensor([time.perf_counter() - begin])
        self.dist.all_reduce(spent, op=self.dist.ReduceOp.MAX)
        return float(spent)

    # --- contenders -----------------------------------------------------------------------------

    def open(self) -> None:
        from ligament.checkpoint import Checkpointer

        self.ck = Checkpointer(str(self.folder / "ligament"), keep=2)
        self.step = max(self.ck.steps(), default=0)

    def save_ligament(self) -> None:
        self.step += 1
        self.ck.save(self.step, model=dict(self.tensors))

    def save_dcp(self) -> None:
        import torch.distributed.checkpoint as dcp

        self.step += 1
        dcp.save(dict(self.tensors), checkpoint_id=str(self.folder / f"dcp{self.step % 2}"))

    def save_torch(self) -> None:
        gathered = {
            name: value if self.mode == "ddp" else value.full_tensor()
            for name, value in self.tensors.items()
        }
        if self.rank == 0:
            path = self.folder / "torch.pt"
            with open(path, "wb") as file:
                self.torch.save(gathered, file)
                file.flush()
                os.fsync(file.fileno())

    def train(self, save: Any) -> Any:
        """Some steps of training, with a save after the first; returns what ends it. A step
        multiplies as a forward and a backward pass over all weights do, then changes them."""
        end = None
        for step in range(STEPS):
            for tensor in self.tensors.values():
                weight = self.local(tensor)
                if weight.shape[1] == 1024:  # of a shard: as often as all ranks have one
                    for _ in range(1 if self.mode == "ddp" else self.size):
                        (self.input @ weight.t()) @ weight
                        self.input @ weight.t()
            self.change()
            if step == 0 and save is not None:
                end = save()
        return end

    def lost(self, start: Any, wait: Any) -> float:
        """Training time lost to an asynchronous save that `start` begins."""
        self.input = self.torch.randn(BATCH, 1024)
        ends: list[Any] = []
        before = self.slowest(lambda: self.train(None))
        with_save = self.slowest(lambda: ends.append(self.train(start)))
        wait(ends[0])
        after = self.slowest(lambda: self.train(None))
        self.training = (before + after) / 2
        return with_save - self.training

    def start_ligament(self) -> Any:
        self.step += 1
        return self.ck.save(self.step, model=dict(self.tensors), wait=False)

    def start_dcp(self) -> Any:
        import torch.distributed.checkpoint as dcp

        self.step += 1
        return dcp.async_save(
            dict(self.tensors),
            checkpoint_id=str(self.folder / f"dcp{self.step % 2}"),
            process_group=self.group,
        )

    # --- measuring ------------------------------------------------------------------------------

    def saves(self, rounds: int) -> dict[str, list[float]]:
        import logging
        import warnings

        warnings.filterwarnings("ignore")
        logging.disable(logging.WARNING)
        self.open()
        found: dict[str, list[float]] = {}
        contenders = {
            "save ligament": self.save_ligament,
            "save dcp": self.save_dcp,
            "save torch.save": self.save_torch,
        }
        for _ in range(rounds):
            for name, save in contenders.items():
                self.change()
                found.setdefault(name, []).append(self.slowest(save))
            for name, start, wait in (
                ("lost ligament", self.start_ligament, lambda t: t.result()),
                ("lost dcp", self.start_dcp, lambda f: f.result()),
            ):
                found.setdefault(name, []).append(self.lost(start, wait))
                found.setdefault("training", []).append(self.training)
        found["fine-tune"] = [self.fine_tune()]
        self.ck.save(self.step + 1, model=dict(self.tensors))
        self.save_dcp()
        self.ck.close()
        found["bytes"] = [float(self.bytes)]
        return found

    def fine_tune(self) -> float:
        """The growth of the files divided by the changed bytes."""
        from ligament.checkpoint import Checkpointer

        ck = Checkpointer(str(self.folder / "fine"))
        ck.save(1, model=dict(self.tensors))
        before = used(self.folder / "fine")
        self.dist.barrier()
        changed = 0
        for i in range(0, TENSORS, 20):
            tensor = self.tensors[f"layer{i}.weight"]
            self.local(tensor).add_(1)
            changed += tensor.numel() * 4
        ck.save(2, model=dict(self.tensors))
        after = used(self.folder / "fine")
        ck.close()
        self.dist.barrier()
        return (after - before) / changed

    def restores(self, rounds: int) -> dict[str, list[float]]:
        import torch.distributed.checkpoint as dcp

        self.open()
        found: dict[str, list[float]] = {}
        newest = max(self.folder.glob("dcp?"), key=os.path.getmtime)

        module = self.module()

        def ligament() -> None:
            self.ck.restore(model=module)

        def peer() -> None:
            dcp.load(dict(self.tensors), checkpoint_id=str(newest))

        def reads() -> None:
            read_share(self.folder / "limit", self.rank if self.mode == "fsdp" else 0, self.share())

        reads()  # so that its memory is there, too
        for _ in range(rounds):
            for name, call in (("ligament", ligament), ("dcp", peer), ("reads", reads)):
                self.dist.barrier()
                if self.rank == 0:
                    forget(self.folder)
                found.setdefault(f"restore {name}", []).append(self.slowest(call))
        self.ck.close()
        return found

    def module(self) -> Any:
        """The tensors as parameters of a module, which are filled in place."""
        module = self.torch.nn.Module()
        for name, tensor in self.tensors.items():
            layer, word = name.split(".")
            if not hasattr(module, layer):
                module.add_module(layer, self.torch.nn.Module())
            parameter = self.torch.nn.Parameter(tensor, requires_grad=False)
            getattr(module, layer).register_parameter(word, parameter)
        return module

    def share(self) -> int:
        return self.bytes if self.mode == "ddp" else self.bytes // self.size


def used(folder: Path) -> int:
    """Bytes of all files."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def forget(folder: Path) -> None:
    """Evicts the files from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with contextlib.suppress(OSError), open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_share(path: Path, number: int, count: int) -> None:
    """The limit: the same number of bytes in large reads, bypassing the page cache, into existing
    memory."""
    import mmap

    memory = read_share.__dict__.get("memory")
    if memory is None or len(memory) < count:
        memory = read_share.__dict__["memory"] = mmap.mmap(-1, count // 4096 * 4096 + 4096)
        for at in range(0, len(memory), 4096):
            memory[at] = 1
    view = memoryview(memory)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    start, done = number * count // 4096 * 4096, 0
    while done < count:
        got = os.preadv(file, [view[done : done + 16 * MIB]], start + done)
        if got <= 0:
            break
        done += got
    os.close(file)


def rank_main(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    one = Rank(arguments.mode[0], arguments.mib, Path(arguments.folder))
    what = one.saves if arguments.child == "saves" else one.restores
    found = what(arguments.rounds)
    if one.rank == 0:
        print("RESULT " + json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


# --- the driver ---------------------------------------------------------------------------------


def run_ranks(what: str, mode: str, ranks: int, arguments: argparse.Namespace) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "OMP_NUM_THREADS": "1",
        }
        command = [
            sys.executable, __file__, "--child", what, "--mode", mode, "--mib", str(arguments.mib),
            "--rounds", str(arguments.rounds), "--folder", str(arguments.folder),
        ]  # fmt: skip
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
    try:
        outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
    except subprocess.TimeoutExpired:
        sys.exit(f"{what} {mode} on {ranks} ranks took more than {PATIENCE_S} s")
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        sys.exit(f"{what} {mode} on {ranks} ranks failed")
    line = next(line for line in outputs[0].splitlines() if line.startswith("RESULT "))
    found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return found


def measure(mode: str, ranks: int, arguments: argparse.Namespace) -> dict[str, float]:
    folder = Path(arguments.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    samples = run_ranks("saves", mode, ranks, arguments)
    total = int(samples["bytes"][0])
    with open(folder / "limit", "wb") as file:
        block = os.urandom(4 * MIB)
        for _ in range(total // len(block) + 1):
            file.write(block)
        os.fsync(file.fileno())
    samples.update(run_ranks("restores", mode, 6 - ranks, arguments))
    shutil.rmtree(folder, ignore_errors=True)
    figures = {name: statistics.median(values) for name, values in samples.items()}
    figures["samples"] = samples  # type: ignore[assignment]
    return figures


def judge(label: str, figures: dict[str, float]) -> list[Bar]:
    # What is less than this part of a run without a save cannot be told from chance.
    least = NOISE * figures["training"]
    ratios = {
        "save": figures["save dcp"] / figures["save ligament"],
        "lost": max(figures["lost ligament"], 0) / max(figures["lost dcp"], least),
        "restore": figures["restore ligament"] / figures["restore reads"],
        "fine-tune": figures["fine-tune"],
    }
    print(f"\n{label}: {figures['bytes'] / MIB:.0f} MiB")
    for name in ("ligament", "dcp", "torch.save"):
        parts = [
            f"{what} {figures[f'{what} {name}']:.2f} s"
            for what in ("save", "lost", "restore")
            if f"{what} {name}" in figures
        ]
        print(f"  {name:12}" + "   ".join(parts))
    print(f"  {'reads':12}restore {figures['restore reads']:.2f} s")
    print(f"  training alone {figures['training']:.2f} s; lost below {least:.2f} s is chance")
    bars = [
        show(Bar(f"{label}: {WORDS[name]}", ratio, BARS[name], name == "save"))
        for name, ratio in ratios.items()
    ]
    peers = figures["save torch.save"] / figures["save ligament"]
    print(f"  save against torch.save on rank 0: {peers:.2f} x")
    print(f"  restore against DCP: {figures['restore dcp'] / figures['restore ligament']:.2f} x")
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--mode", nargs="+", default=["ddp", "fsdp"])
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir()) / "ligament-bench"))
    parser.add_argument("--json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        rank_main(arguments)
        return
    found = {}
    for mode in arguments.mode:
        for ranks in arguments.ranks:
            label = f"{mode}, saved on {ranks}, restored on {6 - ranks}"
            figures = measure(mode, ranks, arguments)
            bars = [bar.record() for bar in judge(label, figures)]
            found[label] = {"figures": figures, "bars": bars}
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

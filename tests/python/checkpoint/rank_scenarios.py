"""What the ranks of a job do in the tests; see rank_zygote.py."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import pathlib
import resource
import signal
import threading
from collections.abc import Iterator
from typing import Any

import ligament
import torch
import torch.distributed as dist
from ligament.checkpoint import Checkpointer, collective_save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

TIMEOUT = 40  # no test waits for it: it is for machines that are very busy


def make(kind: str, size: int, seed: int = 0) -> tuple[Any, Any]:
    """A small model, wrapped, and its optimizer. 3 rows over 2 ranks are uneven, over 4 they leave
    one without any."""
    torch.manual_seed(seed)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(200, 136), torch.nn.ReLU(), torch.nn.Linear(136, 3), torch.nn.BatchNorm1d(3)
    )
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp":
        mesh = init_device_mesh("cpu", (size,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "hsdp":
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh)
    elif kind == "tp":
        mesh = init_device_mesh("cpu", (size,))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, mesh, plan)
    elif kind == "2d":
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any, step: int) -> None:
    """One step; all ranks have the same batch, so that any number of them learns the same."""
    generator = torch.Generator().manual_seed(step)
    loss = model(torch.randn(8, 200, generator=generator)).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(value: Any) -> Any:
    """A tensor's values, gathered."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def values(model: Any, optimizer: Any) -> dict[str, Any]:
    """Everything that a checkpoint has to bring back."""
    found = {k.removeprefix("module."): whole(v) for k, v in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        found.update({f"{number}.{key}": whole(value) for key, value in state.items()})
    return {name: value.detach().clone() for name, value in found.items()}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names whose bits differ, or that only one has."""
    names = sorted(set(one) | set(other))
    return [n for n in names if n not in one or n not in other or not torch.equal(one[n], other[n])]


# --- round trips --------------------------------------------------------------------------------


def save(rank: int, size: int, folder: str, kind: str, wait: bool = True) -> dict[str, Any]:
    """Trains, saves, trains on and saves again; keeps the truth in a file."""
    model, optimizer = make(kind, size)
    with Checkpointer(f"{folder}/store", timeout=TIMEOUT) as ck:
        for step in (1, 2):
            train(model, optimizer, step)
            torch.manual_seed(100 * step + rank)
            truth = values(model, optimizer)
            result = ck.save(
                step,
                model=model,
                optimizer=optimizer,
                rng=True,
                loader={"at": [step, rank]},
                extra={"epoch": step},
                metrics={"loss": step / 2},
                wait=wait,
            )
            train(model, optimizer, step + 10)  # what was saved does not change
            saved = result if wait else result.result()
        if rank == 0:
            torch.save(truth, f"{folder}/truth.pt")
        described = saved.tensors
        return {
            "name": saved.name,
            "steps": ck.steps(),
            "metrics": saved.metrics,
            "problems": list(ck.store.check().problems),
            "tensors": len(described),
        }


class Loader:
    """Something with a state that is each rank's own."""

    def __init__(self) -> None:
        self.at: Any = None

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def restore(rank: int, size: int, folder: str, kind: str, stepped: bool = False) -> dict[str, Any]:
    """Loads what `save` saved into a fresh model, and compares."""
    model, optimizer = make(kind, size, seed=1)
    if stepped:
        train(model, optimizer, 77)
    loader = Loader()
    with Checkpointer(f"{folder}/store", timeout=TIMEOUT) as ck:
        at = ck.restore(model=model, optimizer=optimizer, loader=loader)
    rng = torch.initial_seed()
    truth = torch.load(f"{folder}/truth.pt")
    state = optimizer.state_dict()["state"]
    return {
        "step": at.step,
        "extra": at.extra,
        "metrics": at.metrics,
        "differing": differing(truth, values(model, optimizer)),
        "seed": rng,
        "loader": loader.at,
        "kinds": sorted({type(v).__name__ for one in state.values() for v in one.values()}),
    }


def resume(rank: int, size: int, folder: str, name: str, stop: int, seed: int) -> dict[str, Any]:
    """Trains until step `stop` from the newest checkpoint; each rank draws its own numbers and has
    its own rows."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(seed + rank)
    rows = [torch.full((200,), float(rank * 100 + at)) for at in range(10)]
    loader: Any = StatefulDataLoader(rows, batch_size=2, shuffle=True)
    model, optimizer = make("ddp", size, seed=seed + rank)
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ligament").addHandler(handler)
    losses = []
    with Checkpointer(f"{folder}/{name}", timeout=TIMEOUT) as ck:
        at = ck.restore(model=model, optimizer=optimizer, loader=loader)
        step = at.step if at else 0
        while step < stop:
            for batch in loader:
                step += 1
                loss = model(batch + torch.rand(1)).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                ck.save(step, model=model, optimizer=optimizer, loader=loader)
                if step == stop:
                    break
    return {"losses": losses, "warnings": warnings}


def history(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Saves more steps than are kept; a metric is that of the lowest rank that passes it."""
    with Checkpointer(f"{folder}/store", keep=1, timeout=TIMEOUT) as ck:
        for step in range(4):
            metrics = {"loss": step + rank / 2} | ({"last": float(step)} if rank else {})
            ck.save(step, model={"w": torch.zeros(3)}, metrics=metrics)
        found = [[point.step, point.metrics] for point in ck.history()]
        return {"steps": ck.steps(), "history": found}


def fine_tune(rank: int, size: int, folder: str, kind: str) -> dict[str, Any]:
    """Two saves between which a twentieth of the weights changes."""
    rows = 40
    torch.manual_seed(0)
    weights = {f"w{i}": torch.randn(rows, 4096) for i in range(20)}
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (size,))
        weights = {k: distribute_tensor(v, mesh, [Shard(0)]) for k, v in weights.items()}
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    ck.save(1, model=dict(weights), rng=False)
    before = ck.store.stats()["stored_bytes"] if rank == 0 else 0
    dist.barrier()
    local = weights["w3"].to_local() if kind == "fsdp" else weights["w3"]
    local.add_(1)
    model = ck.save(2, model=dict(weights), rng=False)
    after = ck.store.stats()["stored_bytes"] if rank == 0 else 0
    ck.close()
    return {"own": model.own_bytes, "changed": rows * 4096 * 4, "grown": after - before}


def odd_tensors(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Tied, empty, scalar, strided, replicated, split by columns; NumPy beside torch."""
    import numpy

    mesh = init_device_mesh("cpu", (size,))
    base = torch.arange(48.0).reshape(8, 6)
    tied = distribute_tensor(base, mesh, [Shard(0)])
    plain = torch.arange(70000.0)
    tree = {
        "rows": tied,
        "again": tied,
        "columns": distribute_tensor(base, mesh, [Shard(1)]),
        "replica": distribute_tensor(base, mesh, [Replicate()]),
        "few": distribute_tensor(torch.arange(2.0), mesh, [Shard(0)]),
        "none": distribute_tensor(torch.empty(0, 5), mesh, [Shard(0)]),
        "plain": plain,
        "same": plain,
        "transposed": torch.arange(12.0).reshape(3, 4).t(),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 2),
        "array": numpy.arange(5),
        "half": torch.arange(9).to(torch.bfloat16),
    }
    truth = {k: whole(v) if isinstance(v, torch.Tensor) else v for k, v in tree.items()}
    with Checkpointer(f"{folder}/store", timeout=TIMEOUT) as ck:
        ck.save(1, model=tree)
        stored = ck.store.load("step-000000000001", framework="torch")["model"]
        wrong = [
            name
            for name, value in truth.items()
            if not torch.equal(torch.as_tensor(value), torch.as_tensor(stored[name]))
            or stored[name].dtype != torch.as_tensor(value).dtype
        ]
        model = ck.store["step-000000000001"]
        return {
            "wrong": wrong,
            "bytes": model.bytes,
            "tied": [stored["again"] is stored["rows"], stored["same"] is stored["plain"]],
            "problems": list(ck.store.check().problems),
        }


class Shuffler(Loader):
    """A data loader that draws: its state has tensors, and is each rank's own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def state_dict(self) -> Any:
        return {"at": self.at, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.generator.set_state(state["generator"])


def loader_with_tensors(rank: int, size: int, folder: str, wait: bool = True) -> dict[str, Any]:
    """Each rank's loader continues where it was; another number of ranks gets that of rank 0."""
    known = pathlib.Path(f"{folder}/store").exists()
    dist.barrier()
    model, optimizer = torch.nn.Linear(3, 2), torch.optim.SGD([torch.ones(2)], momentum=0.9)
    with Checkpointer(f"{folder}/store", timeout=TIMEOUT) as ck:
        if not known:
            for step in (1, 2):  # the second by the plan of the first
                loader = Shuffler(rank)
                loader.at = [step, rank]
                part = {"seen": torch.full((2,), float(rank))}
                ck.save(
                    step,
                    model=model,
                    loader=loader,
                    optimizer=optimizer,
                    part=part,
                    wait=wait,
                    rng=False,
                )
            ck.wait()
        loader = Shuffler(77)
        ck.restore(model=model, loader=loader)
        problems = list(ck.store.check().problems)
        names = [name for name in ck.store["step-000000000002"].tensors if "ranks" in name]
    return {
        "at": loader.at,
        "seed": loader.generator.initial_seed(),
        "problems": problems,
        "kept": sorted(names),
    }


def buffers(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Each rank sees other data, so that its buffers differ; those of rank 0 count, as in DDP."""
    torch.manual_seed(0)
    inner = torch.nn.Sequential(*(torch.nn.BatchNorm1d(8) for _ in range(4)))
    inner.register_buffer("large", torch.full((40000,), float(rank)))
    model = torch.nn.parallel.DistributedDataParallel(inner)
    model(torch.randn(16, 8, generator=torch.Generator().manual_seed(rank))).sum().backward()
    mine = {name: value.clone() for name, value in inner.state_dict().items()}
    if rank == 0:
        torch.save(mine, f"{folder}/truth.pt")
    with Checkpointer(f"{folder}/store", timeout=TIMEOUT) as ck:
        extra = {f"e{i}": torch.full((20000 * i,), float(rank)) for i in range(4)}
        ck.save(1, model=model, extra=extra)
        at = ck.restore(model=model)
    truth = torch.load(f"{folder}/truth.pt")
    return {
        "differing": differing(truth, dict(inner.state_dict())),
        "differed": differing(truth, mine) != [],
        "extra": sorted({float(x) for value in at.extra.values() for x in value.unique()}),
    }


def held_by_some(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Tensors of a mesh that not all ranks are in."""
    some = DeviceMesh("cpu", [size - 1])
    here = rank == size - 1
    tree: dict[str, Any] = {}
    for i in range(8):
        scalar = torch.tensor(i + 1.0 if here else float("nan"))
        tree[f"scalar{i}"] = DTensor.from_local(scalar, some, [Replicate()], run_check=False)
        rows = torch.full((4,), i + 1.0)
        tree[f"rows{i}"] = DTensor.from_local(
            rows if here else rows[:0], some, [Shard(0)], run_check=False, shape=(4,), stride=(1,)
        )
    with Checkpointer(f"{folder}/store", timeout=TIMEOUT) as ck:
        ck.save(1, model=tree)
        stored = ck.store.load("step-000000000001", framework="torch")["model"]
        return {name: value.unique().tolist() for name, value in stored.items()}


def halves(rank: int, size: int, folder: str, how: str) -> dict[str, Any]:
    """Each rank trains half of a model, split by torch or by hand."""
    from torch.distributed.pipelining import SplitPoint, pipeline

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200))
    split = {"1": SplitPoint.BEGINNING}
    stage = pipeline(model, (torch.randn(2, 200),), split_spec=split).build_stage(rank, "cpu")
    half = torch.nn.Sequential(collections.OrderedDict({str(rank): model[rank]}))
    half.IS_PART_OF_A_MODEL = True  # type: ignore[assignment]
    part, module = {
        "stage": (stage, stage.submod),
        "stages": ([stage], stage.submod),
        "marked": (half, half),
        "wrapped": (torch.nn.DataParallel(half), half),
        "no model": (None, half),
        "plain": (model[rank], half),
        "names": (stage.submod, stage.submod),
    }[how]
    optimizer: Any = torch.optim.Adam(module.parameters())
    for param in module.parameters():
        param.grad = torch.full_like(param, rank + 1.0)
    optimizer.step()
    if how == "stages":
        optimizer = [optimizer]
    values = {f"{name}": value.clone() for name, value in module.state_dict().items()}
    with Checkpointer(f"{folder}/store", timeout=TIMEOUT) as ck:
        ck.save(1, model=part, optimizer=optimizer)
        with torch.no_grad():
            for param in module.parameters():
                param.zero_()
        ck.restore(model=part, optimizer=optimizer)
    torch.save(values, f"{folder}/half{rank}.pt")
    return {"differing": differing(values, module.state_dict())}


def both_halves(rank: int, size: int, folder: str) -> dict[str, Any]:
    """One process has the whole model."""
    model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200))
    optimizer = torch.optim.Adam(model.parameters())
    with Checkpointer(f"{folder}/store") as ck:
        ck.restore(model=model, optimizer=optimizer)
    truth = torch.load(f"{folder}/half0.pt") | torch.load(f"{folder}/half1.pt")
    moments = [state["exp_avg"].mean().item() for state in optimizer.state.values()]
    return {"differing": differing(truth, model.state_dict()), "moments": moments}


# --- what goes wrong ----------------------------------------------------------------------------


@contextlib.contextmanager
def dying(at: str) -> Iterator[None]:
    """Ends this process as the kernel does when it comes to a place, like 'after join'."""
    when, what = at.split()
    owner, name, first = {
        "have": (collective_save.Ranks, "tell", "have"),
        "part": (collective_save.Ranks, "tell", "part"),
        "plan": (collective_save.Ranks, "heard", "plan"),
        "done": (collective_save.Ranks, "heard", "done"),
        "write": (collective_save._Save, "start", None),
        "answer": (collective_save.CollectiveSave, "_answer_plan", None),
        "join": (collective_save._Save, "_join", None),
    }[what]
    original = getattr(owner, name)

    def replaced(self: Any, *arguments: Any, **named: Any) -> Any:
        here = first is None or first in arguments
        if here and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(self, *arguments, **named)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, replaced)
    yield


def killed(
    rank: int, size: int, folder: str, victim: int, at: str, wait: bool = True, again: bool = False
) -> dict[str, Any]:
    """Saves one step with all ranks, and another during which one rank is killed."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (size,))
    weights = distribute_tensor(torch.randn(64, 4096), mesh, [Shard(0)])
    replica = torch.randn(50000)
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    ck.save(1, model={"w": weights, "r": replica})
    weights.to_local().add_(1)
    replica.add_(1)
    tree = {"w": weights, "r": replica}
    if not again:
        tree["more"] = torch.zeros(3)  # another plan, so that all ranks have to agree first
    with dying(at) if rank == victim else contextlib.nullcontext():
        result = ck.save(2, model=tree, wait=wait)
        if not wait:
            result.result()
    return {"steps": ck.steps()}


def after_death(rank: int, size: int, folder: str) -> dict[str, Any]:
    """What is left: the step before, whole, and nothing besides."""
    with ligament.Store(f"{folder}/store") as store:
        steps = [model.name for model in store.models()]
        torch.manual_seed(0)
        truth = torch.randn(64, 4096)
        replica = torch.randn(50000)
        if len(steps) == 2:
            truth, replica = truth + 1, replica + 1
        stored = store.load(steps[-1], framework="torch")["model"]
        problems = list(store.check().problems)
        packs = len(os.listdir(f"{folder}/store/packs"))
        # The next job continues.
        with Checkpointer(store) as ck:
            ck.save(3, model={"w": truth})
    return {
        "steps": steps,
        "equal": [torch.equal(stored["w"], truth), torch.equal(stored["r"], replica)],
        "problems": problems,
        "packs": packs,
    }


def wrong(rank: int, size: int, folder: str, how: str) -> dict[str, Any]:
    """After a good save, one in which rank 1 does something else than the others."""
    mesh = init_device_mesh("cpu", (size,))
    tree: dict[str, Any] = {
        "w": distribute_tensor(torch.zeros(8, 3), mesh, [Shard(0)]),
        "r": torch.zeros(4),
    }
    odd = rank == 1
    uri = f"{folder}/store"
    if how == "unreachable" and odd:
        pathlib.Path(f"{folder}/file").touch()
        uri = f"{folder}/file/store"
    if how == "another store" and odd:
        uri = f"{folder}/other"
    ck: Any = Checkpointer(uri, timeout=TIMEOUT)
    if how not in ("another store", "unreachable"):
        ck.save(1, model=tree)
    if how == "never":
        ck._collective.ranks.timeout = 3
    if how == "never" and odd:
        return {"steps": ck.steps()}
    if how == "restore" and odd:
        ck.restore(model={})
    tree = spoiled(tree, how, rank, mesh)
    if how == "snapshot":
        ck.save(2, model=tree, wait=False, snapshot="odd" if odd else None).result()
    ck.save(2 + rank if how == "step" else 2, model=tree)
    return {"steps": ck.steps()}


def spoiled(tree: dict[str, Any], how: str, rank: int, mesh: Any) -> dict[str, Any]:
    """The tree as this rank passes it."""
    odd = rank == 1
    changes: dict[str, Any] = {
        "extra name": lambda: {**tree, "more": torch.zeros(1)} if odd else tree,
        "missing name": lambda: {"w": tree["w"]} if odd else tree,
        "order": lambda: {"r": tree["r"], "w": tree["w"]} if odd else tree,
        "shape": lambda: {**tree, "r": torch.zeros(6 - rank)},
        "dtype": lambda: {**tree, "r": torch.zeros(4, dtype=(torch.int64, torch.int32)[rank])},
        "whole": lambda: {**tree, "w": torch.zeros(8, 3)} if odd else tree,
        "object": lambda: {**tree, "r": object()} if odd else tree,
        "partial": lambda: {
            "w": DTensor.from_local(torch.zeros(8, 3), mesh, [Partial()], run_check=False)
        },
        "overlap": lambda: misplaced(tree, ((0, 4), (2, 6))[rank]),
        "gap": lambda: misplaced(tree, ((0, 4), (5, 3))[rank]),
        "full": lambda: full(tree, mesh, odd),
    }
    return changes[how]() if how in changes else tree


def misplaced(tree: dict[str, Any], rows: tuple[int, int]) -> dict[str, Any]:
    """Distributed tensors lie elsewhere than they should: rows[1] rows from rows[0] on."""
    kind = collective_save.tensors.Shard

    def shard(value: Any, name: str) -> Any:
        if not isinstance(value, DTensor):
            return None
        return kind((8, 3), (rows[0], 0), torch.zeros(rows[1], 3))

    collective_save.tensors.shard = shard
    return {"x": tree["w"]}


def full(tree: dict[str, Any], mesh: Any, odd: bool) -> dict[str, Any]:
    """A file of the odd rank cannot grow."""
    if odd:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    return {**tree, "large": distribute_tensor(torch.randn(64, 65536), mesh, [Shard(0)])}


def steps(rank: int, size: int, folder: str) -> list[int]:
    """What there is."""
    with ligament.Store(f"{folder}/store") as store:
        return [int(model.name[5:]) for model in store.models("step-*")]


def recovers(rank: int, size: int, folder: str) -> dict[str, Any]:
    """A failed save is no obstacle to the next one."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    failed = []
    for step in range(1, 7):
        tree: dict[str, Any] = {"w": torch.full((3,), float(step))}
        if step % 2 == 0:
            tree["odd"] = torch.zeros(2 + rank)
        try:
            ck.save(step, model=tree, wait=step % 3 == 0)
            ck.wait()
        except ligament.MismatchError:
            failed.append(step)
    return {"failed": failed, "steps": ck.steps()}


class Moody:
    """Reading its state fails on one rank, now and then."""

    def __init__(self, well: bool) -> None:
        self.well = well

    def state_dict(self) -> Any:
        if not self.well:
            raise ValueError("no state yet")
        return {"at": 1}


def one_rank_fails(rank: int, size: int, folder: str, victim: int) -> dict[str, Any]:
    """What goes wrong on one rank before it says what it has, and the calls after that."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    told = []

    def attempt(call: Any) -> None:
        try:
            call()
            told.append("")
        except Exception as error:
            told.append(str(error))

    well = rank != victim
    tree = {"w": torch.zeros(3)}
    attempt(lambda: ck.save(1, model=tree, loader=Moody(well)))
    attempt(lambda: ck.save(2, model=tree, loader=Moody(True)))
    attempt(lambda: ck.save(3, model=tree, loader=Moody(well)))  # with a known plan
    attempt(lambda: ck.save(4 if well else -4, model=tree))
    # A save in the background fails on all; all but the victim look at once.
    ticket = ck.save(5, model={**tree, "odd": torch.zeros(2)}, wait=False)
    ticket._error = ValueError("the background")
    if well:
        attempt(ck.wait)
    attempt(lambda: ck.save(6, model=tree))
    ticket = ck.save(7, model=tree, wait=False)
    ticket._error = ValueError("the background")
    if well:
        attempt(ck.wait)
    attempt(lambda: ck.restore(step=2))
    attempt(lambda: ck.save(8, model=tree))
    metrics: Any = {"loss" if well else ("loss",): 1.0}
    attempt(lambda: ck.save(9, model=tree, metrics=metrics))
    return {"told": told, "steps": ck.steps()}


def other_boxes(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Boxes change on all ranks but the first."""
    meshes = [DeviceMesh("cpu", order) for order in ([0, 1, 2], [0, 2, 1])]
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    base, told, wrong = torch.arange(12.0).reshape(6, 2), [], []
    for step, turn in enumerate((0, 0, 1, 1, 1, 0, 0)):
        try:
            at = 2 * meshes[turn].get_coordinate()[0]
            rows = (base + step)[at : at + 2]
            ck.save(step, model={"w": DTensor.from_local(rows, meshes[turn], [Shard(0)])})
        except ligament.MismatchError as error:
            told.append([step, str(error)])
    for step in ck.steps():
        stored = ck.store.load(f"step-{step:012d}", framework="torch")["model"]["w"]
        wrong += [] if torch.equal(stored, base + step) else [step]
    return {"told": told, "steps": ck.steps(), "wrong": wrong}


def impatient(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Rank 1 has given up before rank 0 looks at the parts."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    ck.save(1, model={"w": torch.zeros(3)})
    if rank == 0:
        os.mkfifo(f"{folder}/gone")
        lead = collective_save._Save._lead

        def late(self: Any) -> None:
            pathlib.Path(f"{folder}/gone").read_text()  # until rank 1 has written
            lead(self)

        collective_save._Save._lead = late
    else:

        def heard(*_: Any) -> Any:
            raise ligament.TimeoutError("rank 0 did not commit")

        collective_save.Ranks.heard = heard
    dist.barrier()
    try:
        ck.save(2, model={"w": torch.zeros(3)})
        return {"told": "", "steps": ck.steps()}
    except ligament.TimeoutError as error:
        if rank == 1:
            pathlib.Path(f"{folder}/gone").write_text("now")
        return {"told": str(error), "steps": ck.steps()}


def rank_0_serves(rank: int, size: int, folder: str, well: bool) -> dict[str, Any]:
    """Rank 0 serves the job's store, and ends as soon as it has saved; rank 1 is slow to hear."""
    port, stays = pathlib.Path(f"{folder}/port"), pathlib.Path(f"{folder}/stays")
    with contextlib.suppress(FileExistsError):
        os.mkfifo(port)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(stays)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        port.write_text(str(store.port))
        stay = collective_save.Ranks._stay

        def staying(self: Any, number: int) -> None:
            stays.write_text("now")
            stay(self, number)

        collective_save.Ranks._stay = staying
    else:
        store = dist.TCPStore("127.0.0.1", int(port.read_text()), size)
        heard = collective_save.Ranks.heard

        def late(self: Any, number: int, name: str, *rest: Any) -> Any:
            if name == ("done" if well else "plan"):
                stays.read_text()  # until rank 0 has nothing else to do
            return heard(self, number, name, *rest)

        collective_save.Ranks.heard = late
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    ck.save(1, model={"w": torch.zeros(3) if well or rank else object()})
    return {"steps": ck.steps()}


def interrupted(rank: int, size: int, folder: str, victim: int) -> dict[str, Any]:
    """One rank is interrupted at each place of a call in turn, and continues."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    told = []
    places = [
        (collective_save.Ranks, "heard"), (collective_save, "_Held"),
        (collective_save._Save, "start"), (collective_save, "release_all"),
        (Checkpointer, "_restore"),
    ]  # fmt: skip
    for step, (owner, name) in enumerate(places):
        original = getattr(owner, name)

        def raising(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        if rank == victim:
            setattr(owner, name, raising)
        try:
            if name == "_restore":
                ck.restore(step=100)
            else:
                ck.save(step, model={"w": torch.zeros(3)})
            told.append("")
        except (ligament.Error, KeyboardInterrupt) as error:
            told.append(f"{type(error).__name__}: {error}")
        setattr(owner, name, original)
        ck.save(100 + step, model={"w": torch.zeros(3)})
    return {"told": told, "steps": ck.steps(), "problems": list(ck.store.check().problems)}


def restore_fails(rank: int, size: int, folder: str) -> dict[str, Any]:
    """One rank requests what does not exist: all ranks fail."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    first = ck.restore(model=torch.nn.Linear(3, 2))
    ck.save(1, model=torch.nn.Linear(3, 2))
    told = []
    for model in (torch.nn.Linear(3, 2 + rank), torch.nn.Linear(3, 2)):
        try:
            ck.restore(model=model)
            told.append("")
        except ligament.Error as error:
            told.append(str(error))
    return {"first": first, "told": told}


def preempted(rank: int, size: int, folder: str, how: str) -> dict[str, Any]:
    """Steps until one of the ranks is asked to stop."""
    called: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    step = 0
    while step < 1000 and not ck.preempted():
        step += 1
        if step == 5 and rank == size - 1:
            os.kill(os.getpid(), getattr(signal, how))
    later = [ck.preempted() for _ in range(3)]
    ck.save(step, model={"w": torch.zeros(2)})
    return {"step": step, "called": called, "later": later}


def asked_to_the_end(rank: int, size: int, folder: str) -> bool:
    """No rank is asked to stop; the operation of the last query has ended when `close` returns."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    asked = [pathlib.Path(folder, f"asked-{other}") for other in range(size)]
    assert not ck.preempted()
    while rank == 0 and not all(path.exists() for path in asked[1:]):
        pass  # theirs is under way first
    assert not ck.preempted()
    flag: Any = ck._collective_flag
    work = flag._pending[0]
    asked[rank].touch()
    ck.close()
    return bool(work.is_completed())


def runs(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Two runs in one store; who writes one of them, and what a third starts from."""
    found: dict[str, Any] = {"pid": os.getpid()}
    with ligament.Store(f"{folder}/store") as store:
        each = {
            name: Checkpointer(store, keep=1, run=name, timeout=TIMEOUT) for name in ("a", "b", "c")
        }
        for step in (1, 2):
            for name in ("a", "b"):
                each[name].save(step, model={"w": torch.full((2,), step + ord(name))})
        found["steps"] = {name: ck.steps() for name, ck in each.items()}
        into = {"w": torch.zeros(2, dtype=torch.int64)}
        at = [each["c"].restore(model=into, from_run="b")]
        found["from"] = [at[0].run, at[0].step, into["w"].tolist()]
        found["nothing"] = each["c"].restore(model=into)
        try:
            each["c"].save(3, model=into)
        except ligament.BusyError as error:
            found["busy"] = str(error)
        dist.barrier()
        places = pathlib.Path(folder, "store/leases").glob("run-*")
        found["writers"] = sorted(int(place.read_text().split()[4]) for place in places)
        dist.barrier()
    return found


def many(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Several Checkpointers and saves in a job, some in the background; old steps go."""
    stores = [Checkpointer(f"{folder}/{n}", keep=2, timeout=TIMEOUT) for n in range(2)]
    for step in range(6):
        for number, ck in enumerate(stores):
            tree = {"w": torch.full((40000,), float(step)), "n": torch.tensor(number)}
            ck.save(step, model=tree, wait=(step + number) % 2 == 0)
    for ck in stores:
        ck.wait()
    found = [ck.steps() for ck in stores]
    values = []
    for ck in stores:
        stored = ck.store.load("step-000000000005", framework="torch")["model"]
        values.append([stored["w"].unique().tolist(), int(stored["n"])])
    return {"steps": found, "values": values}


def slow_to_hear(rank: int, size: int, folder: str) -> dict[str, Any]:
    """A save in the background ends on rank 1 only when the next one waits for it."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    ck.save(1, model={"w": torch.zeros(3)})
    waits = threading.Event()
    if rank == 1:
        hear, wait = collective_save._Save._hear, ck.wait

        def late(self: Any) -> None:
            waits.wait(TIMEOUT)
            hear(self)

        def waiting() -> None:
            waits.set()
            wait()

        collective_save._Save._hear, ck.wait = late, waiting
    ticket = ck.save(2, model={"w": torch.ones(3)}, wait=False)
    waits.clear()
    if rank == 0:
        ticket.result()
    ck.save(3, model={"w": torch.ones(3)})
    return {"steps": ck.steps()}


def late_job(rank: int, size: int, folder: str) -> dict[str, Any]:
    """The Checkpointer is there before the job is."""
    ck = Checkpointer(f"{folder}/store", timeout=TIMEOUT)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size)
    ck.save(1, model={f"w{i}": torch.full((30000,), float(rank)) for i in range(size)})
    stored = ck.store.load("step-000000000001", framework="torch")["model"]
    return {"writers": sorted(int(value[0]) for value in stored.values())}

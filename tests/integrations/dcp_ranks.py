"""One rank of a test: dcp_ranks.py WHAT RANK WORLD FOLDER. Ends with 0 when all is well."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ligament.checkpoint.dcp import StorageReader, StorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

warnings.simplefilter("ignore")


class Step:
    """What DCP calls stateful."""

    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def made(world: int, seed: int) -> tuple[Any, Any]:
    """A sharded model whose sizes no number of ranks divides, and an optimizer with a state."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(7, 33), torch.nn.ReLU(), torch.nn.Linear(33, 3))
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model(torch.ones(2, 7)).sum().backward()
    optimizer.step()
    return model, optimizer


def whole(model: Any, optimizer: Any) -> dict[str, Any]:
    """Every tensor as it is without ranks."""
    states = get_state_dict(model, optimizer)
    found: dict[str, Any] = {}

    def visit(tree: Any, path: str) -> None:
        if isinstance(tree, dict):
            for key, item in tree.items():
                visit(item, f"{path}.{key}")
        elif isinstance(tree, torch.Tensor):
            found[path] = tree.full_tensor() if isinstance(tree, DTensor) else tree.clone()

    visit({"model": states[0], "optimizer": states[1]}, "")
    return found


def state_of(model: Any, optimizer: Any, step: Step) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def save(world: int) -> None:
    """The same state as "run" and, while training continues, as "late"."""
    model, optimizer = made(world, 1)
    want = whole(model, optimizer)
    if dist.get_rank() == 0:
        torch.save(want, "want.pt")
    writer = StorageWriter("store")
    dcp.save(state_of(model, optimizer, Step(9)), checkpoint_id="run", storage_writer=writer)
    state = state_of(model, optimizer, Step(9))
    future = dcp.async_save(state, checkpoint_id="late", storage_writer=writer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    future.result()


def load(world: int, name: str) -> None:
    model, optimizer = made(world, 2)
    step = Step(0)
    state = state_of(model, optimizer, step)
    dcp.load(state, checkpoint_id=name, storage_reader=StorageReader("store"))
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    want, got = torch.load("want.pt", weights_only=True), whole(model, optimizer)
    assert step.value == 9 and set(want) == set(got), (step.value, set(want) ^ set(got))
    for key, value in want.items():
        assert torch.equal(value, got[key]), key


def empty() -> None:
    """State dicts without entries on some ranks, and on all."""
    first = dist.get_rank() == 0
    for name, filled in (("some", first), ("last", not first), ("none", False)):
        state = {"w": torch.arange(5.0)} if filled else {}
        dcp.save(state, checkpoint_id=name, storage_writer=StorageWriter("store"))
        into = {"w": torch.zeros(5)} if filled else {}
        dcp.load(into, checkpoint_id=name, storage_reader=StorageReader("store"))
        assert not filled or torch.equal(into["w"], torch.arange(5.0)), name


def fail(world: int) -> None:
    """The last rank cannot write: all hear of it, and what was there stays."""
    model, optimizer = made(world, 3)

    class Broken(StorageWriter):
        def write_data(self, plan: Any, planner: Any) -> Any:
            if dist.get_rank() == world - 1:
                raise OSError("the disk of this rank is full")
            return super().write_data(plan, planner)

    state = state_of(model, optimizer, Step(1))
    try:
        dcp.save(state, checkpoint_id="run", storage_writer=Broken("store"))
    except dcp.CheckpointException as error:
        assert "the disk of this rank is full" in str(error)
    else:
        raise AssertionError("no rank heard of the failure")


def main() -> None:
    what, rank, world, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.chdir(folder)
    place = f"file://{folder}/meet-{what}-{world}"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=world)
    if what == "save":
        save(world)
        empty()
        fail(world)
    load(world, "run")
    load(world, "late")
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    # Not through the interpreter's end: a thread of gloo may still let go of a tensor, and torch
    # aborts when it does so then (pytorch issue 190489).
    os._exit(0)


main()

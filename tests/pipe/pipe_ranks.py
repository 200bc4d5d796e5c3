"""What the ranks of test_pipeline run: training steps over a plan, and the same in one process."""

from __future__ import annotations

import traceback
from typing import Any

import stage_ranks
import torch
import torch.distributed as dist
from pipe_models import Case, gpt2, t5, tokens
from torch import nn

MICROBATCHES = 4
STEPS = 2


def build(name: str) -> Case:
    torch.manual_seed(0)
    if name == "gpt2":
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        case = gpt2(layers=4, use_cache=False, **quiet)
    else:
        case = t5(dropout_rate=0.0, use_cache=False)
    case.model.train()
    return case


def batch(name: str, step: int) -> tuple[tuple[Any, ...], dict[str, Any], torch.Tensor]:
    torch.manual_seed(100 + step)
    rows = 2 * MICROBATCHES
    if name == "gpt2":
        return (tokens(rows),), {}, tokens(rows)
    given = {"input_ids": tokens(rows), "decoder_input_ids": tokens(rows, 6)}
    return (), given, tokens(rows, 6)


def loss_fn(output: Any, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.logits.flatten(0, 1), target.flatten())


def alone(name: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and weights of the one-process run."""
    model = build(name).model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        args, kwargs, target = batch(name, step)
        optimizer.zero_grad()
        found = []
        for i in range(MICROBATCHES):
            rows = slice(2 * i, 2 * i + 2)
            output = model(*(a[rows] for a in args), **{k: v[rows] for k, v in kwargs.items()})
            loss = loss_fn(output, target[rows])
            (loss / MICROBATCHES).backward()
            found.append(loss.item())
        optimizer.step()
        losses.append(sum(found) / MICROBATCHES)
    return losses, dict(model.named_parameters(remove_duplicate=False))


def disagree(rank: int, world: int) -> dict[str, Any]:
    """Each rank has a plan of its own, then asks for another one than rank 0 does."""
    from ligament.errors import MismatchError
    from ligament.pipe import pipe_model

    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    devices = [{"speed": 1.0 + 3 * (i == rank)} for i in range(world)]
    given: dict[str, Any] = {"args": (torch.ones(2, 8),), "stages": world, "profile": "flops"}
    alone = pipe_model(model, devices=devices, distributed=False, **given)
    refused = []
    for call in (
        alone.pipeline,
        lambda: pipe_model(model, devices=devices, **given),
        lambda: pipe_model(model[rank:], **given),
        lambda: pipe_model(model, devices=None if rank else ["cpu"] * 9, **given),
    ):
        try:
            call()
            refused.append("")
        except MismatchError as error:
            refused.append(str(error))
    return {"refused": refused}


def measured(rank: int, world: int) -> dict[str, Any]:
    """The default profile: only rank 0 may look at the clock, and all get its plan."""
    from ligament.pipe import pipe_model
    from ligament.pipe.costs import profile

    clocks = 0
    clock = profile._Bench._clock

    def counted(*given: Any) -> Any:
        nonlocal clocks
        clocks += 1
        return clock(*given)

    profile._Bench._clock = counted  # type: ignore[method-assign]
    try:
        model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
        plan = pipe_model(model, (torch.ones(2, 64),), stages=world, microbatches=4)
        schedule = plan.pipeline(loss_fn=lambda output, target: (output - target).square().mean())
        schedule.step(torch.ones(8, 64), target=torch.zeros(8, 64))
    finally:
        profile._Bench._clock = clock  # type: ignore[method-assign]
    times = [node.forward_ms for node in plan.graph.nodes]
    return {"clocks": clocks, "times": times, "plan": plan.as_json(), "report": str(plan.report())}


def train(name: str, rank: int, world: int, options: dict[str, Any]) -> dict[str, Any]:
    """This rank's part of the same steps."""
    from ligament.pipe import pipe_model

    if name in ("disagree", "measured"):
        return {"disagree": disagree, "measured": measured}[name](rank, world)
    if name == "checkpoint":
        return stage_ranks.checkpoint(rank, world, **options)
    case = build(name)
    plan = pipe_model(
        *case,
        profile="flops",
        microbatches=MICROBATCHES,
        devices=["cpu"] * world,
        **options,
    )
    schedule = plan.pipeline(loss_fn=loss_fn)
    mine = {id(p): p for stage in plan.stages_of(rank) for p in stage.parameters()}
    optimizer = torch.optim.SGD(mine.values(), lr=0.1)
    losses = []
    for step in range(STEPS):
        args, kwargs, target = batch(name, step)
        optimizer.zero_grad()
        found: list[torch.Tensor] = []
        schedule.step(*args, target=target, losses=found, **kwargs)
        optimizer.step()
        if found:
            losses.append(sum(loss.item() for loss in found) / MICROBATCHES)
    output = schedule.eval(*args, **kwargs)
    weights = {
        n: p.detach().tolist()
        for stage in plan.stages_of(rank)
        for n, p in stage.named_parameters(remove_duplicate=False)
    }
    jumps = sum(len(set(s.inputs) & set(s.outputs)) for s in plan.layout.stages[1:-1])
    kind = type(output).__name__ if output is not None else None
    line = [str(action) for action in schedule._orders[True][rank]]
    ahead = "RECV" in line[0] or not any("RECV" in action for action in line)
    return {"losses": losses, "weights": weights, "output": kind, "jumps": jumps, "ahead": ahead}


def rank_main(rank: int, world: int, meeting: str, jobs: list[Any], answers: Any) -> None:
    """All jobs one after the other in one group of processes: starting them is what takes time."""
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world
        )
        for number, (name, options) in enumerate(jobs):
            answers.put((number, rank, train(name, rank, world, options)))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        answers.put((-1, rank, traceback.format_exc()))
        raise

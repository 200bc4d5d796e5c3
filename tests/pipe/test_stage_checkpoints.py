"""Stages on several ranks are one model in the store, restored on any number of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ligament
import pytest
import torch
from ligament.checkpoint import Checkpointer
from ligament.pipe import pipe_model
from stage_ranks import MICROBATCHES, ROWS, batch, loss_fn, make, optimizer_of
from test_pipeline import run
from torch import nn


def train(model: Any, optimizer: Any, step: int) -> float:
    """The step that the ranks do, in one process."""
    words, target = batch(step)
    optimizer.zero_grad()
    total = 0.0
    for at in range(MICROBATCHES):
        rows = slice(at * ROWS // MICROBATCHES, (at + 1) * ROWS // MICROBATCHES)
        loss = loss_fn(model(words[rows]), target[rows])
        (loss / MICROBATCHES).backward()
        total += loss.item()
    optimizer.step()
    return total / MICROBATCHES


def states(model: Any, optimizer: Any) -> dict[str, Any]:
    """The state of an optimizer by the names of its parameters."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: found for p, found in optimizer.state.items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name][key], other[name][key]) for name in one for key in one[name]
    )


@pytest.mark.soak  # seven jobs of up to four processes: minutes on two cores
@pytest.mark.timeout(900)
def test_stages_are_one_model(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    whole = make(0)
    names = set(whole.state_dict())
    (answers,) = run(
        2, [("checkpoint", {"store": store, "stages": 2, "until": 2})], tmp_path, ["pipe_ranks"]
    )
    found = ligament.Store(store, "r")
    stored = found.load("step-000000000002")
    assert set(stored["model"]) == names
    assert set(stored["optimizer"]["state"]) == {name for name, _ in whole.named_parameters()}
    for answer in answers:
        for name, value in answer["weights"].items():
            assert torch.equal(torch.tensor(value), torch.from_numpy(stored["model"][name])), name

    # whole, on one process, where it was after two steps and where it goes in the third
    optimizer = optimizer_of([whole])
    with Checkpointer(store) as ck:
        at = ck.restore(model=whole, optimizer=optimizer)
        assert at is not None and at.step == 2
    for name, value in whole.state_dict().items():
        assert torch.equal(value, torch.from_numpy(stored["model"][name])), name
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.1, 0.0]
    assert all(found["step"] == 2 for found in optimizer.state.values())
    before = states(whole, optimizer)
    for name, values in stored["optimizer"]["state"].items():
        for key, value in values.items():
            assert torch.equal(before[name][key], torch.as_tensor(value))
    alone, same_twice = make(0), train(whole, optimizer, 2)
    trained = optimizer_of([alone])
    losses = [train(alone, trained, step) for step in range(3)]
    last = [answer["losses"] for answer in answers if answer["losses"][0] is not None]
    assert last == [pytest.approx(losses[:2], rel=1e-5)]
    assert same_twice == pytest.approx(losses[2], rel=1e-5)

    # on four stages, and on two replicas of two; each writes what one process would
    jobs = [
        ("checkpoint", {"store": store, "stages": 4, "until": 3, "seed": 5, "lists": False}),
        ("checkpoint", {"store": store, "stages": 2, "until": 4, "seed": 7}),
    ]
    (tmp_path / "four").mkdir()
    three, four = run(4, jobs, tmp_path / "four", ["pipe_ranks"])
    assert [a["losses"][0] for a in three] == [None] * 3 + [pytest.approx(losses[2], rel=1e-5)]
    loss = train(alone, trained, 3)
    assert [a["losses"][0] for a in four] == [None, pytest.approx(loss, rel=1e-5)] * 2
    size = sum(p.numel() * 4 for p in alone.parameters())
    assert three[0]["bytes"] == four[0]["bytes"]
    assert three[0]["own"] < 3 * size + 30_000 + 4 * 16_000  # weights, two moments, random states


def test_stages_of_one_process_are_one_model(tmp_path: Path) -> None:
    model = make(0)
    plan = pipe_model(model, (batch(0)[0],), stages=3, profile="flops", progress=False)
    optimizer = optimizer_of(plan.stages)
    train(model, optimizer, 0)
    with Checkpointer("mem:") as ck:
        ck.save(1, model=plan.stages, optimizer=optimizer)
        other = make(1)
        found = optimizer_of([other])
        ck.restore(model=other, optimizer=found)
        assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
        assert same(states(model, optimizer), states(other, found))
        wrapped = [nn.DataParallel(stage) for stage in plan.stages]
        ck.save(2, model=wrapped, optimizer=optimizer)
        assert ck.store["step-000000000002"].own_bytes == ck.store["step-000000000001"].own_bytes
        ck.restore(model=wrapped, optimizer=optimizer)
        stage = plan.stages[1]
        with pytest.raises(
            ligament.InvalidError, match=r"is in no model of this call \(pass model"
        ):
            ck.restore(optimizer=optimizer_of([stage]))
        grouped = torch.optim.AdamW(other.parameters())
        with pytest.raises(ligament.MismatchError, match="stored with weight_decay=0"):
            ck.restore(model=other, optimizer=grouped)
        with pytest.raises(ligament.MismatchError, match="lacks 'model.weight'"):
            ck.restore(model=nn.Linear(2, 2))
        more = torch.optim.AdamW([*other.parameters(), nn.Parameter(torch.ones(3))])
        with pytest.raises(ligament.InvalidError, match=r"parameter of shape \(3,\)"):
            ck.restore(model=other, optimizer=more)
        ck.save(3, model=model, optimizer=optimizer_of([model]))
        with pytest.raises(
            ligament.MismatchError, match="saved with the whole model, by parameter"
        ):
            ck.restore(model=plan.stages, optimizer=optimizer)
        assert ck.restore(model=plan.stages) is not None

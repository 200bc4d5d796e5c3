"""Plans on torch.distributed: the loss and the weights of the one-process run."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from ligament.errors import InvalidError, MismatchError, UnsupportedError
from ligament.pipe import pipe_model
from ligament.pipe.runtime.pipeline import (
    Border,
    Crossing,
    _check_torch,
    _inverse,
    _order,
    _split,
    _with_zeros,
    receives_first,
    wire_device,
)
from pipe_models import mlp
from pipe_ranks import MICROBATCHES, alone, rank_main
from torch.distributed.pipelining.schedules import _Action

TWO = [
    ("gpt2", {"stages": 2, "schedule": "1f1b"}),
    ("gpt2", {"stages": 2, "schedule": "zb-h1", "recompute": True}),
    ("gpt2", {"stages": 4, "schedule": "interleaved", "method": "contiguous"}),
    ("gpt2", {"stages": 2, "schedule": "1f1b", "method": "mixed"}),
    ("t5", {"stages": 2, "schedule": "gpipe"}),
    ("t5", {"stages": 4, "schedule": "zbv", "method": "contiguous"}),
]
FOUR = [
    ("gpt2", {"stages": 4, "schedule": "1f1b"}),
    ("t5", {"stages": 4, "schedule": "1f1b"}),
]
# By the process that the ranks are forked from: importing takes longer than training.
IMPORTED = [
    "pipe_ranks",
    "ligament.pipe.run",
    "networkx",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.t5.modeling_t5",
]


def run(
    world: int, jobs: list[Any], folder: Path, imported: list[str] = IMPORTED
) -> list[list[dict[str, Any]]]:
    """The answers of every job, rank by rank."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(imported)
    answers = context.Queue()
    arguments = (world, str(folder / "meeting"), jobs, answers)
    ranks = [context.Process(target=rank_main, args=(r, *arguments)) for r in range(world)]
    for process in ranks:
        process.start()
    found: list[list[Any]] = [[None] * world for _ in jobs]
    try:
        for _ in range(len(jobs) * world):
            job, rank, answer = answers.get(timeout=280)
            assert job >= 0, f"rank {rank}: {answer}"
            found[job][rank] = answer
    except queue.Empty:
        pytest.fail("the ranks did not answer")
    finally:
        for process in ranks:
            process.join(20)
            if process.is_alive():
                process.kill()
    return found


def judge(name: str, answers: list[dict[str, Any]]) -> None:
    losses, weights = alone(name)
    last = [a for a in answers if a["losses"]]
    assert len(last) == 1 and last[0]["losses"] == pytest.approx(losses, rel=1e-5)
    kinds = {"gpt2": "CausalLMOutputWithCrossAttentions", "t5": "Seq2SeqLMOutput"}
    assert last[0]["output"] == kinds[name]
    assert all(a["ahead"] for a in answers), "receives are posted before the first work"
    seen = set()
    for answer in answers:
        for key, value in answer["weights"].items():
            seen.add(key)
            torch.testing.assert_close(torch.tensor(value), weights[key], rtol=1e-4, atol=1e-6)
    assert seen == set(weights), "every weight is trained somewhere, tied ones under both names"


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    *found, apart, timed = run(2, [*TWO, ("disagree", {}), ("measured", {})], tmp_path)
    for (name, _), answers in zip(TWO, found, strict=True):
        judge(name, answers)
    for answer in apart:
        own, speed, model, devices = answer["refused"]
        assert own.startswith("rank 1 has a different plan from rank 0")
        assert (
            speed
            == "all ranks must pass the same speed: [4.0, 1.0] on rank 0, [1.0, 4.0] on rank 1"
        )
        assert model.startswith("rank 1 plans a different model than rank 0")
        assert devices.startswith("all ranks must pass the same device_count: ")
    assert timed[0].pop("clocks") > 0 and timed[1].pop("clocks") == 0, "only rank 0 measures"
    assert timed[0] == timed[1]


def test_four_processes_train_as_one(tmp_path: Path) -> None:
    found = run(4, FOUR, tmp_path)
    for (name, _), answers in zip(FOUR, found, strict=True):
        judge(name, answers)
    assert found[1][0]["jumps"] > 0, "the encoder's output is relayed through decoder stages"


class Scaled(torch.nn.Module):
    """Without `scale`, only values that need gradients cross the boundary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        made: torch.Tensor = self.second(torch.relu(self.first(x)))
        return made if scale is None else made * scale


def test_which_torch_is_needed() -> None:
    sample = torch.randn(4, 8)
    plans = [
        pipe_model(Scaled(), given, stages=2, profile="flops", say=lambda line: None)
        for given in ((sample,), (sample, torch.ones(4, 8)))
    ]
    for plan, enough in ((plans[0], "2.11.0+cu130"), (plans[1], "2.13.0a0")):
        _check_torch(plan, enough)
    with pytest.raises(UnsupportedError, match=r"needs torch 2\.11 or later: this is 2\.10\.1$"):
        _check_torch(plans[0], "2.10.1")
    with pytest.raises(UnsupportedError, match=r"2\.13 or later \(scale crosses a stage boundary"):
        _check_torch(plans[1], "2.12.0")


def test_a_value_that_the_loss_does_not_use_has_a_gradient_of_zeros() -> None:
    used, unused, plain = torch.ones(2), torch.ones(3, requires_grad=True), torch.ones(4)
    found = _with_zeros((used, None, None), (used, unused, plain))
    assert found[0] is used and found[2] is None
    assert found[1] is not None and torch.equal(found[1], torch.zeros(3))


def test_a_pipeline_needs_a_group_of_its_size(tmp_path: Path) -> None:
    plan = pipe_model(*mlp(), stages=2, profile="flops")
    with pytest.raises(UnsupportedError, match="init_process_group"):
        plan.pipeline()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        with pytest.raises(InvalidError, match="for 2 devices, but the group has 1 rank$"):
            plan.pipeline()
        _one_rank()
    finally:
        dist.destroy_process_group()


def _one_rank() -> None:
    """Several stages on the only rank, gradients added to those of an earlier step."""
    case = mlp()
    plan = pipe_model(*case, stages=3, profile="flops", devices=["cpu"], microbatches=MICROBATCHES)
    schedule = plan.pipeline(loss_fn=lambda output, target: (output - target).square().mean())
    x, target = torch.randn(4 * MICROBATCHES, 8), torch.randn(4 * MICROBATCHES, 8)
    (case.model(x) - target).square().mean().backward()
    output = schedule.step(x, target=target)
    weight = case.model[0].weight
    grads = torch.autograd.grad((case.model(x) - target).square().mean(), [weight])
    torch.testing.assert_close(weight.grad, 2 * grads[0])
    torch.testing.assert_close(output, case.model(x))
    with pytest.raises(MismatchError, match=r"need a batch of \[16, 8\]"):
        schedule.step(torch.randn(7, 8), target=target)
    with pytest.raises(MismatchError, match=r"need a batch of \[16, 8\]"):
        schedule.step(torch.randn(4, 8), target=target)
    with pytest.raises(MismatchError, match="15 rows"):
        schedule.step(x, target=target[:15])


def test_receives_are_posted_first_in_their_order() -> None:
    words = "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1"
    wanted = "1RECV_F0 1RECV_F1 1RECV_B0 1RECV_B1 1F0 1SEND_F0 1F1 1SEND_F1 1B0 1SEND_B0 1B1"
    found = receives_first([_Action.from_str(word) for word in words.split()])
    assert " ".join(str(action) for action in found) == wanted


@pytest.mark.parametrize(
    ("place", "backends", "wire"),
    [
        ("cpu", "cpu:gloo,cuda:gloo", "cpu"),
        ("cuda:0", "cpu:gloo,cuda:gloo", "cpu"),
        ("cuda:1", "cpu:gloo,cuda:nccl", "cuda:1"),
        ("cuda:1", "cuda:nccl", "cuda:1"),
        ("cuda:0", "undefined", "cuda:0"),
    ],
)
def test_gloo_sends_host_memory(place: str, backends: str, wire: str) -> None:
    assert wire_device(torch.device(place), backends) == torch.device(wire)


def test_values_change_devices_at_a_border() -> None:
    """The meta device stands for a GPU: shapes, strides and devices are real."""
    meta, cpu = torch.device("meta"), torch.device("cpu")
    seen: list[Any] = []

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
            seen.extend([(x.device, x.shape), (lengths.device, lengths.shape)])
            return x * 2, lengths

    stage: Any = Doubled()
    arrive = [Crossing((1, 0), meta), Crossing((0,), cpu)]
    border = Border(stage, arrive, arrive, meta, False)
    made = border(torch.zeros(3, 5, requires_grad=True), torch.ones(4))
    assert seen == [(meta, (5, 3)), (cpu, (4,))]
    assert [(t.device, tuple(t.shape)) for t in made] == [(meta, (3, 5)), (meta, (4,))]
    assert made[0].is_contiguous() and made[0].requires_grad


def test_rows_are_dealt_out() -> None:
    plan = pipe_model(*mlp(), stages=1, profile="flops")
    meta = plan.program.inputs["input"]
    pieces = _split("x", meta, torch.arange(96.0).view(12, 8), 3)
    assert torch.equal(torch.cat(pieces), torch.arange(96.0).view(12, 8))
    shared = torch.ones(4, 8)
    assert all(piece is shared for piece in _split("x", meta, shared, 3))
    with pytest.raises(MismatchError, match="int64"):
        _split("x", meta, torch.ones(12, 8, dtype=torch.int64), 3)


def test_strides_survive_the_wire() -> None:
    plan = pipe_model(*mlp(), stages=1, profile="flops")
    tensor = torch.randn(2, 3, 4, 5).permute(2, 0, 3, 1)
    meta = plan.program.inputs["input"]._replace(shape=tuple(tensor.shape), stride=tensor.stride())
    wire = tensor.permute(_order(meta))
    assert wire.is_contiguous()
    assert wire.permute(_inverse(_order(meta))).stride() == tensor.stride()

"""Profiles and pipelines on a GPU, where there is one: `make test-gpu`. Needs torch alone."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from ligament.pipe import pipe_model, profile, trace  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
recent = pytest.mark.skipif(
    tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 11), reason="an earlier torch"
)
nn = torch.nn
MICROBATCHES, STEPS = 4, 2


def network(width: int = 64) -> Any:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(6)]
    return nn.Sequential(*layers, nn.Linear(width, 3))


def test_times_and_peaks_are_the_devices() -> None:
    """A block four times as wide takes longer, and its peak is at least what it keeps."""
    wide, narrow = nn.Linear(4096, 4096), nn.Linear(4096, 64)
    model = nn.Sequential(wide, narrow).cuda()
    sample = torch.randn(2048, 4096, device="cuda")
    graph = profile(trace(model, (sample,)), iterations=5).graph
    first, second = [node for node in graph.nodes if node.kind == "layer"]
    assert first.forward_ms > second.forward_ms > 0 and first.backward_ms > second.backward_ms > 0
    assert first.forward_memory >= sample.nbytes
    assert first.backward_memory >= wide.weight.nbytes
    assert second.forward_memory < first.forward_memory


def test_a_plan_computes_the_same() -> None:
    model = network().cuda()
    plan = pipe_model(model, (torch.randn(8, 64, device="cuda"),), stages=3, say=lambda line: None)
    assert plan.check().traced < 1e-5


def loss_fn(output: Any, target: Any) -> Any:
    return nn.functional.cross_entropy(output, target)


def batch(step: int) -> tuple[Any, Any]:
    torch.manual_seed(10 + step)
    rows = 8 * MICROBATCHES
    return torch.randn(rows, 64).cuda(), torch.randint(0, 3, (rows,)).cuda()


def alone() -> tuple[list[float], dict[str, Any]]:
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        x, target = batch(step)
        optimizer.zero_grad()
        loss = loss_fn(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {n: p.detach().cpu() for n, p in model.named_parameters()}


def train(rank: int, world: int, backend: str, meeting: str, answers: Any) -> None:
    dist = torch.distributed
    try:
        dist.init_process_group(
            backend, init_method=f"file://{meeting}", rank=rank, world_size=world
        )
        sample = (torch.randn(8, 64, device="cuda"),)
        plan = pipe_model(
            network().cuda(),
            sample,
            stages=3 if world == 1 else world,
            profile="flops",
            microbatches=MICROBATCHES,
            devices=["cuda"] * world,
            say=lambda line: None,
        )
        schedule = plan.pipeline(loss_fn=loss_fn)
        mine = {id(p): p for stage in plan.stages_of(rank) for p in stage.parameters()}
        optimizer = torch.optim.SGD(mine.values(), lr=0.1)
        losses = []
        for step in range(STEPS):
            x, target = batch(step)
            optimizer.zero_grad()
            found: list[Any] = []
            schedule.step(x, target=target, losses=found)
            optimizer.step()
            losses += [sum(one.item() for one in found) / MICROBATCHES] if found else []
        weights = {
            n: p.detach().cpu().tolist()
            for stage in plan.stages_of(rank)
            for n, p in stage.named_parameters()
        }
        dist.barrier()
        dist.destroy_process_group()
        answers.put((rank, losses, weights))
    except BaseException:
        answers.put((rank, traceback.format_exc(), None))
        raise


@recent
@pytest.mark.parametrize(("backend", "world"), [("gloo", 2), ("nccl", 1)])
def test_processes_share_a_gpu(backend: str, world: int, tmp_path: Path) -> None:
    """NCCL runs one rank for each GPU; gloo sends through host memory."""
    context = torch.multiprocessing.get_context("spawn")
    answers = context.Queue()
    given = (world, backend, str(tmp_path / "meeting"), answers)
    ranks = [context.Process(target=train, args=(rank, *given)) for rank in range(world)]
    for process in ranks:
        process.start()
    try:
        found = [answers.get(timeout=200) for _ in ranks]
    finally:
        for process in ranks:
            process.join(20)
            if process.is_alive():
                process.kill()
    losses, weights = alone()
    seen: dict[str, Any] = {}
    for rank, got, part in found:
        assert part is not None, f"rank {rank}: {got}"
        assert not got or got == pytest.approx(losses, rel=1e-4)
        seen |= part
    assert any(got for _, got, _ in found)
    assert set(seen) == set(weights)
    for name, value in seen.items():
        torch.testing.assert_close(torch.tensor(value), weights[name], rtol=1e-3, atol=1e-5)

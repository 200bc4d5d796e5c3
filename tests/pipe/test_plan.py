"""The plan object: what it tells, what it refuses, and that it survives a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ligament.errors import InvalidError, LimitError, MismatchError, UnsupportedError
from ligament.pipe import Plan, pipe_model
from ligament.pipe.runtime.check import check
from pipe_models import make, mlp
from torch import nn


def plan_of(name: str = "gpt2", **options: Any) -> Plan:
    options = {"stages": 3, "profile": "flops", **options}
    return pipe_model(*make(name), **options)


def test_report() -> None:
    plan = plan_of()
    report = plan.report()
    assert report.bottleneck_ms >= report.lower_bound_ms > 0
    assert report.gap == pytest.approx(report.bottleneck_ms / report.lower_bound_ms - 1)
    assert report.tied == ["transformer.wte.weight"] and len(report.stages) == 3
    assert report.stages[-1].last == "lm_head" and report.memory_bytes[0] > 0
    shown = str(report)
    assert "1f1b, 8 micro-batches" in shown and "gap" in shown and "lm_head" in shown
    json.dumps(report.as_json())
    assert "3 stages on 3 devices" in repr(plan)


def test_nodes_know_their_place() -> None:
    plan = plan_of()
    for node in plan.graph.nodes:
        assert 0 <= node.stage < 3 and node.device == plan.answer["stage_device"][node.stage]
    for edge in plan.graph.edges:
        assert plan.graph.nodes[edge.source].stage <= plan.graph.nodes[edge.target].stage
    assert plan.graph.nodes[0].stage == 0 and plan.graph.nodes[-1].stage == 2


def test_simulate() -> None:
    plan = plan_of(stages=4, devices=["cpu"] * 2, schedule="interleaved", method="contiguous")
    assert plan.answer["stage_device"] == [0, 1, 0, 1]
    line = plan.simulate()
    assert line.schedule == "interleaved" and len(line.events) == 2 * 4 * 8
    assert line.step_ms == pytest.approx(plan.report().step_ms)
    assert plan.simulate("gpipe", 2).microbatches == 2
    with pytest.raises(UnsupportedError):
        plan.simulate("zbv")
    with pytest.raises(InvalidError, match="invalid microbatches 0"):
        plan.simulate(microbatches=0)
    with pytest.raises(InvalidError, match="fastest"):
        plan.simulate("fastest")


def test_stages_of_a_rank() -> None:
    plan = plan_of(stages=4, devices=["cpu"] * 2, schedule="interleaved", method="contiguous")
    assert plan.stages_of(0) == [plan.stages[0], plan.stages[2]]
    with pytest.raises(InvalidError, match="no device 2"):
        plan.stages_of(2)


def test_stages_share_the_models_parameters() -> None:
    plan = plan_of()
    model = plan.program.model
    ids = {id(p) for stage in plan.stages for p in stage.parameters()}
    assert ids == {id(p) for p in model.parameters()}


def test_save_and_load(tmp_path: Path) -> None:
    case = make("t5")
    plan = pipe_model(*case, stages=3, profile="flops", memory_limit="1G", seed=4)
    path = plan.save(tmp_path / "plan.json")
    again = Plan.load(path, *case)
    assert again.source() == plan.source()
    assert again.report().as_json() == {
        **plan.report().as_json(),
        "optimal": again.report().optimal,
    }
    assert again.check()
    bare = Plan.load(path)
    assert bare.report().bottleneck_ms == plan.report().bottleneck_ms
    assert bare.simulate().step_ms == plan.simulate().step_ms
    bare.draw(tmp_path / "plan.svg")
    for act in (bare.source, lambda: bare.stages, bare.check):
        with pytest.raises(UnsupportedError, match="loaded without its model"):
            act()


def test_a_plan_of_another_model_is_refused(tmp_path: Path) -> None:
    path = pipe_model(*mlp(), stages=2, profile="flops").save(tmp_path / "plan.json")
    for other in (mlp(width=16), mlp(depth=5), make("gpt2")):
        with pytest.raises(MismatchError, match="a plan of another model"):
            Plan.load(path, *other)
    with pytest.raises(MismatchError, match="a plan of another model"):
        Plan.load(path, mlp().model.eval(), (torch.randn(4, 8),))


def _without(key: str) -> Any:
    return lambda data: data.pop(key)


@pytest.mark.parametrize(
    "damage",
    [
        _without("graph"),
        lambda data: data.update(format="other"),
        lambda data: data["options"].update(stages=None),
        lambda data: data["options"].update(surprise=1),
        lambda data: data["options"].update(seed="x"),
        lambda data: data["options"].update(speed=[1.0]),
        lambda data: data.update(stage_device=[0, 1, 2, 3, 4]),
        lambda data: data.update(stage_device=["a"]),
        lambda data: data["graph"]["nodes"][0].update(stage=1),
        lambda data: data["graph"]["nodes"][3].update(stage=99),
        lambda data: data["graph"]["nodes"][3].update(forward_ms=-1),
        lambda data: data["graph"]["edges"].append([5, 2]),
        lambda data: data["graph"]["groups"].append([99]),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any) -> None:
    path = pipe_model(*mlp(), stages=2, profile="flops").save(tmp_path / "plan.json")
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises((InvalidError, MismatchError, LimitError, UnsupportedError)):
        Plan.load(path)
    path.write_text("{")
    with pytest.raises(InvalidError, match="is not a plan"):
        Plan.load(path)


def test_run_takes_what_was_traced() -> None:
    plan = pipe_model(*mlp(), stages=2, profile="flops")
    with pytest.raises(MismatchError, match=r"\[5, 8\], but was traced as torch.float32 \[4, 8\]"):
        plan.run(torch.randn(5, 8))
    with pytest.raises(MismatchError, match="float64"):
        plan.run(torch.randn(4, 8).double())
    with pytest.raises(MismatchError, match=r"^args is a tuple of \(0, 1\), but was traced with"):
        plan.run(torch.randn(4, 8), torch.randn(4, 8))


def test_too_many_stages() -> None:
    with pytest.raises(InvalidError, match="stages"):
        pipe_model(*mlp(depth=2), stages=5, profile="flops")
    assert pipe_model(*mlp(depth=2), stages=4, profile="flops").check()
    assert pipe_model(*mlp(depth=2), stages=1, profile="flops").check()


def test_a_stage_that_cannot_fit() -> None:
    with pytest.raises(LimitError, match="[0-9]"):
        pipe_model(*make("gpt2"), stages=2, profile="flops", memory_limit=1000)


def test_ties_together() -> None:
    """Embedding and head in one stage take everything between them along."""
    plan = pipe_model(*make("gpt2"), stages=2, profile="flops", ties="together")
    stage = {node.name: node.stage for node in plan.graph.nodes}
    assert stage["transformer.wte"] == stage["transformer.h.1.ln_1"] == stage["lm_head"]
    assert plan.check() and plan.layout.ties == {}
    with pytest.raises(InvalidError):
        pipe_model(*make("gpt2"), stages=9, profile="flops", ties="together")


def test_recomputation_trades_memory_for_time() -> None:
    plain = plan_of(method="contiguous").report()
    again = plan_of(method="contiguous", recompute=True).report()
    assert sum(again.memory_bytes) < sum(plain.memory_bytes)
    assert again.bottleneck_ms > plain.bottleneck_ms


def test_check_finds_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    model = nn.Sequential(nn.Linear(8, 8), Twice(), nn.Linear(8, 8))
    plan = pipe_model(model, (torch.randn(4, 8),), stages=2, profile="flops")
    assert plan.check()
    monkeypatch.setattr(Twice, "forward", lambda self, x: x * 3)
    with pytest.raises(MismatchError, match="output 0 differs"):
        check(plan, 0)
    monkeypatch.setattr(Twice, "forward", lambda self, x: x + x.detach())
    with pytest.raises(MismatchError, match="gradient of 0.weight differs"):
        check(plan, 0)


class Grouped(nn.Module):
    """Copies its value for several heads, as attention with grouped queries does: by another
    operation while it is exported, whose backward sums the copies in another order."""

    def __init__(self, wrong: float = 1.0) -> None:
        super().__init__()
        self.first, self.last, self.wrong = nn.Linear(16, 16), nn.Linear(16, 16), wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = self.first(x)
        if torch.compiler.is_exporting():
            other = (value * self.wrong).unsqueeze(0).expand(7, *value.shape)
            copies = value.detach() + (other - other.detach()) if self.wrong != 1 else other
        else:
            copies = torch.stack([value] * 7)
        scales = torch.linspace(0.1, 3.0, 7).view(7, 1, 1)
        found: torch.Tensor = self.last((copies * scales).tanh())
        return found


def test_gradients_that_differ_by_rounding() -> None:
    torch.manual_seed(0)
    plan = pipe_model(Grouped(), (torch.randn(33, 16),), stages=2, profile="flops", progress=False)
    with pytest.raises(MismatchError, match=r"in one autograd graph by .*exact=False"):
        plan.check()
    result = plan.check(exact=False)
    assert set(result.rounded) <= {"first.weight", "first.bias"} and result.rounded
    assert all(0 < ulps < 100 for ulps in result.rounded.values()) and result.traced == 0
    wrong = pipe_model(
        Grouped(1.5), (torch.randn(33, 16),), stages=2, profile="flops", progress=False
    )
    with pytest.raises(MismatchError, match="by [0-9.]+ units in the last place$"):
        wrong.check(exact=False)


def test_a_model_that_knows_it_is_traced() -> None:
    """Some models choose other kernels while they are exported: said, not hidden, not refused."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            h = self.a(x)
            if torch.compiler.is_exporting():
                return self.b((h.double() * 1.1).float())
            return self.b(h * 1.1)

    result = pipe_model(Model(), (torch.randn(4, 64),), stages=2, profile="flops").check()
    assert 0 < result.traced < 1e-5

    class Wrong(Model):
        def forward(self, x):
            return self.b(self.a(x)) * (1.01 if torch.compiler.is_exporting() else 1.0)

    with pytest.raises(MismatchError, match="output 0 differs from the original's, relative"):
        pipe_model(Wrong(), (torch.randn(4, 64),), stages=2, profile="flops").check()


def test_import_of_ligament_brings_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, ligament; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""What blocks cost: measured, kept by content, or estimated."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from ligament.errors import InvalidError
from ligament.pipe import profile, trace
from ligament.pipe.costs.block_costs import Figures
from ligament.pipe.costs.profile import Known, _isolate, _write, content
from ligament.pipe.costs.timing import Window, passes
from pipe_models import make, mlp
from torch import nn


def test_every_figure_of_the_original_is_measured() -> None:
    traced = profile(trace(*make("bert")), iterations=3)
    nodes = {node.name: node for node in traced.graph.nodes}
    layer = nodes["bert.encoder.layer.0.intermediate.dense"]
    assert layer.forward_ms > 0 and layer.backward_ms > 0
    assert 0 <= layer.weight_ms <= layer.backward_ms
    assert layer.parameter_bytes == (32 * 64 + 64) * 4
    assert layer.input_bytes == 2 * 8 * 32 * 4 and layer.output_bytes == 2 * 8 * 64 * 4
    assert layer.forward_memory >= layer.output_bytes
    assert layer.backward_memory >= layer.parameter_bytes + layer.input_bytes
    assert nodes["input_ids"].forward_ms == 0 and nodes["output"].forward_ms == 0


def test_kept_memory_is_counted_once() -> None:
    """A linear layer keeps its input; the two that read one value keep it together."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            h = self.a(x)
            return self.b(h) + self.c(h)

    graph = profile(trace(Model(), (torch.randn(4, 8),)), iterations=1).graph
    kept = {node.name: node.activation_bytes for node in graph.nodes}
    assert kept["a"] == kept["b"] == 4 * 8 * 4 and kept["c"] == 0 and kept["add"] == 0


def test_operations_can_be_left_out() -> None:
    graph = profile(trace(*make("gpt2")), profile_ops=False, iterations=1).graph
    assert all(node.forward_ms == 0 for node in graph.nodes if node.kind == "op")
    assert any(node.forward_ms > 0 for node in graph.nodes if node.kind == "layer")


def test_nothing_of_the_model_changes() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    profile(trace(model, (torch.randn(4, 8, generator=torch.Generator()),)), iterations=2)
    assert torch.equal(torch.rand(1), wanted)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(p.grad is None for p in model.parameters())


def test_the_file_is_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profile.json"
    traced = profile(trace(*make("gpt2")), path, iterations=1)
    data = json.loads(path.read_text())
    layers = [n for n in traced.graph.nodes if n.ops and n.kind in ("layer", "op")]
    assert 0 < len(data["blocks"]) < len(layers), "equal blocks are measured once"

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(Window, "run", refuse)
    again = profile(trace(*make("gpt2", seed=7)), path)
    times = [n.forward_ms for n in traced.graph.nodes]
    assert [n.forward_ms for n in again.graph.nodes] == times
    with pytest.raises(AssertionError, match="measured again"):
        profile(trace(*make("llama")), path)


def test_content_is_what_is_done_not_where() -> None:
    traced = trace(*mlp(depth=3))
    blocks, known = _isolate(traced), Known.of(traced.program)
    keys = [content(traced.program, b, known) for b in blocks if b.ops]
    assert keys[2] == keys[4] and keys[1] == keys[3], "later layers are alike"
    assert keys[0] != keys[2], "the first needs no gradient of its input"
    wide = trace(*mlp(width=16, depth=3))
    others = [content(wide.program, b, Known.of(wide.program)) for b in _isolate(wide) if b.ops]
    assert not set(keys) & set(others)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "other", "blocks": {}}', '{"format": "x"}', "\x00"]
)
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(InvalidError, match="profile"):
        profile(trace(*mlp()), path)


def test_estimates_follow_the_work() -> None:
    graph = profile(trace(*make("gpt2")), "flops").graph
    times = {node.name: node.forward_ms for node in graph.nodes}
    assert times["transformer.h.0.attn.view_3"] == 0, "a view costs nothing"
    assert times["transformer.h.0.mlp.c_fc"] > 0
    wide = profile(trace(*mlp(width=2048, depth=2)), "flops").graph.nodes
    narrow = profile(trace(*mlp(width=8, depth=2)), "flops").graph.nodes
    assert wide[1].forward_ms > 2 * narrow[1].forward_ms
    assert wide[3].backward_ms == 2 * wide[3].forward_ms
    opaque = profile(trace(*make("branch"), say=lambda line: None), "flops").graph.nodes
    assert next(n for n in opaque if n.kind == "opaque").backward_ms > 0


def test_bad_iterations() -> None:
    with pytest.raises(InvalidError, match="invalid iterations 0"):
        profile(trace(*mlp()), iterations=0)


def test_the_bar_counts_passes(capsys: pytest.CaptureFixture[str]) -> None:
    profile(trace(*mlp(depth=1)), iterations=1, progress=True)
    shown = capsys.readouterr().err
    assert "profile [" in shown and f"{passes(1)}/{passes(1)}" in shown
    profile(trace(*mlp(depth=1)), iterations=1)
    assert capsys.readouterr().err == ""


def test_ranks_that_share_a_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    traced = trace(*mlp())
    with ThreadPoolExecutor(4) as ranks:
        for ready in [ranks.submit(_write, path, {"a": Figures()}) for _ in range(200)]:
            ready.result()
    assert [entry.name for entry in tmp_path.iterdir()] == ["profile.json"]
    path.unlink()
    profile(traced, path, iterations=1)
    written = path.stat()
    profile(traced, path, iterations=1)  # nothing new: nothing written
    assert path.stat().st_ino == written.st_ino

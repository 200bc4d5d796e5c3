"""Tracing: every limitation that the original lists, gone; what cannot be exported stays whole."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from ligament.errors import InvalidError
from ligament.pipe import pipe_model, trace
from ligament.pipe.graph.flatten_arguments import flatten, unflatten
from pipe_models import Answer, Batch, Branching, make, mlp
from torch import nn


class Own(nn.Module):
    """A base with two layers, for models that differ in `forward` alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)


def planned(model: nn.Module, *args: object, stages: int = 2, **kwargs: object):
    """A checked plan, made without measuring."""
    plan = pipe_model(model, args, kwargs, stages=stages, profile="flops")
    assert plan.check().close == {}
    return plan


def same(a: object, b: object) -> bool:
    left, right = flatten(a, objects=True), flatten(b, objects=True)
    return str(left.shape) == str(right.shape) and all(
        torch.equal(x, y) for x, y in zip(left.tensors, right.tensors, strict=True)
    )


def test_keyword_that_skips_an_optional_argument() -> None:
    class Model(Own):
        def forward(self, x, y=None, z=None):
            h = self.a(x)
            if y is not None:
                h = h * 100
            return self.b(h) + z

    model, x, z = Model(), torch.randn(3, 8), torch.randn(3, 8)
    plan = planned(model, x, z=z)
    assert list(plan.program.inputs) == ["x", "z"]
    assert same(plan.run(x, z=z), model(x, z=z))


def test_the_same_tensor_twice_is_two_inputs() -> None:
    class Model(Own):
        def forward(self, x, z):
            return self.b(self.a(x) * z)

    model, x = Model(), torch.randn(3, 8)
    plan = planned(model, x, z=x)
    other = torch.randn(3, 8)
    assert same(plan.run(x, z=other), model(x, z=other))
    assert not same(plan.run(x, z=other), model(x, z=x))


def test_string_arguments_of_model_and_function() -> None:
    class Model(Own):
        def forward(self, x, target, reduction="mean"):
            return F.nll_loss(self.b(self.a(x)).log_softmax(-1), target, reduction=reduction)

    model, x, target = Model(), torch.randn(3, 8), torch.tensor([1, 2, 3])
    for reduction in ("sum", "mean", "none"):
        plan = planned(model, x, target, reduction=reduction)
        assert same(plan.run(x, target, reduction=reduction), model(x, target, reduction))
    with pytest.raises(ValueError, match="'sum', but was traced with 'none'"):
        plan.run(x, target, reduction="sum")


def test_nested_containers_in_and_out() -> None:
    class Model(Own):
        def forward(self, tree):
            h = self.a(tree["x"][0]) + tree["x"][1][0]
            return {"h": h, "more": (self.b(h), [None, "text", 3], (h * 2,))}

    model = Model()
    tree = {"x": (torch.randn(3, 8), [torch.randn(3, 8)]), "unused": None}
    plan = planned(model, tree)
    assert same(plan.run(tree), model(tree))
    assert plan.run(tree)["more"][1] == [None, "text", 3]


def test_dataclasses_in_and_out() -> None:
    class Model(Own):
        def forward(self, batch):
            h = self.a(batch.x) * batch.scale
            return Answer(self.b(h), (h, h + 1), "done")

    model, batch = Model(), Batch(torch.randn(3, 8), 0.5)
    plan = planned(model, batch)
    result = plan.run(batch)
    assert isinstance(result, Answer) and result.note == "done"
    assert same(result, model(batch))
    with pytest.raises(ValueError, match="scale is 2.0, but was traced with 0.5"):
        plan.run(dataclasses.replace(batch, scale=2.0))


def test_tied_parameters_keep_both_names() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(16, 8)
            self.middle = nn.Linear(8, 8)
            self.head = nn.Linear(8, 16, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.middle(self.embed(x)))

    model = Model()
    plan = planned(model, torch.tensor([[1, 2]]))
    assert [tie.name for tie in plan.graph.ties] == ["embed.weight"]
    names = [set(stage.state_dict()) for stage in plan.stages]
    assert set().union(*names) == set(model.state_dict())
    assert plan.stages[0].embed.weight is plan.stages[-1].head.weight
    together = pipe_model(model, (torch.tensor([[1, 2]]),), stages=1, profile="flops")
    assert set(together.stages[0].state_dict()) == set(model.state_dict())


def test_a_layer_used_twice() -> None:
    class Model(Own):
        def forward(self, x):
            return self.a(torch.relu(self.b(torch.tanh(self.a(x)))))

    plan = planned(Model(), torch.randn(3, 8), stages=3)
    assert {"a", "b", "a (call 2)"} <= {node.name for node in plan.graph.nodes}


def test_in_place_operations_at_a_border() -> None:
    class Model(Own):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU(inplace=True)

        def forward(self, x):
            h = self.act(self.a(x)) * 2
            h += 1
            return self.b(h)

    for stages in (2, 3, 4):
        plan = planned(Model(), torch.randn(3, 8), stages=stages)
    assert not any(op.mutates for op in plan.program.ops)


def test_writes_through_views_stay_in_one_stage() -> None:
    class Model(Own):
        def forward(self, x):
            h = self.a(x)
            h[:, 0] = 3
            view = h.view(-1)
            view.mul_(2)
            return self.b(h) + h

    model = Model()
    plan = planned(model, torch.randn(3, 8))
    stage_of = {name: n.stage for n in plan.graph.nodes for name in n.ops}
    writers = [op.name for op in plan.program.ops if op.mutates]
    assert len(writers) == 2 and len({stage_of[name] for name in writers}) == 1
    assert pipe_model(model, (torch.randn(3, 8),), stages=2).check(), "also when it is measured"


def test_train_mode_keeps_the_order_of_random_operations() -> None:
    class Model(Own):
        def forward(self, x):
            left = F.dropout(self.a(x), 0.5, self.training)
            right = F.dropout(self.b(x), 0.5, self.training)
            return F.dropout(left * right, 0.5, self.training), torch.rand_like(x) + left

    model = Model().train()
    for method in ("contiguous", "acyclic", "metis", "mixed"):
        plan = pipe_model(model, (torch.randn(3, 8),), stages=3, method=method, profile="flops")
        assert plan.check()


def test_a_trained_trace_can_be_evaluated_and_an_evaluated_one_not_trained() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    plan = planned(model.train(), x)
    for stage in plan.stages:
        stage.eval()
    before = int(model[1].num_batches_tracked)
    assert same(plan.run(x), model.eval()(x))
    assert int(model[1].num_batches_tracked) == before
    plan = planned(model.eval(), x)
    with pytest.raises(RuntimeError, match="traced in eval mode"):
        plan.stages[0].train()


def test_batch_norm_counts_once() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)).train()
    x = torch.randn(4, 8)
    plan = pipe_model(model, (x,), stages=2)
    assert plan.check()
    assert int(model[1].num_batches_tracked) == 0, "neither trace, profile nor check may train"
    plan.run(x)
    assert int(model[1].num_batches_tracked) == 1


def test_where_and_expand_as() -> None:
    class Model(Own):
        def forward(self, x, mask):
            h = torch.where(mask, self.a(x), x)
            positions = torch.arange(8).unsqueeze(0).expand_as(h)
            return self.b(h) + positions

    planned(Model(), torch.randn(3, 8), torch.rand(3, 8) > 0.5)


def test_numbers_taken_from_tensors_stay_in_one_stage() -> None:
    """Only tensors are sent: who reads a number stays with who makes it."""

    class Model(Own):
        def forward(self, x):
            h = self.a(x)
            peak = h.detach().abs().max().item()
            return self.b(h / peak) * peak

    model, x = Model(), torch.randn(3, 8)
    for stages in (2, 3):
        plan = planned(model, x, stages=stages)
        assert plan.program.opaque == {}
        assert all(n in plan.layout.metas for s in plan.layout.stages for n in s.inputs)
    assert same(plan.run(-2 * x), model(-2 * x))
    assert pipe_model(model, (x,), stages=2).check(), "also when it is measured"


def test_lstm() -> None:
    case = make("lstm")
    plan = pipe_model(*case, stages=3, profile="flops")
    assert plan.check() and plan.program.opaque == {}


@pytest.mark.parametrize(("name", "path"), [("packed lstm", "encoder"), ("branch", "branch")])
def test_what_cannot_be_exported_becomes_one_opaque_block(name: str, path: str) -> None:
    case, lines = make(name), []
    plan = pipe_model(*case, stages=3, profile="flops", say=lines.append)
    assert list(plan.program.opaque) == [path]
    assert len(lines) == 1 and f"cannot export {path}, which becomes one opaque block" in lines[0]
    node = next(n for n in plan.graph.nodes if n.name == path)
    assert node.kind == "opaque" and node.parameter_bytes > 0
    assert plan.check()
    assert set().union(*(s.state_dict() for s in plan.stages)) == set(case.model.state_dict())


def test_an_opaque_block_still_decides_by_its_data() -> None:
    model = Branching()
    x = torch.randn(3, 8)
    plan = pipe_model(model, (x,), stages=2, profile="flops", say=lambda line: None)
    for value in (x, -x, x * 0):
        assert same(plan.run(value), model(value))


def test_a_model_that_is_opaque_itself_is_one_block() -> None:
    class Model(Own):
        def forward(self, x):
            return self.a(x) if x.sum() > 0 else self.b(x)

    lines: list[str] = []
    model, x = Model(), torch.randn(3, 8)
    plan = pipe_model(model, (x,), stages=1, profile="flops", say=lines.append)
    assert "cannot export Model" in lines[0]
    assert plan.check() and same(plan.run(-x), model(-x))
    with pytest.raises(ValueError, match="2 stages"):
        pipe_model(model, (x,), stages=2, profile="flops", say=lines.append)


def test_a_failed_export_leaves_the_model_as_it_was() -> None:
    case = make("packed lstm")
    wanted = case.model(*case.args)
    trace(*case, say=lambda line: None)
    assert torch.equal(case.model(*case.args), wanted)
    assert not any("forward" in vars(module) for module in case.model.modules())


def test_depth_and_basic_blocks() -> None:
    case = make("gpt2")
    leaves = trace(*case).graph
    assert any(n.name == "transformer.h.0.attn.c_attn" and n.kind == "layer" for n in leaves.nodes)
    shallow = trace(*case, depth=3).graph
    assert any(n.name == "transformer.h.0" and n.kind == "layer" for n in shallow.nodes)
    assert not any(n.name.startswith("transformer.h.0.") for n in shallow.nodes)
    whole = trace(*case, basic_blocks=["GPT2Attention"]).graph
    assert any(n.name == "transformer.h.0.attn" for n in whole.nodes)
    assert not any(n.name.startswith("transformer.h.0.attn.") for n in whole.nodes)
    assert len(shallow) < len(whole) < len(leaves)
    assert trace(*case, basic_blocks="GPT2Attention").graph.nodes == whole.nodes
    plan = pipe_model(
        *case, stages=2, basic_blocks=[type(case.model.transformer.h[0])], profile="flops"
    )
    assert plan.check()


def test_scopes_read_as_the_original_writes_them() -> None:
    scopes = {node.scope for node in trace(*make("bert")).graph.nodes}
    wanted = "BertForQuestionAnswering/BertModel[bert]/BertEmbeddings[embeddings]/"
    assert wanted + "Embedding[word_embeddings]" in scopes


def test_no_grad_regions() -> None:
    class Model(Own):
        def forward(self, x):
            h = self.a(x)
            with torch.no_grad():
                scale = h.abs().mean()
            return self.b(h / scale), h.detach()

    plan = planned(Model(), torch.randn(3, 8))
    assert "with torch.set_grad_enabled(False):" in plan.source()


def test_unused_state_is_carried() -> None:
    class Model(Own):
        def __init__(self) -> None:
            super().__init__()
            self.idle = nn.Linear(2, 2)
            self.register_buffer("table", torch.ones(3))

        def forward(self, x):
            return self.b(self.a(x))

    model = Model()
    plan = planned(model, torch.randn(3, 8))
    assert set().union(*(s.state_dict() for s in plan.stages)) == set(model.state_dict())


def test_parts_may_have_any_name() -> None:
    """Of these, some are what a stage itself might be tempted to call something."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
            self.inputs, self.outputs = nn.Linear(8, 8), nn.Linear(8, 8)
            self.device = nn.Linear(8, 8)
            self.tensors = nn.ParameterList(
                [nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))]
            )
            self.at = nn.ParameterDict({"m": nn.Parameter(torch.ones(8))})

        def forward(self, m):
            h = self.outputs(self.blocks(self.inputs(m))) + self.tensors[0] * self.tensors[1]
            return self.device(h) * self.at["m"]

    model = Model()
    plan = planned(model, torch.randn(3, 8), stages=3)
    assert set().union(*(s.state_dict() for s in plan.stages)) == set(model.state_dict())


def test_frozen_parameters_and_returned_state() -> None:
    class Model(Own):
        def forward(self, x):
            return self.b(self.a(x)), self.a.weight, x

    model = Model()
    model.a.weight.requires_grad_(False)
    x = torch.randn(3, 8)
    plan = planned(model, x)
    assert same(plan.run(x), model(x))


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        ((), {}, "cannot be called with these arguments"),
        ((torch.ones(4, 8),) * 2, {}, "too many positional"),
        ((torch.ones(4, 8),), {"nothing": 1}, "unexpected keyword"),
        ((object(),), {}, "only tensors, plain values"),
        (torch.ones(4, 8), {}, r"such as \(x,\)"),
        ((torch.ones(4, 9),), {}, r"with these arguments: .*4x9"),
    ],
)
def test_arguments_that_do_not_match(args, kwargs, sentence: str) -> None:
    with pytest.raises(InvalidError, match=sentence):
        trace(mlp().model, args, kwargs)


def test_bad_depth_and_model() -> None:
    with pytest.raises(InvalidError, match="invalid depth 0"):
        trace(*mlp(), depth=0)
    with pytest.raises(InvalidError, match="not a torch.nn.Module"):
        trace(len, (1,))  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="classes or their names, not 3"):
        trace(*mlp(), basic_blocks=[3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "kind", [KeyError, NotImplementedError, RecursionError, torch.OutOfMemoryError]
)
def test_a_model_whose_own_code_fails_says_so(kind: type[Exception]) -> None:
    class Model(Own):
        def forward(self, x):
            raise kind("broken on purpose")

    with pytest.raises(kind, match="broken on purpose"):
        trace(Model(), (torch.randn(3, 8),))


def test_nesting_comes_back() -> None:
    value = {"a": (torch.ones(1), [None, Batch(torch.zeros(2), 1.5)]), "b": torch.Size([2, 3])}
    flat = flatten(value)
    assert flat.paths == ["a[0]", "a[1][1].x"]
    back = unflatten(flat.shape, flat.tensors)
    assert back["a"][1][1] == value["a"][1][1] and back["b"] == torch.Size([2, 3])

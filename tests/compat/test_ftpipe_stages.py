"""Files that FTPipe's `pipe_model` writes: partitions and their configuration."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from ftpipe_models import SAMPLE, Deep, load, run
from ligament.compat.autopipe import pipe_model
from ligament.compat.autopipe.autopipe.utils import layerDict, tensorDict
from torch import nn

ENTRY = {"shape", "dtype", "is_batched"}


def written(path: Path, model: nn.Module, **options: Any) -> Any:
    given = {"nparts": 3, "use_graph_profiler": False, "batch_dim": 0, **options}
    given.setdefault("output_file", str(path / "stages"))
    pipe_model(model, **given)
    return load(path / "stages.py")


def compare(module: Any, model: nn.Module, inputs: dict[str, Any], batch: int) -> None:
    """The partitions against the model: results and gradients, in training."""
    config = module.create_pipeline_configuration(DEBUG=True, batch_size=batch)
    given = {name: value for name, value in inputs.items() if name.startswith("input")}
    words = {name: value for name, value in inputs.items() if name not in given}
    reference = copy.deepcopy(model)
    torch.manual_seed(3)
    wanted = reference(*given.values(), **words)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    torch.manual_seed(3)
    found = run(config, model, inputs)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    sum(value.square().sum() for value in found).backward()  # type: ignore[union-attr]
    sum(value.square().sum() for value in wanted).backward()
    names = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (names[name].grad is None)
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, names[name].grad)


@pytest.mark.parametrize("batch", [4, 7])
@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("method", ["acyclic", "mpipe"])
def test_the_configuration_runs(tmp_path: Path, method: str, propagate: bool, batch: int) -> None:
    model = Deep()
    options = {"partitioning_method": method, "generate_activation_propagation": propagate}
    module = written(tmp_path, model, **options, **SAMPLE)
    inputs = {"input0": torch.randn(batch, 8), "shift": torch.ones(3)}
    compare(module, model, inputs, batch)


def test_the_keys_are_the_original_s(tmp_path: Path) -> None:
    module = written(tmp_path, Deep(), **SAMPLE)
    config = module.create_pipeline_configuration()
    assert {*config} == {
        "batch_dim", "depth", "basic_blocks", "model_inputs", "model_outputs", "stages",
        "stage_to_device_map",
    }  # fmt: skip
    assert config["depth"] == 1000 and config["basic_blocks"] == ()
    assert config["stage_to_device_map"] == [0, 1, 2]
    assert list(config["model_inputs"]) == ["input0", "shift"]
    assert {*config["model_inputs"]["shift"]} == ENTRY | {"used_by"}
    assert not config["model_inputs"]["shift"]["is_batched"]
    for entry in config["model_outputs"].values():
        assert {*entry} == ENTRY | {"created_by"} and entry["created_by"] == 2
        assert entry["shape"] == torch.Size([4, 3]) and entry["is_batched"]
    for index, stage in config["stages"].items():
        assert {*stage} == {"stage_cls", "inputs", "outputs", "devices", "stage_depth"}
        assert stage["stage_cls"].__name__ == f"Partition{index}"
        assert stage["devices"] == [f"cuda:{index}"] and stage["stage_depth"] == 2 - index
        for entry in stage["inputs"].values():
            assert {*entry} == ENTRY | {"req_grad", "created_by"}
        for entry in stage["outputs"].values():
            assert {*entry} == ENTRY | {"req_grad", "used_by"}
    assert module.create_pipeline_configuration(DEBUG=True)["stages"][0]["devices"] == ["cpu"]


def test_values_travel_from_reader_to_reader_or_directly(tmp_path: Path) -> None:
    class Skips(nn.Module):
        """The first value is read by all."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x = self.layers[0](x)
            for layer in list(self.layers)[1:]:
                x = layer(x) * first
            return x

    name = "Skips/ModuleList[layers]/Linear[0]"
    ways: dict[bool, list[Any]] = {}
    for propagate in (True, False):
        model = Skips()
        options = {"model_args": (torch.randn(2, 4),), "generate_activation_propagation": propagate}
        module = written(tmp_path, model, **options)
        compare(module, model, {"input0": torch.randn(2, 4)}, 2)
        stages = module.create_pipeline_configuration()["stages"].values()
        ways[propagate] = [
            (key, entry["used_by"])
            for stage in stages
            for key, entry in stage["outputs"].items()
            if key.startswith(name)
        ]
    assert ways[True] == [(f"{name}_1", [1]), (f"{name}_2", [2])]
    assert ways[False] == [(name, [1, 2])]


class Counts(nn.Module):
    """Cannot be traced: what it does depends on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if float(x.sum()) > 0 else self.inner(-x)


class Opaque(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.counts, self.b = nn.Linear(4, 4), Counts(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.counts(self.a(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("batch", [2, 5])
def test_a_module_that_stays_whole(tmp_path: Path, batch: int) -> None:
    model = Opaque()
    module = written(tmp_path, model, model_args=(torch.randn(2, 4),))
    config = module.create_pipeline_configuration()
    assert [kind.__name__ for kind in config["basic_blocks"]] == ["Counts"]
    assert "from test_ftpipe_stages import Counts" in (tmp_path / "stages.py").read_text()
    compare(module, model, {"input0": torch.randn(batch, 4)}, batch)


def test_tied_parameters(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.middle = nn.Embedding(16, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 16, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.middle(self.embed(x)))  # type: ignore[no-any-return]

    model = Tied()
    module = written(tmp_path, model, model_args=(torch.randint(16, (2, 3)),))
    compare(module, model, {"input0": torch.randint(16, (5, 3))}, 5)


def test_a_partition_is_a_module_with_the_model_s_names(tmp_path: Path) -> None:
    model = Deep()
    module = written(tmp_path, model, **SAMPLE)
    kind = module.Partition0
    partition = kind(layerDict(model), tensorDict(model), device="cpu")
    own = dict(model.named_parameters())
    names = [name for name, _ in partition.named_parameters()]
    assert names and all(own[name] is tensor for name, tensor in partition.named_parameters())
    assert {id(p) for p in partition.parameters()} == {id(own[name]) for name in names}
    assert {n for n, _ in partition.named_buffers()} <= {n for n, _ in model.named_buffers()}
    state = {name: torch.zeros_like(tensor) for name, tensor in partition.state_dict().items()}
    partition.load_state_dict(state)
    assert all(not own[name].any() for name in names)
    assert partition.device == torch.device("cpu") and partition.to("cpu") is partition
    assert not partition.eval().stage.training


def test_other_batch_dimensions(tmp_path: Path) -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            steps, batch, _ = x.shape
            return self.c(self.b(self.a(x)).reshape(steps, batch, 2, 2).flatten(2))  # type: ignore[no-any-return]

    model = Turned()
    module = written(tmp_path, model, batch_dim=1, model_args=(torch.randn(3, 2, 4),))
    compare(module, model, {"input0": torch.randn(3, 5, 4)}, 5)

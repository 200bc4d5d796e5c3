"""Small models for the tests of FTPipe's calls, and a runtime that follows a configuration."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from ligament.compat.autopipe.autopipe.utils import layerDict, tensorDict
from torch import nn


class Block(nn.Module):
    """Two layers and a residual."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.second(torch.relu(self.first(x)))) + x  # type: ignore[no-any-return]


class Deep(nn.Module):
    """Blocks in a ModuleList, a bare parameter, a keyword argument, a value that is used at both
    ends, two results and a size of the sample in the code."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.scale = nn.Parameter(torch.randn(8))
        self.head = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.25))

    def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> tuple[torch.Tensor, ...]:
        early = x * self.scale
        for block in self.blocks:
            x = block(x).view(x.size(0), -1)
        left, right = self.head(x + early).chunk(2, dim=1)
        return left + shift.sum(), right


SAMPLE = {"model_args": (torch.randn(4, 8),), "model_kwargs": {"shift": torch.ones(3)}}


def load(path: Path) -> Any:
    """A written file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(config: dict[str, Any], model: nn.Module, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """Builds the partitions from what each of them asks for and runs them as FTPipe does: by the
    names of what they receive and send. Every shape must be the configuration's."""
    layers = layerDict(model, config["depth"], config["basic_blocks"])
    tensors = tensorDict(model)
    values = dict(inputs)
    names: set[str] = set()
    for stage in config["stages"].values():
        kind = stage["stage_cls"]
        mine = {scope: layers[scope] for scope in kind.LAYER_SCOPES}
        partition = kind(mine, {s: tensors[s] for s in kind.TENSORS}, device="cpu")
        names |= {*partition.state_dict()}
        made = partition(*(values[name] for name in stage["inputs"]))
        for (name, entry), value in zip(stage["outputs"].items(), made, strict=True):
            assert entry["shape"] == value.shape and entry["dtype"] == value.dtype
            assert name not in values and entry["req_grad"] == value.requires_grad
            values[name] = value
    assert names == {*model.state_dict()}
    return [values[name] for name in config["model_outputs"]]

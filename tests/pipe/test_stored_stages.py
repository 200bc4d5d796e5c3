"""A stage loads its own part of a stored model."""

import ligament
import pytest
import torch
from ligament.pipe import pipe_model
from torch import nn


def test_each_stage_loads_its_part() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )
    store = ligament.Store("mem:")
    store.save("whole", model)
    plan = pipe_model(model, (torch.randn(2, 8),), stages=2, profile="flops", progress=False)
    want = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    seen = {}
    for stage in plan.stages:
        store.load("whole", into=stage)
        seen.update(stage.state_dict())
    assert set(seen) == set(want)
    for name, tensor in want.items():
        assert torch.equal(seen[name], tensor)
    with pytest.raises(ligament.MismatchError):
        store.load("whole", into=model[0])

"""A backward pass in two halves gives what one whole gives."""

from __future__ import annotations

import pytest
import torch
from ligament.pipe.runtime.split_backward import first_half, second_half
from torch import nn


class Mixed(nn.Module):
    """Layers on the way, an embedding beside it, a layer used twice, a weight that is an output."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.table = nn.Embedding(3, 4)

    def forward(self, x, index):
        bias = self.table(index) * 2
        h = self.norm(self.a(x) + bias)
        h = self.a(self.b(h).relu() + bias)
        return h, self.table.weight * 3, self.b(x), x


@pytest.mark.parametrize("needs_input", [True, False])
def test_halves_make_a_whole(needs_input: bool) -> None:
    torch.manual_seed(0)
    model, index = Mixed(), torch.tensor([0, 1, 2])
    x = torch.randn(2, 3, 4, requires_grad=needs_input)
    outputs = model(x, index)
    grads = [torch.randn_like(o) for o in outputs]
    roots = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    leaves = [x, *model.parameters()] if needs_input else list(model.parameters())
    wanted = list(torch.autograd.grad([o for o, _ in roots], leaves, [g for _, g in roots]))
    found, waiting = first_half(model(x, index), grads, [x, index], model.parameters())
    if needs_input:
        assert torch.equal(found[0], wanted.pop(0)) and waiting
    assert found[1] is None
    second_half(waiting)
    for (name, parameter), gradient in zip(model.named_parameters(), wanted, strict=True):
        assert torch.equal(parameter.grad, gradient), name


def test_what_can_wait_waits() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    loss = model(x).sum()
    _, waiting = first_half([loss], None, [x], model.parameters())
    assert all(p.grad is None for p in model.parameters())
    second_half(waiting)
    assert all(p.grad is not None for p in model.parameters())
    second_half(waiting)
    once = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(model.parameters(), once, strict=True))


def test_nothing_to_do() -> None:
    assert first_half([torch.ones(2)], [torch.ones(2)], [torch.ones(2), 3], []) == (
        (None, None),
        [],
    )

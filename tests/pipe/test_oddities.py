"""Things that models do, each in a model of its own: planned, measured, equal to the original."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ligament.pipe import pipe_model
from torch import nn
from torch.utils.checkpoint import checkpoint


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)


class KeepsCount(Odd):
    """Buffers that the model writes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        h = self.a(x)
        self.count += 1
        self.mean.mul_(0.9).add_(h.detach().mean((0, 1)), alpha=0.1)
        return self.b(h) + self.mean


class ManyKinds(nn.Module):
    """Recurrence in two directions, convolution, einsum, gather, top-k."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(8, 8, batch_first=True, bidirectional=True)
        self.conv = nn.Conv1d(16, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        states, _ = self.rnn(x)
        h = F.interpolate(self.norm(self.conv(states.transpose(1, 2))), scale_factor=2.0)
        left, right = h.split(4, 1)
        both = torch.einsum("bct,bdt->bcd", left, right)
        index = torch.zeros(2, 4, 4, dtype=torch.long)
        picked = self.head(torch.cat([both, both.gather(2, index)], 2))
        return picked.cumsum(1), torch.topk(h, 2).values


class Autocast(Odd):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.a(x)
        return self.b(h.float())


class WritesItsInput(Odd):
    def forward(self, x):
        x.add_(1)
        return self.b(self.a(x)) + x


class Checkpointed(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8))

    def forward(self, x):
        return self.b(checkpoint(self.middle, self.a(x), use_reentrant=False))


class Parametrised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.b = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))

    def forward(self, x):
        return self.b(self.a(x))


class Noisy(Odd):
    def forward(self, x):
        return self.b(self.a(x) + torch.randn_like(x) * torch.rand(8)) * torch.randn(8)


class ManyDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8).to(torch.bfloat16)
        self.b = nn.Linear(8, 8).double()

    def forward(self, x):
        return self.b(self.a(x.bfloat16()).double()), torch.fft.fft(x)


class Dense(nn.Module):
    """Every layer reads all before it: gradients with many terms, values that jump far."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

    def forward(self, x):
        seen = [x]
        for layer in self.layers:
            seen.append(layer(sum(seen)))
        return seen


class Hooked(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.a.register_forward_hook(lambda module, args, output: output * 2)
        self.b.register_forward_pre_hook(lambda module, args: (args[0] + 1,))

    def forward(self, x):
        return self.b(self.a(x))


class Shifted(Odd):
    """A tensor filled through a slice; a mask and indexes among the results."""

    def forward(self, x):
        h = self.a(x)
        mask = h > 0
        h = h.masked_fill(mask, 0.5)
        shifted = torch.zeros_like(h)
        shifted[:, 1:] = h[:, :-1]
        return self.b(shifted), mask, h.argmax(-1)


class Encoder(nn.Module):
    """In eval mode torch has a fast path for this, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.encoder(x))


MODELS = [
    KeepsCount,
    ManyKinds,
    Autocast,
    WritesItsInput,
    Checkpointed,
    Parametrised,
    Noisy,
    ManyDtypes,
    Dense,
    Hooked,
    Shifted,
    Encoder,
]


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("training", [True, False])
def test_planned_as_it_is(kind: type[nn.Module], training: bool) -> None:
    torch.manual_seed(0)
    model = kind().train(training)
    for method, profile in (("auto", None), ("mixed", "flops")):
        x = torch.randn(2, 4, 8)
        plan = pipe_model(model, (x,), stages=2, method=method, profile=profile)
        result = plan.check()
        assert result.close == {} and result.traced == 0 and plan.program.opaque == {}
        names = set().union(*(stage.state_dict() for stage in plan.stages))
        assert names == set(model.state_dict())

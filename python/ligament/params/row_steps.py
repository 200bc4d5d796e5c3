"""The optimizers of rows as operations on torch tensors, for rows that are cached on a device.

The formulas, and the order of their operations, are those of `src/params/rows/row_optimizers.h`.
"""

from __future__ import annotations

import torch

from .tables import Optimizer

ADD, SGD, ADAGRAD, ROWWISE, ADAM = range(5)
Rows = torch.Tensor
# The row of a gradient that belongs to id i: places[i]; i // places; None: i.
Places = torch.Tensor | int | None


def state_length(kind: int, length: int) -> int:
    """Elements of state of a row."""
    return {ADAGRAD: length, ROWWISE: 1, ADAM: 2 * length + 1}.get(kind, 0)


def sums_up(optimizer: Optimizer) -> bool:
    """Whether one step with the sum of several gradients has the same result as a step for each."""
    kind, *_, decay = optimizer
    return kind == ADD or (kind == SGD and decay == 0)


def adds(optimizer: Optimizer, dtype: torch.dtype) -> bool:
    """Whether a step adds `change` to a row with a single rounding."""
    return sums_up(optimizer) and dtype != torch.bfloat16


def change(optimizer: Optimizer, rate: float, gradient: Rows) -> Rows:
    """The change that such a step adds to a row."""
    return gradient if optimizer[0] == ADD else gradient * -rate


def step(
    optimizer: Optimizer, rate: float, values: Rows, state: Rows, gradient: Rows
) -> tuple[Rows, Rows]:
    """New values and state after one step for each row. bfloat16 is computed in float32."""
    kind, _, eps, _, _, decay = optimizer
    wide = torch.float32 if values.dtype == torch.bfloat16 else values.dtype
    value, slope = values.to(wide), gradient.to(wide)
    if kind == ADD:
        return (value + slope).to(values.dtype), state
    if decay:
        slope = slope + value * decay
    if kind == SGD:
        return (value + slope * -rate).to(values.dtype), state
    if kind == ADAM:
        return _adam(optimizer, rate, values, state, slope)
    squares = slope * slope
    state = state + (squares if kind == ADAGRAD else squares.mean(1, keepdim=True))
    change = slope * -rate / (state.sqrt() + eps)
    return (value + change).to(values.dtype), state


def _adam(
    optimizer: Optimizer, rate: float, values: Rows, state: Rows, slope: Rows
) -> tuple[Rows, Rows]:
    _, _, eps, beta1, beta2, _ = optimizer
    length = values.shape[1]
    mean, square = state[:, :length], state[:, length:-1]
    count = state[:, -1:] + 1
    number = count.double()
    size = (rate / (1 - torch.pow(beta1, number))).to(slope.dtype)
    root = (1 - torch.pow(beta2, number)).sqrt().to(slope.dtype)
    mean = mean + (slope - mean) * (1 - beta1)
    square = square * beta2 + slope * slope * (1 - beta2)
    value = values.to(slope.dtype) - size * mean / (square.sqrt() / root + eps)
    return value.to(values.dtype), torch.cat((mean, square, count), 1)


def summed(grad: torch.Tensor, places: Places, groups: torch.Tensor, count: int) -> torch.Tensor:
    """The sum of the gradients of each of `count` groups; id i belongs to groups[i]."""
    if isinstance(places, int):
        grad = grad.unsqueeze(1).expand(-1, places, -1).reshape(-1, grad.shape[1])
    elif places is not None:
        grad = grad.index_select(0, places)
    sums = torch.zeros((count, grad.shape[1]), dtype=grad.dtype, device=grad.device)
    return sums.index_add_(0, groups, grad)


def listed(places: Places, count: int, device: torch.device) -> torch.Tensor | None:
    """The places of `count` ids as a tensor."""
    if isinstance(places, int):
        return torch.arange(count, device=device).div_(places, rounding_mode="floor")
    return places


def unpadded(ids: torch.Tensor, places: Places, padding: int | None) -> tuple[torch.Tensor, Places]:
    """Removes the id that has no gradient."""
    if padding is None:
        return ids, places
    kept = (ids != padding).nonzero().view(-1)
    if kept.numel() == ids.numel():
        return ids, places
    found = listed(places, ids.numel(), ids.device)
    return ids[kept], kept if found is None else found[kept]

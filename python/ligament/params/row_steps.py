"""The optimizers of rows as operations on torch tensors, for rows that are cached on a device.

The formulas, and the order of their operations, are those of `src/params/rows/row_optimizers.h`.
"""

from __future__ import annotations

import torch

from .tables import Optimizer

ADD, SGD, ADAGRAD, ROWWISE, ADAM = range(5)
Rows = torch.Tensor


def state_length(kind: int, length: int) -> int:
    """Elements of state of a row."""
    return {ADAGRAD: length, ROWWISE: 1, ADAM: 2 * length + 1}.get(kind, 0)


def sums_up(optimizer: Optimizer) -> bool:
    """Whether one step with the sum of several gradients has the same result as a step for each."""
    kind, *_, decay = optimizer
    return kind == ADD or (kind == SGD and decay == 0)


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


def summed(
    grad: torch.Tensor, places: torch.Tensor | None, groups: torch.Tensor, count: int
) -> torch.Tensor:
    """The sum of the gradients of each of `count` groups: row places[i] of `grad`, or row i,
    belongs to groups[i]."""
    given = grad if places is None else grad.index_select(0, places)
    sums = torch.zeros((count, grad.shape[1]), dtype=grad.dtype, device=grad.device)
    return sums.index_add_(0, groups, given)

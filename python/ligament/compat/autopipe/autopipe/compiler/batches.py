"""Written stages for batches of any size, where the model allows it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ligament.pipe import Plan

RESHAPES = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
EXPANDS = ("aten.expand.default",)


@contextmanager
def any_batch(program: Any, batch_dim: int, batch: int) -> Iterator[None]:
    """The trace has the sample's batch size as a number. Within this context, reshapes have -1 in
    its place, which is equivalent for the sample."""
    kept = [(op, op.args) for op in program.ops]
    metas = program.metas()
    for op in program.ops:
        if str(op.target) in RESHAPES and op.meta is not None and batch:
            op.args = (op.args[0], _reshape(op.meta.shape, batch_dim, batch), *op.args[2:])
        elif str(op.target) in EXPANDS:
            op.args = (op.args[0], _expand(op, metas), *op.args[2:])
    try:
        yield
    finally:
        for op, args in kept:
            op.args = args


def _reshape(shape: tuple[int, ...], batch_dim: int, batch: int) -> list[int]:
    sizes = list(shape)
    places = [i for i, size in enumerate(shape) if size % batch == 0]
    if places and 0 not in shape:
        sizes[batch_dim if batch_dim in places else places[0]] = -1
    return sizes


def _expand(op: Any, metas: dict[str, Any]) -> Any:
    meta = metas.get(next(op.refs(), ""))
    sizes = op.args[1]
    if meta is None or len(meta.shape) != len(sizes):
        return sizes
    return [-1 if size == own else size for size, own in zip(sizes, meta.shape, strict=True)]


def batched_values(plan: Plan, batch_dim: int, batch: int) -> dict[str, bool] | None:
    """value at a stage boundary -> whether its size in `batch_dim` is the batch's, found by running
    the stages with a batch of another size, or None if they cannot run with it."""
    other = 2 * batch + 1
    program, layout = plan.program, plan.layout
    real = any(stage.MODULES for stage in plan.stages)
    values = {n: _input(meta, batch_dim, batch, other, real) for n, meta in program.inputs.items()}
    known = {**layout.metas, **program.inputs}
    try:
        with torch.no_grad(), torch.random.fork_rng():
            for stage in plan.stages:
                trial = copy.deepcopy(stage) if real else type(stage)(None, None, "meta")
                made = trial(*(values[name] for name in stage.INPUTS))
                values.update(zip(stage.OUTPUTS, made, strict=True))
    except (RuntimeError, ValueError, IndexError, NotImplementedError):
        return None
    found: dict[str, bool] = {}
    for name, value in values.items():
        if name in known and isinstance(value, torch.Tensor):
            before, after = tuple(known[name].shape), tuple(value.shape)
            found[name] = before != after
            if found[name] and after != _with(before, batch_dim, batch, other):
                return None
    return found


def looks_batched(shape: tuple[int, ...], batch_dim: int, batch: int) -> bool:
    """Whether a value is batched, judging by its size alone."""
    return len(shape) > batch_dim and shape[batch_dim] == batch


def _with(shape: tuple[int, ...], batch_dim: int, batch: int, other: int) -> tuple[int, ...]:
    if not looks_batched(shape, batch_dim, batch):
        return shape
    return (*shape[:batch_dim], other, *shape[batch_dim + 1 :])


def _input(meta: Any, batch_dim: int, batch: int, other: int, real: bool) -> torch.Tensor:
    shape = _with(tuple(meta.shape), batch_dim, batch, other)
    return torch.zeros(shape, dtype=meta.dtype, device=meta.device if real else "meta")

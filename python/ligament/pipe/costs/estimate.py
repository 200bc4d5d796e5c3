"""Estimates costs from shapes, for models that cannot be run here.

Assumes a nominal accelerator with a fixed number of operations and bytes per second and a fixed
cost per kernel. Only the proportions between blocks are meaningful, not the milliseconds.
"""

from __future__ import annotations

import math

import torch

from ligament.pipe.costs.block_costs import Figures
from ligament.pipe.graph.capture import OpaqueCall
from ligament.pipe.graph.ir import Meta, Op, Program, Ref

aten = torch.ops.aten

FLOPS_PER_MS = 100e12 / 1e3
BYTES_PER_MS = 1.5e12 / 1e3
KERNEL_MS = 0.003

PRODUCTS = {
    aten.linear.default,
    aten.matmul.default,
    aten.mm.default,
    aten.bmm.default,
    aten.addmm.default,
    aten.baddbmm.default,
}
CONVOLUTIONS = {
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.convolution.default,
}
LOOK_UPS = {aten.embedding.default}


def figures(program: Program, ops: list[Op], inputs: list[str]) -> Figures:
    """An estimate for one block."""
    metas: dict[str, Meta | None] = dict(program.metas())
    metas |= {n: _of_tensor(s.tensor) for n, s in program.states.items()}
    trained = {n for n, s in program.states.items() if s.tensor.requires_grad}
    total = dict.fromkeys(("forward_ms", "backward_ms", "weight_ms", "saved_bytes"), 0.0)
    saved: set[str] = set()
    out = 0.0
    for op in ops:
        flops, moved = _work(program, op, metas)
        if moved == 0.0:
            continue
        took = KERNEL_MS + max(flops / FLOPS_PER_MS, moved / BYTES_PER_MS)
        total["forward_ms"] += took
        out += op.meta.bytes if op.meta else 0.0
        if not op.grad:
            continue
        weights = any(n in trained for n in op.refs()) or isinstance(op.target, OpaqueCall)
        total["backward_ms"] += 2 * took if flops else took
        total["weight_ms"] += took if flops and weights else 0.0
        saved.update(n for n in op.refs() if n not in program.states)
    own = {op.name for op in ops}
    total["saved_bytes"] = sum(_bytes(metas.get(n)) for n in saved if n in own)
    kept = [i for i, n in enumerate(inputs) if n in saved]
    return Figures(**total, forward_memory=out, backward_memory=2 * out, saved_inputs=kept)


def _of_tensor(tensor: torch.Tensor) -> Meta:
    return Meta(tuple(tensor.shape), tensor.dtype, tensor.device, 0, tuple(tensor.stride()))


def _bytes(meta: Meta | None) -> float:
    return float(meta.bytes) if meta else 0.0


def _work(program: Program, op: Op, metas: dict[str, Meta | None]) -> tuple[float, float]:
    """(operations, bytes moved); a view moves no bytes."""
    if isinstance(op.target, OpaqueCall):
        return _opaque(program, op, metas)
    if not isinstance(op.target, torch._ops.OpOverload) or op.meta is None:
        return 0.0, 0.0
    read = [metas.get(n) for n in op.refs()]
    if (
        any(m is not None and m.storage and m.storage == op.meta.storage for m in read)
        and not op.mutates
    ):
        return 0.0, 0.0
    moved = op.meta.bytes + sum(_bytes(m) for m in read)
    if op.target in LOOK_UPS:
        moved = 2 * op.meta.bytes
    return _flops(op, metas), float(moved)


def _flops(op: Op, metas: dict[str, Meta | None]) -> float:
    size = math.prod(op.meta.shape) if op.meta else 0
    shapes = [m.shape if isinstance(r, Ref) and (m := metas.get(r.name)) else () for r in op.args]
    if op.target in PRODUCTS:
        first = shapes[1] if op.target in (aten.addmm.default, aten.baddbmm.default) else shapes[0]
        return 2.0 * size * (first[-1] if first else 1)
    if op.target in CONVOLUTIONS:
        return 2.0 * size * math.prod(shapes[1][1:])
    if op.target is aten.scaled_dot_product_attention.default:
        *_, queries, width = shapes[0]
        keys = shapes[1][-2]
        heads = math.prod(shapes[0][:-2])
        return 4.0 * heads * queries * keys * width
    return 0.0


def _opaque(program: Program, op: Op, metas: dict[str, Meta | None]) -> tuple[float, float]:
    """Without further information: two operations for each weight and each input row."""
    module = program.model.get_submodule(op.target.path)
    weights = sum(p.numel() for p in module.parameters())
    shapes = [m.shape for n in op.refs() if (m := metas.get(n))]
    rows = max((math.prod(s[:-1]) for s in shapes if s), default=1)
    moved = sum(_bytes(metas.get(n)) for n in op.refs()) + 4 * weights
    return 2.0 * weights * rows, float(moved)

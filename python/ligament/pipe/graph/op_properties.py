"""Properties of single operations that the trace does not contain: whether they are random,
constant, or need gradients."""

from __future__ import annotations

import operator
from typing import Any

import torch

from ligament.pipe.graph.capture import OpaqueCall
from ligament.pipe.graph.ir import Op, Program

aten = torch.ops.aten

NO_GRADIENT = {aten.detach.default, aten.detach_.default, aten.lift_fresh_copy.default}


def argument(op: Op, name: str) -> Any:
    """The value of the schema's argument `name`, including its default; None if there is no such
    argument."""
    if not isinstance(op.target, torch._ops.OpOverload):
        return None
    for position, spec in enumerate(op.target._schema.arguments):
        if spec.name == name:
            if name in op.kwargs:
                return op.kwargs[name]
            if position < len(op.args):
                return op.args[position]
            return spec.default_value if spec.has_default_value() else None
    return None


def is_getitem(op: Op) -> bool:
    """One element of an operation's tuple."""
    return op.target is operator.getitem


def is_random(op: Op, training: bool) -> bool:
    """Whether it draws from a random generator."""
    if isinstance(op.target, OpaqueCall):
        return training  # unknown
    if not isinstance(op.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in op.target.tags:
        return False
    for switch in ("train", "training"):
        if argument(op, switch) is False:
            return False
    return not any(argument(op, name) == 0.0 for name in ("p", "dropout_p", "dropout"))


def mark_free(program: Program) -> None:
    """Operations only on constants and unwritten buffers are repeated wherever their value is
    used."""
    free: set[str] = {
        n for n, s in program.states.items() if s.kind != "parameter" and not s.mutated
    }
    stuck = {n for op in program.ops if op.mutates for n in (op.name, *op.mutates)}
    for op in program.ops:
        if op.mutates or op.random or op.name in stuck or isinstance(op.target, OpaqueCall):
            continue
        if all(name in free for name in op.refs()):
            op.free = True
            free.add(op.name)


def mark_grad(program: Program) -> None:
    """Whether the value may need a gradient. A false positive costs a transfer; a false negative is
    an error."""
    needs = {n for n, s in program.states.items() if s.tensor.requires_grad}
    for op in program.ops:
        off = any(line == "torch.set_grad_enabled(False)" for line in op.context)
        if isinstance(op.target, OpaqueCall):
            module = program.model.get_submodule(op.target.path)
            op.grad = any(p.requires_grad for p in module.parameters())
        op.grad = not off and (op.grad or any(name in needs for name in op.refs()))
        floating = op.meta is None or op.meta.dtype.is_floating_point or op.meta.dtype.is_complex
        if op.target in NO_GRADIENT or not floating:
            op.grad = False
        if op.grad:
            needs.add(op.name)

"""Alias analysis: in-place operations become functional ones if the difference is not observable,
and operations that share written memory stay in one stage."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from ligament.pipe.graph.capture import OpaqueCall
from ligament.pipe.graph.ir import Op, Program, Ref, replace_refs
from ligament.pipe.graph.op_properties import argument, is_random, mark_free, mark_grad

aten = torch.ops.aten

# Operations that write to buffers without declaring it in their schema, and the arguments they
# write to.
SILENT_WRITES: dict[Any, tuple[int, ...]] = {
    aten.batch_norm.default: (3, 4),
    aten.instance_norm.default: (3, 4),
}
# Return their own argument if there is nothing to do, which depends only on dtype and device. Not
# `contiguous`: strides are predicted by the trace, and kernels do not always match it.
SELF_RETURNING = {
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.device,
    aten.to.other,
}


def analyse(program: Program) -> list[set[str]]:
    """Fills `mutates`, `random`, `free` and `grad`, turns writes into new values where that is
    equivalent, and returns the sets of operations that share written memory and cannot be
    separated."""
    for op in program.ops:
        op.mutates = _writes(op)
        op.random = is_random(op, program.training)
    _functionalise(program)
    _skip_nothing(program)
    _drop_unused(program)
    together = _shared_memory(program) + _scalars(program)
    mark_free(program)
    mark_grad(program)
    return together


def _writes(op: Op) -> tuple[str, ...]:
    target = op.target
    if not isinstance(target, torch._ops.OpOverload):
        return ()
    names: list[str] = []
    for position, spec in enumerate(target._schema.arguments):
        written = spec.alias_info is not None and spec.alias_info.is_write
        silent = position in SILENT_WRITES.get(target, ()) and _uses_batch(op)
        if written or silent:
            value = op.kwargs.get(spec.name, op.args[position] if position < len(op.args) else None)
            names.extend(
                r.name
                for r in (value if isinstance(value, list) else [value])
                if isinstance(r, Ref)
            )
    return tuple(names)


def _uses_batch(op: Op) -> bool:
    return bool(argument(op, "training") or argument(op, "use_input_stats"))


def _functionalise(program: Program) -> None:
    """Replaces an in-place operation by its functional counterpart if the difference is not
    observable: no other name of the memory is read afterwards. Operations that stay in place are
    kept in one stage."""
    members = _memory(program)
    born = {op.name: index for index, op in enumerate(program.ops)}
    last_use: dict[str, int] = {}
    for index, op in enumerate(program.ops):
        for name in op.refs():
            last_use[name] = index
    for name in program.outputs:
        last_use[name] = len(program.ops)
    identity: dict[str, str] = {}  # name -> first name of the same Python tensor
    current: dict[str, str] = {}  # first name -> the name that holds its value now

    def now(name: str) -> str:
        return current.get(identity.get(name, name), name)

    for index, op in enumerate(program.ops):
        written = op.mutates
        op.args, op.kwargs = replace_refs(op.args, now), replace_refs(op.kwargs, now)
        op.mutates = tuple(now(n) for n in op.mutates)
        if len(written) != 1 or not _in_place(op) or op.meta is None:
            continue
        first = identity.get(written[0], written[0])
        identity[op.name] = first
        twin = _plain_twin(op)
        same = [n for n in members.get(op.meta.storage, ()) if identity.get(n, n) == first]
        others = [n for n in members.get(op.meta.storage, ()) if n not in same]
        seen = any(last_use.get(n, -1) >= index for n in others if born.get(n, -1) < index)
        if twin is None or seen or first.startswith("$") or first in program.inputs:
            continue
        op.target, op.mutates = twin, ()
        current[first] = op.name
    program.outputs = [now(n) for n in program.outputs]


def _in_place(op: Op) -> bool:
    return isinstance(op.target, torch._ops.OpOverload) and op.target._schema.name.endswith("_")


def _plain_twin(op: Op) -> Any:
    """The overload without the underscore, if it takes the same arguments and returns the same
    dtype and shape."""
    packet = op.target._schema.name.removeprefix("aten::").removesuffix("_")
    twin = getattr(getattr(aten, packet, None), op.target._overloadname, None)
    if twin is None:
        return None
    ours = [a.name for a in op.target._schema.arguments]
    theirs = [a.name for a in twin._schema.arguments]
    if ours != theirs or packet in ("copy", "set", "resize", "resize_as"):
        return None
    return twin


def _memory(program: Program) -> dict[int, list[str]]:
    """storage -> names of all values stored in it, in order."""
    found: dict[int, list[str]] = defaultdict(list)
    for name, meta in program.inputs.items():
        found[meta.storage].append(name)
    for op in program.ops:
        if op.meta is not None:
            found[op.meta.storage].append(op.name)
    return found


def _skip_nothing(program: Program) -> None:
    """Conversions without effect return the tensor itself: their readers read the tensor."""
    metas = {op.name: op.meta for op in program.ops} | dict(program.inputs)
    instead: dict[str, str] = {}

    def real(name: str) -> str:
        return instead.get(name, name)

    for op in program.ops:
        op.args, op.kwargs = replace_refs(op.args, real), replace_refs(op.kwargs, real)
        op.mutates = tuple(real(n) for n in op.mutates)
        if op.target in SELF_RETURNING and not argument(op, "copy") and isinstance(op.args[0], Ref):
            source = op.args[0].name
            if op.meta is not None and metas.get(source) == op.meta:
                instead[op.name] = source
    program.outputs = [real(n) for n in program.outputs]


def _drop_unused(program: Program) -> None:
    """Removes operations with neither a reader nor an effect. Random operations stay: they advance
    the generator."""
    needed = set(program.outputs)
    kept: list[Op] = []
    for op in reversed(program.ops):
        if op.name in needed or op.mutates or op.random or isinstance(op.target, OpaqueCall):
            kept.append(op)
            needed.update(op.refs())
    program.ops = kept[::-1]


def _shared_memory(program: Program) -> list[set[str]]:
    """For each storage that is still written to: all operations that access it up to the last
    write."""
    groups: list[set[str]] = []
    storage_of = {op.name: op.meta.storage for op in program.ops if op.meta is not None}
    storage_of.update({name: meta.storage for name, meta in program.inputs.items()})
    last_write: dict[Any, int] = {}
    for index, op in enumerate(program.ops):
        for name in op.mutates:
            if name in program.states:
                program.states[name].mutated = True
            last_write[storage_of.get(name, name)] = index
    for memory, last in last_write.items():
        always = isinstance(memory, str)  # a buffer: every reader shares the one copy
        group = set()
        for index, op in enumerate(program.ops):
            touched = {storage_of.get(n, n) for n in (op.name, *op.refs())}
            if memory in touched and (always or index <= last):
                group.add(op.name)
        groups.append(group)
    return groups


def _scalars(program: Program) -> list[set[str]]:
    """A value that is not a tensor (a number, a tuple) is not sent: its readers stay in its
    stage."""
    groups = []
    readers: dict[str, list[str]] = defaultdict(list)
    for op in program.ops:
        for name in op.refs():
            readers[name].append(op.name)
    for op in program.ops:
        if op.meta is None:
            groups.append({op.name, *readers[op.name]})
    return groups

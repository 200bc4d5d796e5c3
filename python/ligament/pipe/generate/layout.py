"""The contents of each stage of a plan: its operations, what it receives and passes on, and the
state it carries."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ligament.pipe.graph.capture import OpaqueCall
from ligament.pipe.graph.ir import Meta, Op, Program, State


@dataclass(slots=True)
class StageLayout:
    """One stage. `inputs` and `outputs` are names of values; those in both are relayed. `states`
    maps a piece of state to the names under which this stage carries it."""

    index: int
    device: int
    ops: list[Op] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    states: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """All stages, and for every tied parameter its stages and names."""

    stages: list[StageLayout]
    metas: dict[str, Meta]
    grads: dict[str, bool]
    ties: dict[str, list[tuple[int, str]]]


def lay_out(program: Program, stage_of_block: list[int], devices: list[int]) -> Layout:
    """`stage_of_block[i]` is the stage of block i; `devices[s]` the device of stage s."""
    stages = [StageLayout(s, devices[s]) for s in range(len(devices))]
    of_op = {op.name: stage_of_block[op.block] for op in program.ops if not op.free}
    for stage in stages:
        stage.ops = _operations(program, stage.index, of_op, len(stages))
    _flow(program, stages, of_op)
    _carry(program, stages)
    grads = {op.name: op.grad for op in program.ops}
    grads.update({name: False for name in program.inputs})
    return Layout(stages, program.metas(), grads, _ties(program, stages))


def _operations(program: Program, index: int, of_op: dict[str, int], count: int) -> list[Op]:
    """The stage's own operations, and those on constants that they need, in trace order."""
    needed: set[str] = set(program.outputs) if index == count - 1 else set()
    chosen: list[Op] = []
    for op in reversed(program.ops):
        mine = of_op.get(op.name) == index
        if mine or (op.free and op.name in needed):
            chosen.append(op)
            needed.update(op.refs())
    return chosen[::-1]


def _flow(program: Program, stages: list[StageLayout], of_op: dict[str, int]) -> None:
    """A value is passed from stage to stage, from its producer to its last reader."""
    born = {name: 0 for name in program.inputs} | of_op
    last: dict[str, int] = {}
    for stage in stages:
        for op in stage.ops:
            for name in op.refs():
                last[name] = max(last.get(name, 0), stage.index)
    for name in program.outputs:
        last[name] = len(stages) - 1
    order = [*program.inputs, *(op.name for op in program.ops if not op.free)]
    for name in order:
        for s in range(born[name], last.get(name, -1)):
            stages[s].outputs.append(name)
            stages[s + 1].inputs.append(name)
    stages[0].inputs = list(program.inputs)
    stages[-1].outputs = list(program.outputs)


def _carry(program: Program, stages: list[StageLayout]) -> None:
    """State is assigned to the stages that use it, under the name of the module that uses it; every
    name is assigned."""
    inside: dict[str, int] = {}
    for stage in stages:
        for op in stage.ops:
            if isinstance(op.target, OpaqueCall) and op.target.path not in stage.blocks:
                stage.blocks.append(op.target.path)
                inside[op.target.path] = stage.index
    users: dict[str, list[int]] = defaultdict(list)
    for stage in stages:
        names = [n for op in stage.ops for n in op.refs()]
        names += [n for n in stage.outputs if n in program.states]
        for op in stage.ops:
            for name in op.refs():
                if name in program.states:
                    _use(stage, name, program.states[name], op)
        for name in names:
            if name in program.states:
                stage.states.setdefault(name, [program.states[name].names[0]])
                if stage.index not in users[name]:
                    users[name].append(stage.index)
    for name, state in program.states.items():
        placed = {n for s in stages for n in s.states.get(name, ())}
        for alias in state.names:
            if alias not in placed and users[name] and not _covered(alias, inside):
                stages[users[name][0]].states[name].append(alias)
    for name, state in program.unused.items():
        mine = [n for n in state.names if not _covered(n, inside)]
        if mine and state.persistent:
            stages[0].states[name] = mine


def _use(stage: StageLayout, name: str, state: State, op: Op) -> None:
    """Prefers the name in the module that runs the operation."""
    known = stage.states.setdefault(name, [])
    path = op.frames[-1].path if op.frames else ""
    local = [n for n in state.names if n.rpartition(".")[0] == path]
    wanted = local[0] if local else None
    if wanted is None and not known:
        wanted = state.names[0]
    if wanted is not None and wanted not in known:
        known.append(wanted)


def _covered(name: str, inside: dict[str, int]) -> bool:
    return any(path == "" or name == path or name.startswith(path + ".") for path in inside)


def _ties(program: Program, stages: list[StageLayout]) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for name, state in program.states.items():
        where = [(s.index, s.states[name][0]) for s in stages if name in s.states]
        where += [(s.index, n) for s in stages for n in opaque_names(s, state)]
        if state.kind == "parameter" and len({s for s, _ in where}) > 1:
            found[state.names[0]] = sorted(where)
    return found


def opaque_names(stage: StageLayout, state: State) -> list[str]:
    """The names that a piece of state has inside the modules that the stage calls unchanged."""
    return [n for n in state.names if any(n.startswith(p + ".") or p == "" for p in stage.blocks)]

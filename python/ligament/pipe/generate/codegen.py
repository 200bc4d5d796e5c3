"""The stages of a plan as Python source: one class per stage, no import of Ligament, the same text
for equal plans.

`plan.stages` runs exactly this source, so the checked code is the written code.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import torch

from ligament.pipe.generate import stage_base
from ligament.pipe.generate.expression import Writer
from ligament.pipe.generate.layout import Layout, StageLayout, opaque_names
from ligament.pipe.graph import flatten_arguments
from ligament.pipe.graph.capture import OpaqueCall
from ligament.pipe.graph.ir import Op, Program, State

WIDTH = 100
LITERAL_ELEMENTS = 4096


def generate(program: Program, layout: Layout, devices: list[str], summary: list[str]) -> str:
    """The whole file. `devices` names the device of each stage; `summary` is for the head."""
    name = type(program.model).__name__
    stages = [_Stage(program, layout, stage) for stage in layout.stages]
    names = [n.removeprefix("$") for n in program.outputs]
    head = [
        f'"""{name} in {len(stages)} pipeline stages.',
        "",
        *summary,
        "",
        f"inputs:  {', '.join(program.inputs)}",
        *textwrap.wrap(
            f"outputs: {flatten_arguments.describe(program.output_shape, names)}",
            WIDTH - 2,
            subsequent_indent=" " * 9,
        ),
        '"""',
    ]
    parts = [
        "\n".join(line.rstrip() for line in head),
        _base(),
        _table(program, layout, devices),
        *(stage.text() for stage in stages),
        f"STAGES = [{', '.join(f'Stage{s}' for s in range(len(stages)))}]",
    ]
    return "\n\n\n".join(parts) + "\n"


def _base() -> str:
    """The base classes of all stages, from the first import on."""
    source = inspect.getsource(stage_base)
    return source[source.index("from typing") :].replace("  # noqa: F401", "").strip()


def _table(program: Program, layout: Layout, devices: list[str]) -> str:
    """What a runtime needs to know, as data."""
    lines = [f"TRAINING = {program.training}  # the mode the model was traced in"]
    lines += [f"INPUTS = {list(program.inputs)!r}", f"DEVICES = {devices!r}", "VALUES = {"]
    used = sorted({n for s in layout.stages for n in (*s.inputs, *s.outputs) if n in layout.metas})
    for name in used:
        meta = layout.metas[name]
        lines.append(
            f"    {name!r}: ({meta.shape!r}, {meta.dtype}, {layout.grads.get(name, False)}),"
        )
    lines += [
        "}",
        "# parameters with a copy in several stages: their gradients are to be summed",
        "TIED = [",
    ]
    for where in layout.ties.values():
        lines.append(f"    {where!r},")
    lines.append("]")
    return "\n".join(lines)


class _Stage:
    """Writes one class."""

    def __init__(self, program: Program, layout: Layout, stage: StageLayout) -> None:
        self.program = program
        self.layout = layout
        self.stage = stage
        self.owner: str | None = None
        self.writer = Writer(self._reference, program.device, program.training)
        self.lines: list[str] = []
        self.where: dict[str, list[str]] = stage.states
        self.read = {*stage.outputs, *(n for op in stage.ops for n in op.refs())}

    def text(self) -> str:
        stage = self.stage
        lines = [
            f"class Stage{stage.index}(Stage):",
            *_wrapped(f'    """{self._describe()}"""', 4),
            "",
        ]
        if not self.program.training:
            lines.append("    TRACED_IN_TRAINING = False")
        lines += _names("INPUTS", stage.inputs, "    ")
        lines += _names("OUTPUTS", [n.removeprefix("$") for n in stage.outputs], "    ")
        lines += self._tensors()
        lines += self._tied_names()
        if stage.blocks:
            lines.append(f"    MODULES = {stage.blocks!r}  # the original's, called as they are")
        lines.append("")
        arguments = ", ".join(["self", *stage.inputs])
        lines += _wrapped(f"    def forward({arguments}):", 8)
        lines += self._body()
        return "\n".join(lines)

    def _describe(self) -> str:
        paths = [
            op.frames[-1].path
            for op in self.stage.ops
            if op.frames and op.frames[-1].path and not op.free
        ]
        count = sum(
            self.program.states[n].tensor.numel()
            for n in self.stage.states
            if n in self.program.states
        )
        span = f"{paths[0]} .. {paths[-1]}" if paths else "no modules"
        return f"{span}; {len(self.stage.ops)} operations, {count:,} elements of state."

    def _tensors(self) -> list[str]:
        lines = ["    TENSORS = {"]
        for name, aliases in self.stage.states.items():
            state = self.program.states.get(name) or self.program.unused[name]
            lines += _wrapped(f"        {aliases[0]!r}: {_declaration(state)},", 12)
            for alias in aliases[1:]:
                lines.append(f"        {alias!r}: Same({aliases[0]!r}),")
        return [*lines, "    }"] if len(lines) > 1 else ["    TENSORS = {}"]

    def _tied_names(self) -> list[str]:
        """All names in the original of the tensors that have several; the first is canonical."""
        lines = ["    TIED_NAMES = {"]
        for name, state in (*self.program.states.items(), *self.program.unused.items()):
            here = [*self.stage.states.get(name, ()), *opaque_names(self.stage, state)]
            if len(state.names) > 1 and state.persistent and here:
                lines += _wrapped(f"        {here[0]!r}: {state.names!r},", 12)
        return [*lines, "    }"] if len(lines) > 1 else []

    def _body(self) -> list[str]:
        body: list[str] = []
        if (
            any(n.rpartition(".")[0] for aliases in self.stage.states.values() for n in aliases)
            or self.stage.blocks
        ):
            body.append("        at = self._at")
        last = self._last_uses()
        path: str | None = None
        context: tuple[str, ...] = ()
        dead: list[str] = []
        for index, op in enumerate(self.stage.ops):
            here = op.frames[-1].path if op.frames else ""
            if here != path or op.context != context:
                body += _deletion(dead, 8 + 4 * len(context))
                dead = []
                body += _contexts(context, op.context)
                path, context = here, op.context
                body.append(self._comment(op, len(context)))
                self.owner = None
            body += self._line(op, 8 + 4 * len(context))
            dead += last.get(index, [])
        returned = "".join(f"{self._reference(n)}, " for n in self.stage.outputs).strip()
        return [*body, *_wrapped(f"        return ({returned})", 12)]

    def _last_uses(self) -> dict[int, list[str]]:
        """operation -> values that are not needed after it."""
        last: dict[str, int] = {}
        for index, op in enumerate(self.stage.ops):
            own = [op.name] if self._is_bound(op) else []
            for name in (*own, *op.refs()):
                if not name.startswith("$"):
                    last[name] = index
        found: dict[int, list[str]] = {}
        for name, index in last.items():
            if name not in self.stage.outputs:
                found.setdefault(index, []).append(name)
        return found

    def _comment(self, op: Op, depth: int) -> str:
        frame = op.frames[-1] if op.frames else None
        what = f"{frame.path}: {frame.type.rpartition('.')[2]}" if frame and frame.path else ""
        what = what or type(self.program.model).__name__
        return f"{' ' * (8 + 4 * depth)}# {what}"

    def _line(self, op: Op, indent: int) -> list[str]:
        pad = " " * indent
        owners = {o for o in (self._owner(n) for n in op.refs()) if o}
        before: list[str] = []
        if len(owners) == 1 and self.owner not in owners:
            self.owner = owners.pop()
            before.append(f"{pad}m = at[{self.owner!r}]")
        if isinstance(op.target, OpaqueCall):
            return [*before, *self._opaque(op, op.target, pad)]
        if self.program.training and _counts_batches(op):
            return [*before, f"{pad}if self.training:", f"{pad}    {self.writer.expression(op)}"]
        text = self.writer.expression(op)
        if not self._is_bound(op):
            return [*before, *_wrapped(f"{pad}{text}", indent + 4)]
        return [*before, *_wrapped(f"{pad}{op.name} = {text}", indent + 4)]

    def _is_bound(self, op: Op) -> bool:
        """Whether the result gets a name. An operation with only a side effect needs none."""
        return not op.mutates or op.name in self.read

    def _opaque(self, op: Op, call: OpaqueCall, pad: str) -> list[str]:
        """A module of the original, called with its own arguments; its tensors are then picked by
        their path."""
        tensors = [self.writer.value(r) for r in op.args[0]]
        args, kwargs = call.arguments.children  # type: ignore[union-attr]
        words = [_literal(child, tensors) for child in args.children]  # type: ignore[union-attr]
        for key, child in zip(kwargs.keys, kwargs.children, strict=True):  # type: ignore[union-attr]
            words.append(f"{key}={_literal(child, tensors)}")
        callee = f"at[{call.path!r}]"
        lines = _wrapped(f"{pad}{op.name} = {callee}({', '.join(words)})", len(pad) + 4)
        picks = [f"{op.name}{where}" for where in _picks(call.result)]
        return [*lines, *_wrapped(f"{pad}{op.name} = ({', '.join(picks)},)", len(pad) + 4)]

    def _owner(self, name: str) -> str | None:
        aliases = self.where.get(name)
        return aliases[0].rpartition(".")[0] if aliases and name.startswith("$") else None

    def _reference(self, name: str) -> str:
        if not name.startswith("$"):
            return name
        owner, _, local = self.where[name][0].rpartition(".")
        if not owner:
            base = "self"
        else:
            base = "m" if owner == self.owner else f"at[{owner!r}]"
        return f"{base}.{local}" if local.isidentifier() else f"getattr({base}, {local!r})"


def _counts_batches(op: Op) -> bool:
    """BatchNorm's counter, which changes only in training."""
    return bool(op.mutates) and op.mutates[0].endswith(".num_batches_tracked")


def _declaration(state: State) -> str:
    tensor = state.tensor
    words = [", ".join(str(s) for s in tensor.shape)] if tensor.dim() else []
    if tensor.dtype != torch.float32:
        words.append(f"dtype={tensor.dtype}")
    if state.kind == "parameter":
        if not tensor.requires_grad:
            words.append("grad=False")
        return f"Parameter({', '.join(words)})"
    if not state.persistent:
        words.append("persistent=False")
        if tensor.numel() <= LITERAL_ELEMENTS and not tensor.is_meta:
            words.append(f"value={_numbers(tensor)}")
    return f"Buffer({', '.join(words)})"


def _numbers(tensor: torch.Tensor) -> str:
    """Python's shortest representation of a double is exact, so every value is preserved bit for
    bit."""
    text = repr(tensor.detach().cpu().tolist())
    return text.replace("inf", "float('inf')").replace("nan", "float('nan')")


def _literal(shape: flatten_arguments.Shape, tensors: list[str]) -> str:
    if isinstance(shape, flatten_arguments.Leaf):
        return tensors[shape.place]
    if isinstance(shape, flatten_arguments.Constant):
        return repr(shape.value)
    inner = [_literal(child, tensors) for child in shape.children]
    if shape.type is list:
        return f"[{', '.join(inner)}]"
    if shape.type is tuple:
        return "(" + "".join(f"{i}, " for i in inner).rstrip() + ")"
    return "{" + ", ".join(f"{k!r}: {v}" for k, v in zip(shape.keys, inner, strict=True)) + "}"


def _picks(shape: flatten_arguments.Shape) -> list[str]:
    """For each tensor of a result the subscript or attribute that leads to it."""
    if isinstance(shape, flatten_arguments.Leaf):
        return [""]
    if isinstance(shape, flatten_arguments.Constant):
        return []
    found = []
    for key, child in zip(shape.keys, shape.children, strict=True):
        step = f"[{key!r}]" if shape.kind in ("sequence", "mapping") else f".{key}"
        found += [step + rest for rest in _picks(child)]
    return found


def _contexts(old: tuple[str, ...], new: tuple[str, ...]) -> list[str]:
    shared = 0
    while shared < min(len(old), len(new)) and old[shared] == new[shared]:
        shared += 1
    return [f"{' ' * (8 + 4 * i)}with {new[i]}:" for i in range(shared, len(new))]


def _deletion(names: list[str], indent: int) -> list[str]:
    return _wrapped(f"{' ' * indent}del {', '.join(names)}", indent, " \\") if names else []


def _names(label: str, names: list[Any], pad: str) -> list[str]:
    return _wrapped(f"{pad}{label} = {names!r}", len(pad) + 4)


def _wrapped(line: str, indent: int, end: str = "") -> list[str]:
    """Breaks a long line at commas, inside its brackets (or with `end` if there are none)."""
    if len(line) <= WIDTH:
        return [line]
    pad = line[: len(line) - len(line.lstrip())]
    pieces = textwrap.wrap(
        line.strip(),
        WIDTH - len(end),
        initial_indent=pad,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*(p + end for p in pieces[:-1]), pieces[-1]]

"""From torch.export's program to the records of `ir`: nested graphs inlined, opaque calls restored,
names cleaned up."""

from __future__ import annotations

import keyword
import operator
import re
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from ligament.pipe.graph.capture import Captured, Untraceable
from ligament.pipe.graph.ir import Frame, Meta, Op, Program, Ref, State, replace_refs

RESERVED = {"self", "torch", "F", "nn", "m", "at", *keyword.kwlist}


def convert(model: torch.nn.Module, captured: Captured) -> Program:
    """The program behind a capture."""
    return _Converter(model, captured).run()


class _Converter:
    def __init__(self, model: torch.nn.Module, captured: Captured) -> None:
        self.model = model
        self.captured = captured
        self.taken: set[str] = set(RESERVED)
        self.ops: list[Op] = []
        self.inputs: dict[str, Meta] = {}
        self.states: dict[str, State] = {}
        self.prefix = "model.model" if "" in captured.opaque else "model"

    def run(self) -> Program:
        program = self.captured.program
        kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        env: dict[fx.Node, Any] = {}
        position = 0
        for node in program.graph.nodes:
            if node.op == "placeholder":
                spec = kinds[node.name]
                if spec.kind == InputKind.USER_INPUT:
                    env[node] = self._input(node, self.captured.inputs.paths[position])
                    position += 1
                else:
                    env[node] = self._state(node, spec)
        outputs = self._graph(program.graph_module, program.graph, env, ())
        names = [o.name for o in outputs if isinstance(o, Ref)]
        self._tie()
        # Constants and lengths may be on the host even if the model is not.
        devices = {t.device for t in (*self.model.parameters(), *self.model.buffers())}
        devices = devices or {m.device for m in self.inputs.values()}
        return Program(
            model=self.model,
            training=self.model.training,
            inputs=self.inputs,
            input_shape=self.captured.inputs.shape,
            output_shape=self.captured.output,
            outputs=names,
            states=self.states,
            ops=self.ops,
            opaque=dict(self.captured.opaque),
            device=devices.pop() if len(devices) == 1 else None,
        )

    def _name(self, wanted: str) -> str:
        base = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        base = f"v{base}" if base[0].isdigit() else base
        name, count = base, 1
        while name in self.taken:
            name, count = f"{base}_{count}", count + 1
        self.taken.add(name)
        return name

    def _input(self, node: fx.Node, path: str) -> Ref:
        name = self._name(path)
        self.inputs[name] = _meta(node.meta["val"])
        return Ref(name)

    def _state(self, node: fx.Node, spec: Any) -> Ref:
        path = spec.target.removeprefix(self.prefix).removeprefix(".")
        name = "$" + path
        if spec.kind == InputKind.PARAMETER:
            self.states[name] = State("parameter", [path], self.model.get_parameter(path), True)
        elif spec.kind == InputKind.BUFFER:
            self.states[name] = State(
                "buffer", [path], self.model.get_buffer(path), bool(spec.persistent)
            )
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            constant = self.captured.program.constants[spec.target]
            self.states[name] = State("constant", [path], constant, False)
        else:
            raise Untraceable("", f"an input of kind {spec.kind} is not supported")
        return Ref(name)

    def _graph(
        self,
        owner: torch.nn.Module,
        graph: fx.Graph,
        env: dict[fx.Node, Any],
        context: tuple[str, ...],
    ) -> list[Any]:
        """Adds the operations of `graph`; returns its outputs."""
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "get_attr":
                env[node] = self._attribute(owner, node)
            elif node.op == "output":
                return list(self._arg(node.args[0], env))
            else:
                env[node] = self._call(owner, node, env, context)
        return []

    def _attribute(self, owner: torch.nn.Module, node: fx.Node) -> Any:
        found = operator.attrgetter(str(node.target))(owner)
        if isinstance(found, torch.Tensor):
            name = self._name(f"{node.target}")
            self.states["$" + name] = State("constant", [name], found, False)
            return Ref("$" + name)
        return found

    def _call(
        self,
        owner: torch.nn.Module,
        node: fx.Node,
        env: dict[fx.Node, Any],
        context: tuple[str, ...],
    ) -> Any:
        args, kwargs = self._arg(node.args, env), self._arg(node.kwargs, env)
        if node.target is operator.getitem and isinstance(args[0], list):
            return args[0][args[1]]  # the result of an inlined graph
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._inline(node, args, kwargs, context)
        target, frames = node.target, self._frames(node)
        if target is torch.ops.ligament_pipe.opaque.default:
            target = self.captured.calls[args[1]]
            args = (args[0],)
        elif target is not operator.getitem and not isinstance(target, torch._ops.OpOverload):
            where = frames[-1].path if frames else ""
            raise Untraceable(
                where, f"{where or 'the model'} uses {target}, which is not supported"
            )
        value = node.meta.get("val")
        try:
            meta = _meta(value) if isinstance(value, torch.Tensor) else None
        except Exception:  # noqa: BLE001 - a symbolic size refuses to become a number, in several ways
            where = frames[-1].path if frames else ""
            raise Untraceable(where, f"{target} has a result whose size depends on data") from None
        op = Op(self._name(node.name), target, args, kwargs, frames, context, meta)
        self.ops.append(op)
        return Ref(op.name)

    def _inline(
        self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], context: tuple[str, ...]
    ) -> Any:
        """Regions with another grad mode or autocast become operations under a `with` line."""
        kind = str(node.target)
        if kind == "wrap_with_set_grad_enabled":
            line, body, inner = f"torch.set_grad_enabled({args[0]})", args[1], args[2:]
        elif kind == "wrap_with_autocast":
            device, dtype, enabled, cache, body = args[:5]
            inner = args[5:]
            line = f"torch.autocast({device!r}, {dtype}, enabled={enabled}, cache_enabled={cache})"
        else:
            frames = self._frames(node)
            where = frames[-1].path if frames else ""
            raise Untraceable(where, f"{where or 'the model'} uses {kind}, which is not supported")
        places = [n for n in body.graph.nodes if n.op == "placeholder"]
        env = dict(zip(places, inner, strict=True))
        result = self._graph(body, body.graph, env, (*context, line))
        return result

    def _arg(self, value: Any, env: dict[fx.Node, Any]) -> Any:
        if isinstance(value, fx.Node):
            return env[value]
        if isinstance(value, (tuple, list)):
            return (
                type(value)(self._arg(v, env) for v in value)
                if type(value) in (tuple, list)
                else [self._arg(v, env) for v in value]
            )
        if isinstance(value, dict):
            return {k: self._arg(v, env) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(*(self._arg(v, env) for v in (value.start, value.stop, value.step)))
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise Untraceable("", "a size that depends on data is not supported")
        return value

    def _frames(self, node: fx.Node) -> tuple[Frame, ...]:
        frames = []
        for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
            if path != self.prefix and not path.startswith(self.prefix + "."):
                continue
            name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            frames.append(Frame(key, path.removeprefix(self.prefix).removeprefix("."), name))
        return tuple(frames)

    def _tie(self) -> None:
        """State under several names is one piece of state: operations use the first, all names are
        kept."""
        first: dict[int, str] = {}
        rename: dict[str, str] = {}
        for name, state in self.states.items():
            known = first.setdefault(id(state.tensor), name)
            if known != name:
                rename[name] = known
        for name in rename:
            del self.states[name]
        for name, tensor, persistent in _named_state(self.model):
            known_name = first.get(id(tensor))
            if known_name is None:
                continue
            state = self.states[known_name]
            if name not in state.names:
                state.names.append(name)
            state.persistent = state.persistent or persistent
        for op in self.ops:
            if any(r in rename for r in op.refs()):
                op.args = replace_refs(op.args, lambda n: rename.get(n, n))
                op.kwargs = replace_refs(op.kwargs, lambda n: rename.get(n, n))


def _named_state(model: torch.nn.Module) -> list[tuple[str, torch.Tensor, bool]]:
    """Every name of every parameter and buffer; tied ones appear under each name."""
    kept = set(model.state_dict(keep_vars=True))
    found = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    return [(name, tensor, name in kept) for name, tensor in found]


def _meta(value: torch.Tensor) -> Meta:
    storage = value.untyped_storage()._cdata
    shape = tuple(int(s) for s in value.shape)
    return Meta(shape, value.dtype, value.device, storage, tuple(int(s) for s in value.stride()))

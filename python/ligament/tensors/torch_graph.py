"""The graph of a torch module: by torch.export if arguments are given, else from the order of its
modules."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import InvalidError
from .layers import Layers, Signature, Value, encoded, text_of
from .of_torch import _WRAPPERS

_EXPORT, _ORDER = "torch.export/1", "torch.modules/1"
_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


def graphs(
    model: Any,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
    signature: Signature | None,
) -> list[Layers]:
    """The graphs of a module; the one requested by `args` comes first."""
    model = _unwrapped(model)
    order = _by_order(model, signature)
    if args is None and kwargs is None:
        return [order]
    return [_by_export(model, args or (), kwargs or {}, signature), order]


def _unwrapped(model: Any) -> Any:
    while type(model).__name__ in _WRAPPERS and type(model).__module__.startswith("torch."):
        model = getattr(model, _WRAPPERS[type(model).__name__][:-1])
    return model


# --- signatures ---------------------------------------------------------------------------------


def _is_leaf(module: Any) -> bool:
    """Whether it is one layer: it contains no modules, or they are internals of torch, as in
    MultiheadAttention."""
    kind = type(module)
    if next(module.children(), None) is None:
        return True
    return (
        kind.__module__.startswith("torch.nn.modules.")
        and kind.__name__ not in _CONTAINERS
        and not kind.__module__.endswith((".transformer", ".container"))
    )


def _own(module: Any, recurse: bool) -> list[tuple[str, Any]]:
    found = [*module.named_parameters(recurse=recurse), *module.named_buffers(recurse=recurse)]
    return [(name, value) for name, value in found if value is not None]


def _shape(value: Any) -> tuple[list[int], str]:
    return list(value.shape), str(value.dtype)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str))


def _mark(module: Any, signature: Signature | None) -> bytes:
    """The signature of a layer: class, extra_repr(), plain attributes, shapes and dtypes."""
    if signature is not None:
        return text_of(signature(module))
    plain = {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_") and key != "training" and _is_plain(value)
    }
    shapes = [(name, *_shape(value)) for name, value in _own(module, True)]
    kind = type(module)
    return encoded(f"{kind.__module__}.{kind.__qualname__}", module.extra_repr(), plain, shapes)


# --- by order -----------------------------------------------------------------------------------


def _by_order(model: Any, signature: Signature | None) -> Layers:
    """A chain in the order in which the modules were created. Parameters of a module that contains
    other modules are separate layers before these."""
    layers = Layers(_ORDER)
    before: int | None = None

    def visit(module: Any, path: str, seen: set[int]) -> Iterator[tuple[str, bytes]]:
        if id(module) in seen:
            return
        seen.add(id(module))
        if path and _is_leaf(module):
            yield path, _mark(module, signature)
            return
        for name, value in _own(module, False):
            kind = type(module)
            mark = encoded(f"{kind.__module__}.{kind.__qualname__}", name, *_shape(value))
            yield f"{path}.{name}" if path else name, mark
        for name, child in module.named_children():
            yield from visit(child, f"{path}.{name}" if path else name, seen)

    for name, mark in visit(model, "", set()):
        before = layers.call(layers.layer(name, mark), [] if before is None else [(before, 0)])
    return layers


# --- by export ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Traces the graph of inference, regardless of the mode of each module."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _by_export(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], signature: Signature | None
) -> Layers:
    torch = sys.modules["torch"]
    given = args if isinstance(args, tuple) else (args,)
    with _evaluating(model), torch.no_grad():
        try:
            program = torch.export.export(model, given, kwargs, strict=False)
        except Exception as error:
            raise InvalidError(
                f"torch.export cannot follow {type(model).__qualname__} with these arguments: "
                f"{str(error).strip().splitlines()[0] if str(error).strip() else error!r}; "
                "without args its modules are taken in order"
            ) from error
    return _Exported(model, program, signature).layers


def _arguments(node: Any) -> list[Any]:
    """The input nodes, in order, with repetitions."""
    found: list[Any] = []
    sys.modules["torch"].fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


class _Exported:
    def __init__(self, model: Any, program: Any, signature: Signature | None) -> None:
        self.layers = Layers(_EXPORT)
        self.signature = signature
        self.modules = dict(model.named_modules())
        self.leaves = {path for path, module in self.modules.items() if path and _is_leaf(module)}
        signs = program.graph_signature
        self.tensors = {**signs.inputs_to_parameters, **signs.inputs_to_buffers}
        self.values: dict[Any, Value] = {}
        self.state: dict[Any, str] = {}  # placeholders of parameters and buffers: their names
        self.made: dict[str, int] = {}
        self.owned: set[str] = set()
        self.batch: int | None = None
        self.walk(list(program.graph.nodes), set(signs.user_inputs))

    def walk(self, nodes: list[Any], user_inputs: set[Any]) -> None:
        at = inputs = 0
        while at < len(nodes):
            node = nodes[at]
            at += 1
            if node.op == "placeholder":
                if node.name in self.tensors:
                    self.state[node] = self.tensors[node.name]
                else:
                    self.root(node, inputs)
                    inputs += 1
            elif node.op == "get_attr":
                self.root(node, -1)
            elif node.op == "call_function":
                place = self.place(node)
                if place is None:
                    self.operation(node)
                    continue
                end = at
                while end < len(nodes) and self.place(nodes[end]) == place:
                    end += 1
                self.module(place[0], nodes[at - 1 : end])
                at = end

    def place(self, node: Any) -> tuple[str, str] | None:
        """(path, number of the call) of the layer that a node belongs to."""
        if node.op != "call_function":
            return None
        for key, (path, _) in (node.meta.get("nn_module_stack") or {}).items():
            if path in self.leaves:
                return path, key
        return None

    def root(self, node: Any, number: int) -> None:
        value = node.meta.get("val")
        shape = getattr(value, "shape", None)
        if number == 0 and shape is not None and len(shape) > 0 and isinstance(shape[0], int):
            self.batch = shape[0]
        what = [str(getattr(value, "dtype", type(value).__name__)), len(shape or ())]
        layer = self.layers.layer(f"{node.name}()", encoded("input", number, *what))
        self.values[node] = (self.layers.call(layer, []), 0)

    def module(self, path: str, nodes: list[Any]) -> None:
        """One call of a module: all operations in it. The values that other operations use are its
        outputs."""
        inside = set(nodes)
        taken = [arg for node in nodes for arg in node.all_input_nodes if arg not in inside]
        inputs = [self.values[arg] for arg in dict.fromkeys(taken) if arg in self.values]
        if path not in self.made:
            mark = _mark(self.modules[path], self.signature)
            self.made[path] = self.layers.layer(path, mark)
        call = self.layers.call(self.made[path], inputs)
        shown = [node for node in nodes if any(user not in inside for user in node.users)]
        for node in nodes:
            self.values[node] = (call, shown.index(node) if node in shown else 0)

    def operation(self, node: Any) -> None:
        """An operation in the forward of a module that contains others. The parameters that it uses
        are part of it: it has the name of the first one, and the others are attached to it."""
        target, args = str(node.target), (node.args, node.kwargs)
        if target == "<built-in function getitem>" and node.args[0] in self.values:
            call, _ = self.values[node.args[0]]
            self.values[node] = (call, int(node.args[1]))
            return
        inputs = [self.values[arg] for arg in _arguments(node) if arg in self.values]
        names = [self.state[arg] for arg in node.all_input_nodes if arg in self.state]
        mine = [name for name in dict.fromkeys(names) if name not in self.owned]
        self.owned.update(mine)
        shapes = [_shape(arg.meta["val"]) for arg in node.all_input_nodes if arg in self.state]
        mark = encoded("operation", target, self.plain(args), shapes)
        call = self.layers.call(
            self.layers.layer(mine[0] if mine else f"{node.name}()", mark), inputs
        )
        self.values[node] = (call, 0)
        for number, name in enumerate(mine[1:], 1):
            self.layers.call(self.layers.layer(name, encoded("beside", number)), [(call, 0)])

    def plain(self, value: Any) -> Any:
        """The arguments, without tensors and the size of the batch."""
        torch = sys.modules["torch"]
        if isinstance(value, torch.fx.Node):
            return "%" if value in self.state else "$"
        if isinstance(value, dict):
            return {str(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            items = [self.plain(item) for item in value]
            if items and isinstance(value, list) and items[0] == self.batch:
                items[0] = "batch"
            return items
        return value if _is_plain(value) else str(value)

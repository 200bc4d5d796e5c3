"""The traced model as plain records: operations in the order in which the model ran them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ligament.pipe.graph import flatten_arguments
from ligament.pipe.graph.capture import OpaqueCall


class Ref(NamedTuple):
    """An argument that is another operation's value, an input or a piece of state."""

    name: str


class Frame(NamedTuple):
    """One module call around an operation: a key that identifies the call, the module's path, its
    class."""

    key: str
    path: str
    type: str


class Meta(NamedTuple):
    """What is known of a tensor without running anything."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    storage: int
    stride: tuple[int, ...]

    @property
    def bytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count * self.dtype.itemsize


@dataclass(slots=True)
class Op:
    """One operation. `target` is an ATen overload, `operator.getitem`, or an OpaqueCall."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    frames: tuple[Frame, ...]
    context: tuple[str, ...]
    meta: Meta | None
    mutates: tuple[str, ...] = ()
    random: bool = False
    free: bool = False
    grad: bool = False
    block: int = -1

    def refs(self) -> Iterator[str]:
        """Names of the values this operation reads, in order, with repetitions."""
        yield from _refs(self.args)
        yield from _refs(self.kwargs)


@dataclass(slots=True)
class State:
    """A parameter, a buffer or a constant of the model. `names` are all its names in the original,
    the first one canonical; several where the model ties them."""

    kind: str
    names: list[str]
    tensor: torch.Tensor
    persistent: bool
    mutated: bool = False

    @property
    def bytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()


@dataclass(slots=True)
class Program:
    """A traced model. `outputs` are names of values (or of state, with a leading `$`); `device` is
    the device of the whole model, None if it is on several; `unused` is state that no operation
    reads.
    """

    model: torch.nn.Module
    training: bool
    inputs: dict[str, Meta]
    input_shape: flatten_arguments.Shape
    output_shape: flatten_arguments.Shape
    outputs: list[str]
    states: dict[str, State]
    ops: list[Op]
    opaque: dict[str, str] = field(default_factory=dict)
    unused: dict[str, State] = field(default_factory=dict)
    device: torch.device | None = None

    def metas(self) -> dict[str, Meta]:
        """name -> what is known of each input and value that is a tensor."""
        return {op.name: op.meta for op in self.ops if op.meta is not None} | self.inputs

    def producers(self) -> dict[str, Op]:
        """name -> operation."""
        return {op.name: op for op in self.ops}


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _refs(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _refs(item)
    elif isinstance(value, slice):
        yield from _refs((value.start, value.stop, value.step))


def replace_refs(value: Any, rename: Callable[[str], str]) -> Any:
    """`value` with every Ref renamed."""
    if isinstance(value, Ref):
        return Ref(rename(value.name))
    if isinstance(value, (tuple, list)):
        return type(value)(replace_refs(item, rename) for item in value)
    if isinstance(value, dict):
        return {key: replace_refs(item, rename) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(replace_refs(v, rename) for v in (value.start, value.stop, value.step)))
    return value


__all__ = ["Frame", "Meta", "OpaqueCall", "Op", "Program", "Ref", "State", "replace_refs"]

"""Reads a pickle without executing it: a class or function becomes its name, a call becomes a
record of its arguments. Supports only the opcodes used for dataclasses, dicts, lists and
numbers."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import CorruptError


@dataclass(frozen=True)
class Name:
    """A class or function: "torch.float32"."""

    text: str


@dataclass(eq=False)
class Record:
    """An object that unpickling would have created."""

    kind: Any
    args: tuple[Any, ...]
    state: Any = None

    def get(self, field: str) -> Any:
        """A field of a dataclass; None if it has no field of that name."""
        return self.state.get(field) if isinstance(self.state, dict) else None


class _Mark:
    """The start of a list of arguments."""


def read(data: bytes, name: str) -> Any:
    """The value that a pickle describes. CorruptError, with `name`, for anything unknown."""
    try:
        return _Machine().run(data)
    except CorruptError as error:
        raise CorruptError(f"'{name}': {error}") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptError(f"'{name}' is not a pickle of plain values: {error}") from None


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            word = opcode.name
            if word == "STOP":
                (value,) = self.stack
                return value
            if word in _CONSTANTS:
                self.stack.append(_CONSTANTS[word]())
            elif word in _VALUES:
                self.stack.append(argument)
            elif word in _ACTIONS:
                _ACTIONS[word](self, argument)
            elif word not in ("PROTO", "FRAME"):
                raise CorruptError(f"unsupported pickle opcode {word}")
        raise CorruptError("truncated pickle")

    def pop(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise ValueError("stack underflow")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while at >= 0 and not isinstance(self.stack[at], _Mark):
            at -= 1
        if at < 0:
            raise ValueError("no mark on the stack")
        taken = self.stack[at + 1 :]
        del self.stack[at:]
        return taken

    def put(self, number: int | None) -> None:
        self.memo[len(self.memo) if number is None else number] = self.stack[-1]

    def build(self) -> None:
        (state,) = self.pop(1)
        if not isinstance(self.stack[-1], Record):
            raise ValueError("state for something that is not an object")
        self.stack[-1].state = state

    def call(self, kind: Any, args: Any) -> None:
        if not isinstance(kind, Name) or not isinstance(args, tuple):
            raise ValueError("call of something that is not a name")
        plain = kind.text == "collections.OrderedDict" and not args
        self.stack.append({} if plain else Record(kind, args))

    def append(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError("items appended to something that is not a list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise ValueError("items set on something that is not a dict")
        # A tuple of tuples of tuples, each twice the one before, would take forever to hash.
        if not all(isinstance(key, (str, int, Record, type(None))) for key in items[::2]):
            raise ValueError("a key that is neither a string nor a number")
        target.update(zip(items[::2], items[1::2], strict=True))

    def name(self, argument: str) -> None:
        self.stack.append(Name(argument.replace(" ", ".")))


Action = Callable[[_Machine, Any], None]


def _tuple(count: int) -> Action:
    return lambda machine, _: machine.stack.append(tuple(machine.pop(count)))


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": _Mark,
}
_VALUES = (
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
)  # fmt: skip
_ACTIONS: dict[str, Action] = {
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "APPEND": lambda m, _: m.append(m.pop(1)),
    "APPENDS": lambda m, _: m.append(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items(m.pop(2)),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "MEMOIZE": lambda m, _: m.put(None),
    "BINPUT": lambda m, number: m.put(number),
    "LONG_BINPUT": lambda m, number: m.put(number),
    "BINGET": lambda m, number: m.stack.append(m.memo[number]),
    "LONG_BINGET": lambda m, number: m.stack.append(m.memo[number]),
    "GLOBAL": lambda m, text: m.name(text),
    "STACK_GLOBAL": lambda m, _: m.name(".".join(m.pop(2))),
    "REDUCE": lambda m, _: m.call(*m.pop(2)),
    "NEWOBJ": lambda m, _: m.call(*m.pop(2)),
    "BUILD": lambda m, _: m.build(),
}

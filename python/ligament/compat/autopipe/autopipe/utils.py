"""FTPipe's functions over modules and nested values."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class ExecTimes(NamedTuple):
    """Times of one node in milliseconds."""

    forward_time: float
    backward_time: float


class FullExecTimes(NamedTuple):
    """Times of one node with and without recomputation."""

    recomputation: ExecTimes
    no_recomputation: ExecTimes


def is_None(a: Any) -> bool:
    """A function that tracers can record, in place of an operator."""
    return a is None


def is_not_None(a: Any) -> bool:
    """Like `is_None`."""
    return a is not None


def _child(prefix: str, name: str, module: Any) -> str:
    return f"{prefix}/{type(module).__name__}[{name}]"


def special_traverse_model(
    module: nn.Module,
    depth: int,
    prefix: str | None = None,
    basic_blocks: Any = (),
    special_blocks: Any = (),
    next_special_bb_id: float | None = None,
    full: bool = False,
    mark: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """Like `traverse_model`; with `mark` and `full` a fifth element numbers the modules of the
    classes `special_blocks` and is None for others."""
    numbers: dict[int, float] = {}
    first = next_special_bb_id or 0
    for found in traverse_model(module, depth, prefix, basic_blocks, full):
        special = bool(special_blocks) and isinstance(found[0], tuple(special_blocks))
        number = numbers.setdefault(id(found[0]), first + len(numbers) + 1) if special else None
        yield (*found, number) if full and mark else found


def traverse_model(
    module: nn.Module,
    depth: int,
    prefix: str | None = None,
    basic_blocks: Any = (),
    full: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """(module, scope, parent) of the leaves, where leaves are also modules of the classes
    `basic_blocks` and those `depth` levels down. With `full` all modules, and a fourth element is
    true for leaves."""
    prefix = prefix or type(module).__name__
    for name, inner in module.named_children():
        scope = _child(prefix, name, inner)
        leaf = depth == 0 or not any(inner.children()) or isinstance(inner, tuple(basic_blocks))
        if full:
            yield inner, scope, module, leaf
        elif leaf:
            yield inner, scope, module
        if not leaf:
            yield from traverse_model(inner, depth - 1, scope, basic_blocks, full)


def traverse_params_buffs(
    module: nn.Module, prefix: str | None = None
) -> Iterator[tuple[Tensor, str]]:
    """(tensor, scope) of all parameters and buffers."""
    prefix = prefix or type(module).__name__
    for tensors in (module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
        for name, tensor in tensors:
            yield tensor, _child(prefix, name, tensor)
    for name, inner in module.named_children():
        yield from traverse_params_buffs(inner, _child(prefix, name, inner))


def layerDict(model: nn.Module, depth: int = 1000, basic_blocks: Any = ()) -> dict[str, nn.Module]:
    """scope -> leaf module."""
    return {
        scope: layer for layer, scope, _ in traverse_model(model, depth, basic_blocks=basic_blocks)
    }


def tensorDict(model: nn.Module) -> OrderedDict[str, Tensor]:
    """scope -> parameter or buffer."""
    return OrderedDict((scope, tensor) for tensor, scope in traverse_params_buffs(model))


def nested_map(func: Callable[[Any], Any], ts: Any, full: bool = False) -> Any:
    """Applies `func` to everything in lists, tuples, sets and dicts (and slices, with `full`)."""
    if isinstance(ts, (list, tuple, set)) and not isinstance(ts, torch.Size):
        return type(ts)(nested_map(func, t, full) for t in ts)
    if isinstance(ts, dict):
        return {key: nested_map(func, t, full) for key, t in ts.items()}
    if isinstance(ts, slice) and full:
        return slice(*(nested_map(func, t, full) for t in (ts.start, ts.stop, ts.step)))
    return func(ts)


def flatten(ts: Any) -> Iterator[Any]:
    """All values in nested containers; those of dicts in the order of their keys."""
    if isinstance(ts, dict):
        ts = [ts[key] for key in sorted(ts)]
    if isinstance(ts, (list, tuple, set)) and not isinstance(ts, torch.Size):
        for inner in ts:
            yield from flatten(inner)
    else:
        yield ts


def unflatten(xs: Any, structure: Any) -> Any:
    """The inverse of `flatten`: `xs` in the containers of `structure`."""
    rest = iter(xs)

    def fill(shape: Any) -> Any:
        if isinstance(shape, dict):
            made = {key: fill(shape[key]) for key in sorted(shape)}
            return {key: made[key] for key in shape}
        if isinstance(shape, (list, tuple, set)) and not isinstance(shape, torch.Size):
            return type(shape)(fill(inner) for inner in shape)
        return next(rest)

    return fill(structure)


def move_tensors(ts: Any, device: Any) -> Any:
    """Moves tensors and modules in nested containers to `device`."""
    return nested_map(lambda t: t.to(device) if isinstance(t, (nn.Module, Tensor)) else t, ts)


def detach_tensors(ts: Any) -> Any:
    """Detaches tensors in nested containers; those that require a gradient still do."""
    return nested_map(
        lambda t: t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t, ts
    )


def set_grad_mode(ts: Any, require_grad: bool) -> Any:
    """Like `detach_tensors`: parameters require a gradient, floating-point tensors on request."""

    def set_one(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        wanted = isinstance(t, nn.Parameter) or (require_grad and t.is_floating_point())
        return t.detach().requires_grad_(wanted)

    return nested_map(set_one, ts)


def get_tensor_dtypes(ts: Any) -> Any:
    """The dtypes of tensors, the types of everything else."""
    return nested_map(lambda t: t.dtype if isinstance(t, Tensor) else type(t), ts)


def get_tensor_shapes(ts: Any) -> Any:
    """The shapes of tensors, None for everything else."""
    return nested_map(lambda t: t.shape if isinstance(t, Tensor) else None, ts)


def get_device(ts: Any) -> torch.device:
    """The device of the first tensor."""
    for t in flatten(ts):
        if isinstance(t, Tensor):
            return t.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def convert_none_checks(input_file: str, output_file: str) -> None:
    """Writes a source file with `is None` and `is not None` replaced by calls. Ligament's tracer
    does not need it."""
    operand = r"([\w.()\[\]\-+*/]+)"
    text = Path(input_file).read_text("utf-8")
    made = re.sub(operand + r" is not None", r"is_not_None(\1)", text)
    made = re.sub(operand + r" is None", r"is_None(\1)", made)
    head = "from autopipe.autopipe.utils import is_None, is_not_None\n\n" if made != text else ""
    Path(output_file).write_text(head + made, "utf-8")

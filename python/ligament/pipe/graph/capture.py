"""Runs torch.export on an unmodified model, with any structure of arguments and results.

A module that export cannot follow (packed sequences, branches on data) is replaced, for the time of
the trace, by one operation that represents the whole call, and export is tried again: the module
becomes an opaque block.
"""

from __future__ import annotations

import copy
import functools
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from ligament.errors import InvalidError, UnsupportedError
from ligament.pipe.graph import flatten_arguments

log = logging.getLogger("ligament.pipe")

Result = TypeVar("Result")
OPAQUE = "ligament_pipe::opaque"


class OpaqueCall(NamedTuple):
    """One call of an opaque module: its path, and the structure of arguments and results."""

    path: str
    arguments: flatten_arguments.Shape
    result: flatten_arguments.Shape


class Captured(NamedTuple):
    """An exported program and what is needed to call it like the model."""

    program: torch.export.ExportedProgram
    inputs: flatten_arguments.Flat
    output: flatten_arguments.Shape
    calls: list[OpaqueCall]
    opaque: dict[str, str]  # path -> why
    call: Arguments


class Arguments(NamedTuple):
    """The sample: one micro-batch, as the user passes it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Sample(NamedTuple):
    """The arguments and results of a module in the eager run."""

    arguments: flatten_arguments.Flat
    result: flatten_arguments.Flat


class Untraceable(Exception):
    """An operation that has to stay inside an opaque block, the module at `path`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path = path


class _Trial:
    """State of one attempt, read by the operation that represents an opaque module."""

    current: _Trial | None = None

    def __init__(self) -> None:
        self.calls: list[OpaqueCall] = []
        self.samples: list[_Sample] = []


_library = torch.library.Library("ligament_pipe", "DEF")  # type: ignore[no-untyped-call]
_library.define("opaque(Tensor[] tensors, int call) -> Tensor[]")  # type: ignore[no-untyped-call]


def _stand_in(tensors: list[torch.Tensor], call: int) -> list[torch.Tensor]:
    trial = _Trial.current
    if trial is None:
        raise UnsupportedError("an opaque block can only be run through its plan")
    # Empty tensors like the eager run's: the trace needs only shapes and dtypes.
    return [
        torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        for t in trial.samples[call].result.tensors
    ]


torch.library.register_fake(OPAQUE, _stand_in, lib=_library)


class Door(nn.Module):
    """Wraps the model so that export sees flat tensors going in and coming out."""

    def __init__(
        self,
        model: nn.Module,
        inputs: flatten_arguments.Shape,
        results: list[flatten_arguments.Shape],
    ) -> None:
        super().__init__()
        self.model = model
        self._take = functools.partial(flatten_arguments.unflatten, inputs)
        self._note = results.append  # an attribute set while tracing would be restored by export

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._take(tensors)
        flat = flatten_arguments.flatten(self.model(*args, **kwargs), "output", objects=True)
        self._note(flat.shape)
        return tuple(flat.tensors)


def capture(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    finish: Callable[[Captured], Result],
    say: Callable[[str], None] | None = None,
) -> Result:
    """Exports `model`, passes the program to `finish` and returns its result. Modules that export
    cannot trace, or that `finish` rejects with Untraceable, become opaque blocks, reported
    through `say`."""
    if not isinstance(model, nn.Module):
        raise InvalidError(
            f"the model has type {type(model).__name__}, which is not a torch.nn.Module"
        )
    call = Arguments(tuple(args), dict(kwargs))
    _check_signature(model, call)
    inputs = _named(flatten_arguments.flatten((call.args, call.kwargs)), model, call)
    opaque: dict[str, str] = {}
    while True:
        work = _structure_copy(model)
        try:
            with _opaque_calls(work, model, opaque, call) as trial:
                program, output = _export(work, inputs)
            result = finish(Captured(program, inputs, output, trial.calls, opaque, call))
            for path, why in opaque.items():
                (say or log.warning)(f"cannot export {path}, which becomes one opaque block: {why}")
            return result
        except InvalidError:
            raise
        except Untraceable as error:
            path, why = error.path, str(error)
        except Exception as error:  # noqa: BLE001 - export raises whatever the model's code made it raise
            path, why = _culprit(error, work), _first_line(error)
        path = _widen(path, opaque)
        if path == "":
            return finish(_whole(model, inputs, call, why, say))
        for inner in [p for p in opaque if p.startswith(path + ".")]:
            del opaque[inner]
        opaque[path] = why


def _export(
    work: nn.Module, inputs: flatten_arguments.Flat
) -> tuple[torch.export.ExportedProgram, flatten_arguments.Shape]:
    results: list[flatten_arguments.Shape] = []
    door = Door(work, inputs.shape, results)
    tensors = _distinct(inputs.tensors)
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        program = torch.export.export(door, tensors, strict=False)
    return program, results[-1]


def _distinct(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Export treats one object that is passed twice as one input; callers may pass two objects
    later."""
    seen: set[int] = set()
    found = []
    for tensor in tensors:
        again = id(tensor) in seen
        seen.add(id(tensor))
        found.append(
            tensor.detach().clone().requires_grad_(tensor.requires_grad) if again else tensor
        )
    return tuple(found)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the output of a failed attempt: export prints and logs the whole graph."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _structure_copy(model: nn.Module) -> nn.Module:
    """A copy of the modules that shares every tensor: export swaps attributes, and after a failure
    some of them (an LSTM's flat weights) stay fake. A model that cannot be copied is used
    directly.
    """
    memo: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}
    try:
        return copy.deepcopy(model, memo)
    except Exception:  # noqa: BLE001 - a lock, a file, a handle among the attributes
        return model


def _check_signature(model: nn.Module, call: Arguments) -> None:
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise InvalidError(
            f"{type(model).__name__}.forward{signature} cannot be called with these "
            f"arguments: {error}"
        ) from None


def _named(
    flat: flatten_arguments.Flat, model: nn.Module, call: Arguments
) -> flatten_arguments.Flat:
    """The inputs under the names that `forward` gives its parameters, for code and reports."""
    bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    names = list(bound.arguments)
    paths = []
    for path in flat.paths:
        _, _, rest = path.partition("[")
        position, _, tail = rest.partition("]")
        first = (
            names[int(position)]
            if path.startswith("0") and int(position) < len(names)
            else position
        )
        paths.append(first.strip("'\"") + tail)
    return flat._replace(paths=paths)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160]}" if text else type(error).__name__


def _culprit(error: BaseException, work: nn.Module) -> str:
    """The path of the innermost module that was running when export failed; "" for the model
    itself."""
    paths = {id(module): path for path, module in work.named_modules()}
    found = ""
    seen: BaseException | None = error
    while seen is not None:
        trace = seen.__traceback__
        while trace is not None:
            path = paths.get(id(trace.tb_frame.f_locals.get("self")))
            if path is not None and len(path) >= len(found):
                found = path
            trace = trace.tb_next
        seen = seen.__cause__ or seen.__context__
    return found


def _widen(path: str, opaque: dict[str, str]) -> str:
    """If a module that is already opaque fails again, its parent becomes opaque; so does the parent
    of a container, which is never called itself."""
    while path and path in opaque:
        path = _parent(path)
    return path


def _whole(
    model: nn.Module,
    inputs: flatten_arguments.Flat,
    call: Arguments,
    why: str,
    say: Callable[[str], None] | None,
) -> Captured:
    """The model as one opaque block, for what fails outside any of its modules."""
    outer = _Outer(model)
    try:
        with _opaque_calls(outer, outer, {"model": why}, call) as trial:
            program, output = _export(outer, inputs)
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # no memory, no forward, too deep: the message is clear
            raise
        raise InvalidError(  # of torch, mostly: shapes and dtypes that do not fit
            f"cannot run {type(model).__name__} with these arguments: {_first_line(error)}"
        ) from error
    (say or log.warning)(
        f"cannot export {type(model).__name__}, which becomes one opaque block: {why}"
    )
    calls = [c._replace(path="") for c in trial.calls]
    return Captured(program, inputs, output, calls, {"": why}, call)


class _Outer(nn.Module):
    """Gives the model itself a path, so that it can be opaque."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


@contextmanager
def _opaque_calls(
    work: nn.Module, model: nn.Module, opaque: dict[str, str], call: Arguments
) -> Iterator[_Trial]:
    """Replaces `forward` of the opaque modules of `work` by the standing-in operation."""
    trial = _Trial()
    if opaque:
        trial.samples, order = _observe(model, list(opaque), call)
        trial.calls = [
            OpaqueCall(path, s.arguments.shape, s.result.shape)
            for path, s in zip(order, trial.samples, strict=True)
        ]
    saved: list[nn.Module] = []
    counter = iter(range(len(trial.samples)))

    def replace(path: str) -> None:
        module = work.get_submodule(path)

        def forward(*args: Any, **kwargs: Any) -> Any:
            number = next(counter)
            flat = flatten_arguments.flatten((args, kwargs))
            made = torch.ops.ligament_pipe.opaque(flat.tensors, number)
            return flatten_arguments.unflatten(trial.samples[number].result.shape, made)

        module.forward = forward
        saved.append(module)

    _Trial.current = trial
    try:
        for path in opaque:
            replace(path)
        yield trial
    finally:
        _Trial.current = None
        for module in saved:
            del module.__dict__["forward"]


def _observe(
    model: nn.Module, paths: list[str], call: Arguments
) -> tuple[list[_Sample], list[str]]:
    """Runs the model once and records each call of the modules at `paths`, in order."""
    samples: list[_Sample] = []
    order: list[str] = []

    def record(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            try:
                given = flatten_arguments.flatten((tuple(args), dict(kwargs)), path)
                made = flatten_arguments.flatten(result, path)
            except InvalidError as error:
                raise Untraceable(_parent(path), str(error)) from None
            if not made.tensors:
                raise Untraceable(_parent(path), f"{path} returns no tensor")
            samples.append(_Sample(given, made))
            order.append(path)

        return hook

    handles = [
        model.get_submodule(p).register_forward_hook(record(p), with_kwargs=True) for p in paths
    ]
    try:
        with Restored(model), torch.no_grad():
            model(*call.args, **call.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    for path in paths:
        if path not in order:
            raise Untraceable(_parent(path), f"{path} is a container and never called")
    return samples, order


class Restored:
    """Restores buffers and random state after a run that the user did not request."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [(b, b.detach().clone()) for b in model.buffers()]
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def __enter__(self) -> Restored:
        return self

    def __exit__(self, *_: object) -> None:
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)

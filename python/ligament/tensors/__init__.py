"""All code that depends on frameworks: reads and fills their tensors, models and optimizers.

There is one file per framework, all with the same functions. None imports its framework unless the
user has done so, or requests results in it. The rest of the package accesses tensors only through
this module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .. import _core
from ..errors import InvalidError, MismatchError, UnsupportedError, missing
from ..tree import encode, set_plain
from . import (
    arrays,
    keras2_graph,
    keras_graph,
    of_jax,
    of_keras,
    of_keras2,
    of_tensorflow,
    of_torch,
    torch_gpu,
    torch_graph,
    torch_parts,
    torch_samples,
)
from .allocate import Fresh
from .dtypes import NAMES, can_cast, code_of, name_of
from .layers import Layers, Signature
from .of_dtensor import Shard, is_distributed, laid_out_like, shard
from .torch_snapshot import release_soon

__all__ = [
    "NAMES",
    "Collected",
    "Fresh",
    "Layers",
    "Named",
    "Shard",
    "Signature",
    "Target",
    "callback_class",
    "can_cast",
    "check_state",
    "code_of",
    "code_of_any",
    "collect",
    "copier",
    "current_stream",
    "device_number",
    "exchange",
    "filled",
    "framework",
    "for_optimizer",
    "framework_of",
    "graphs",
    "has_state",
    "hold",
    "identity",
    "is_distributed",
    "is_loaded",
    "is_loader_without_state",
    "is_model",
    "is_optimizer",
    "is_parameter",
    "is_tensor",
    "laid_out_like",
    "layer_names",
    "leaves",
    "name_of",
    "own_device",
    "pieces",
    "place",
    "release_soon",
    "rng_state",
    "samples",
    "set_rng_state",
    "set_state",
    "shard",
    "sharded_like",
    "start_at",
    "state_of",
    "stream_of",
    "takers",
    "target",
    "weights",
]

# The first adapter that claims a value gets it: a Keras layer may also be a torch module, and
# anything with a buffer or DLPack is an array to NumPy.
_ADAPTERS: tuple[tuple[str, ModuleType], ...] = (
    ("keras", of_keras),
    ("tf_keras", of_keras2),
    ("torch", of_torch),
    ("tensorflow", of_tensorflow),
    ("jax", of_jax),
    ("numpy", arrays),
)


class _ByType(dict[type, "ModuleType | None"]):
    """The adapter for tensors of each type."""

    def __missing__(self, kind: type) -> ModuleType | None:
        found = next(
            (module for name, module in _ADAPTERS if _has(name) and module.takes(kind)), None
        )
        self[kind] = found
        return found


def _has(name: str) -> bool:
    return name == "numpy" or sys.modules.get(name) is not None


_by_type = _ByType()


def is_tensor(value: Any) -> bool:
    """Whether the value is a tensor of a known framework, or can be read as one."""
    return _by_type[type(value)] is not None


def is_parameter(value: Any) -> bool:
    """Whether it is a parameter of a torch module, as opposed to a buffer."""
    return _by_type[type(value)] is of_torch and of_torch.is_parameter(value)


def _describe(value: Any, name: str, writable: bool) -> Any:
    """Called by the core for a tensor that it cannot read itself."""
    adapter = _by_type[type(value)]
    if adapter is None:
        kind = type(value)
        raise InvalidError(
            f"'{name}' has type {kind.__module__}.{kind.__qualname__}, which is not a tensor"
        )
    return adapter.describe(value, name, writable)


_core.set_describe(_describe)


def _on_gpu(values: list[Any]) -> list[int]:
    """Returns which of the values are in device memory that the core can access."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [i for i, value in enumerate(values) if getattr(value, "is_cuda", False)]


def lend(values: list[Any], writable: bool = False) -> list[Any]:
    """Returns the tensors, with a description in place of each one in device memory that the core
    can access: for calls of the core that read them there, or (`writable`) fill them."""
    places = _on_gpu(values)
    if not places:
        return values
    lent = list(values)
    (torch_gpu.lend if writable else torch_gpu.read)(lent, places)
    return lent


def exchange(push: Sequence[Any], pull: Sequence[Any], ordered: bool) -> Any:
    """The tensors of a mesh's request as an object with `push`, `pull`, `stream` and
    `filled(stream)`, if some are in device memory that the core can access; None if all are in host
    memory. `ordered`: ordered after the work queued on the framework's current stream."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    plain = _core.placed(push, pull)
    if plain is not None:
        return torch_gpu.Plain(push, pull, plain[1] if ordered or _captures(torch) else None)
    for value in (*push, *pull):
        if getattr(value, "is_cuda", False):
            return torch_gpu.Exchange(list(push), list(pull), ordered)
    return None


def _captures(torch: Any) -> bool:
    return bool(torch.cuda.is_current_stream_capturing())


def stream_of(stream: Any) -> Any:
    """A stream, given as an object of torch or as the number of a CUstream."""
    return torch_gpu.stream_of(stream)


def current_stream() -> Any:
    """torch's current CUDA stream."""
    return sys.modules["torch"].cuda.current_stream()


def device_number(device: Any) -> int:
    """The number of a CUDA device, which is given in any form that torch accepts."""
    framework("torch")
    return torch_gpu.number_of(device)


def own_device() -> int:
    """The CUDA device on which tensors are received by default; -1: none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return -1
    return torch_gpu.number_of("cuda")


def lendable(value: Any) -> bool:
    """Whether the core can fill the tensor in device memory."""
    return bool(_on_gpu([value])) and torch_gpu.lendable(value)


def snapshot(values: list[Any], reserve: float) -> tuple[list[Any], dict[int, bool]]:
    """A snapshot of tensors in device memory, described for the core: copies, if the device has
    room besides the reserve. Also returns for each tensor whether it has to be read before the
    caller continues, because it is the caller's own memory."""
    places = _on_gpu(values)
    if not places:
        return values, {}
    taken = list(values)
    return taken, torch_gpu.snapshot(taken, places, reserve)


def hold(batch: _core.Batch, values: list[Any]) -> bytes:
    """Turns the batch of these tensors into a snapshot where that needs no copy; returns which of
    them must be copied before the caller continues (1), because their owner may write to them."""
    flags = bytearray(len(values))
    by_adapter: dict[ModuleType | None, list[int]] = {}
    for i, value in enumerate(values):
        by_adapter.setdefault(_by_type[type(value)], []).append(i)
    for adapter, places in by_adapter.items():
        if adapter is not None:
            adapter.hold(batch, values, places, flags)
    return bytes(flags)


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """The tensors whose memory cannot be filled, each as an object with `code`, `shape` and
    `take(fresh)`."""
    found: dict[int, Any] = {}
    for kind in {type(values[i]) for i in places}:
        adapter = _by_type[kind]
        mine = [i for i in places if type(values[i]) is kind]
        if adapter is None:
            raise InvalidError(
                f"'{names[mine[0]]}' has type {kind.__qualname__}, which is not a tensor"
            )
        found.update(adapter.takers(names, values, mine))
    return found


def place(taker: Any) -> Any:
    """The memory of a taker's tensor in the form that a Batch accepts, if it can be filled after
    all; None if the tensor has to take over other memory."""
    find = getattr(taker, "place", None)
    return None if find is None else find()


def device_place(taker: Any) -> Any:
    """The memory of a taker's tensor on a device, for a Batch; None if the core cannot fill it."""
    value = getattr(taker, "value", None)
    return lend([value], True)[0] if lendable(value) else None


def copier(value: Any) -> Callable[[Fresh], None]:
    """The function that copies values of another dtype into a tensor."""
    adapter = _by_type[type(value)]
    if adapter is None or not hasattr(adapter, "cast"):
        raise UnsupportedError(f"cannot cast into tensors of type {type(value).__qualname__}")
    return lambda fresh: adapter.cast(value, fresh)


def filled(values: Sequence[Any]) -> None:
    """Notifies frameworks that these tensors were written."""
    if _has("torch"):
        of_torch.written([one for one in values if _by_type[type(one)] is of_torch])


def code_of_any(dtype: Any) -> int:
    """The number of a dtype given as a name, a torch dtype, or anything that NumPy accepts."""
    if isinstance(dtype, str) and dtype in NAMES:
        return NAMES[dtype]
    if _has("torch") and isinstance(dtype, sys.modules["torch"].dtype):
        return of_torch.code_of(dtype)
    return arrays.code_of(dtype)


def framework(name: str | None) -> ModuleType:
    """The adapter that creates results: "numpy" (None), "torch", "tensorflow" or "jax"."""
    table = {"numpy": arrays, "torch": of_torch, "tensorflow": of_tensorflow, "jax": of_jax}
    if name is None:
        return arrays
    if name not in table:
        known = ", ".join(sorted(table))
        raise InvalidError(f"unknown framework {name!r}: expected one of {known}")
    try:
        table[name].need()
    except ImportError as error:
        raise missing(error, f"framework={name!r}") from None
    return table[name]


Done = Callable[[list[int], dict[int, Any]], None]


def is_loaded(name: str) -> bool:
    """Whether the framework has been imported."""
    return _has(name)


def framework_of(value: Any) -> str:
    """The name under which `framework` creates tensors of this kind."""
    adapter = _by_type[type(value)]
    if adapter is of_keras:
        return framework_of(value.value)
    return next((name for name, module in _ADAPTERS if module is adapter), "numpy")


# --- models -------------------------------------------------------------------------------------


@dataclass
class Collected:
    """The named tensors of a model or tree, in order; `structure` describes how to rebuild the
    tree."""

    names: list[str]
    values: list[Any]
    structure: str = ""


@dataclass
class Target(Collected):
    """What is filled. `done` is called after all bytes have been read, with the positions that were
    filled and with those `takers` that were not filled in place; `plain` gets the decoded tree,
    with the filled tensors, for its plain values; `tree`, if set, gets the whole tree instead."""

    done: Done = field(default=lambda filled, takers: None)
    plain: Callable[[Any], None] | None = None
    tree: Callable[[Any], None] | None = None


def _model_adapter(model: Any) -> ModuleType | None:
    found = (
        a for name, a in _ADAPTERS if _has(name) and hasattr(a, "is_model") and a.is_model(model)
    )
    return next(found, None)


def is_model(model: Any) -> bool:
    """Whether it is a model of a framework, filled in place tensor by tensor."""
    return _model_adapter(model) is not None


def is_optimizer(part: Any) -> bool:
    """Whether it is an optimizer of a framework, or a list of them."""
    if isinstance(part, (list, tuple)):
        return bool(part) and all(map(is_optimizer, part))
    return (_has("torch") and of_torch.is_optimizer(part)) or _keras_of(part) is not None


def _keras_of(part: Any) -> Any:
    """The adapter of the Keras version of an optimizer; None for anything else."""
    table = (("keras", of_keras), ("tf_keras", of_keras2))
    return next((one for name, one in table if _has(name) and one.is_optimizer(part)), None)


def is_loader_without_state(part: Any) -> bool:
    """Whether it is a torch data loader that cannot report its position in the epoch."""
    data = sys.modules.get("torch.utils.data")
    return (
        data is not None and isinstance(part, data.DataLoader) and not hasattr(part, "state_dict")
    )


def graphs(
    model: Any,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
    signature: Signature | None,
) -> list[Layers]:
    """The graphs of a model, the one requested by `args` first. The names that `collect` gives a
    layer's tensors start with the layer's name."""
    adapter = _model_adapter(model)
    if adapter is of_keras:
        return [keras_graph.graph(model, signature)]
    if adapter is of_keras2:
        return [keras2_graph.graph(model, signature)]
    if adapter is of_torch:
        return torch_graph.graphs(model, args, kwargs, signature)
    raise InvalidError(
        f"an object of type {type(model).__qualname__} is not a Keras or torch model: build its "
        "graph by hand with ligament.Graph(layers, edges)"
    )


def layer_names(model: Any, paths: list[str]) -> list[str]:
    """The layers of a graph by the framework's names, without plain operations."""
    if _model_adapter(model) is of_keras:
        return keras_graph.layer_names(model, paths)
    if _model_adapter(model) is of_keras2:
        return keras2_graph.layer_names(model, paths)
    return [path for path in paths if not path.endswith("()")]


def state_of(model: Any) -> Any:
    """The tree of a model, of an optimizer, of an object with `state_dict` or a list of such
    objects, or the tree itself."""
    if _is_list_of_states(model):
        return [state_of(one) for one in model]
    adapter = _model_adapter(model)
    if adapter is not None:
        return adapter.state(model)
    keras = _keras_of(model)
    if keras is not None:
        return keras.optimizer_state(model)
    if callable(getattr(model, "state_dict", None)) and not isinstance(model, dict):
        return model.state_dict()
    return model


def stages(part: Any) -> list[Any]:
    """The pipeline stages that a part of a checkpoint is, or contains; empty for anything else."""
    return torch_parts.stages(part) if _has("torch") else []


def pieces(parts: dict[str, Any]) -> dict[str, Any]:
    """The states of the parts of a checkpoint of which other ranks have other pieces: pipeline
    stages, under the original model's names, and their optimizers, by parameter name."""
    return torch_parts.pieces(parts) if _has("torch") else {}


def samples(parts: dict[str, Any], states: dict[str, Any]) -> dict[str, list[float]]:
    """A few values of the parameters of the parts of a checkpoint, which show whether ranks hold
    replicas; `states` has the tree of each part."""
    return torch_samples.samples(parts, states) if _has("torch") else {}


def for_optimizer(part: Any, state: Any, parts: dict[str, Any]) -> Any:
    """The state that `pieces` returned for an optimizer or a list of them, in the form that this
    one accepts; `parts` has the models whose parameters it trains. Any other state is returned
    unchanged."""
    if not _has("torch") or not is_optimizer(part):
        return state
    if isinstance(part, (list, tuple)):
        each = [state] * len(part) if torch_parts.is_by_name(state) else state
        if not isinstance(each, list) or len(each) != len(part):  # check_state raises
            return state
        return [for_optimizer(one, of, parts) for one, of in zip(part, each, strict=True)]
    whole = [part for part in parts.values() if of_torch.is_model(part) and not stages(part)]
    pieces_of = [one for part in parts.values() for one in stages(part)]
    return torch_parts.for_optimizer(part, state, whole, pieces_of)


def _is_list_of_states(part: Any) -> bool:
    return isinstance(part, (list, tuple)) and has_state(part)


def has_state(model: Any) -> bool:
    """Whether its state is read and set as a whole: optimizers, schedules, loaders, and lists of
    them."""
    if isinstance(model, (list, tuple)):
        return bool(model) and all(map(_has_own_state, model))
    return _has_own_state(model)


def _has_own_state(model: Any) -> bool:
    if _model_adapter(model) is not None or isinstance(model, (dict, list, tuple)):
        return False
    return _keras_of(model) is not None or callable(getattr(model, "state_dict", None))


def collect(model: Any, with_frameworks: bool = False) -> Collected:
    """The tensors of a model, of an object with `state_dict`, or of a tree."""
    marked = with_frameworks or has_state(model)
    return Collected(*encode(state_of(model), is_tensor, framework_of if marked else None, _parts))


def _parts(value: Any) -> dict[Any, Any] | None:
    return of_jax.parts(value) if _has("jax") else None


def like(template: Any, saved: Any, keep: bool, ignore: bool) -> Any:
    """A new tree with the structure of `template` and the values of `saved`, for tensors that
    cannot be filled."""
    if not _has("jax"):
        raise InvalidError("`like` is for JAX trees; use into= for others")
    return of_jax.like(template, saved, keep, ignore)


def target(model: Any) -> Target:
    """The tensors of a model to be filled, by the names that `collect` gives them."""
    if has_state(model):
        return Target([], [], tree=set_state(model))
    found = collect(model)
    target = Target(found.names, found.values, found.structure)
    adapter = _model_adapter(model)
    if adapter is not None:
        target.done, target.plain = adapter.finisher(model, found.names, found.values)
    else:
        _refuse_meta(found)
        target.done = _fill_done(found.values)
        target.plain = lambda saved: set_plain(model, saved)
    return target


def _refuse_meta(found: Collected) -> None:
    """A module gets new tensors for those without memory; in a tree nothing could receive them."""
    for name, value in zip(found.names, found.values, strict=True):
        if _by_type[type(value)] is of_torch and value.is_meta:
            raise InvalidError(
                f"'{name}' is on the meta device and has no memory to fill (load without `into`)"
            )


def _fill_done(values: list[Any]) -> Done:
    def done(filled: list[int], takers: dict[int, Any]) -> None:
        if _has("torch"):
            of_torch.written([values[i] for i in filled if _by_type[type(values[i])] is of_torch])

    return done


def check_state(model: Any, state: Any) -> None:
    """Raises if an optimizer cannot accept this state; other objects cannot be checked."""
    if _is_list_of_states(model):
        if not isinstance(state, list) or len(state) != len(model):
            many = f"a list of {len(state)}" if isinstance(state, list) else "not a list"
            raise MismatchError(
                f"a list of {len(model)} cannot be filled: the stored value is {many}"
            )
        for one, of in zip(model, state, strict=True):
            check_state(one, of)
        return
    if _has("torch") and of_torch.is_optimizer(model):
        of_torch.check_optimizer(model, state)
    elif (keras := _keras_of(model)) is not None:
        keras.check_optimizer(model, state)


def set_state(model: Any) -> Callable[[Any], None]:
    """The function that sets the state of an object, or of a list of them: exact for torch
    optimizers, which would cast."""
    if _is_list_of_states(model):
        each = [set_state(one) for one in model]

        def set_all(states: Any) -> None:
            for set_one, state in zip(each, states, strict=True):
                set_one(state)

        return set_all
    if _has("torch") and of_torch.is_optimizer(model):
        return lambda state: of_torch.set_optimizer(model, state)
    keras = _keras_of(model)
    if keras is not None:
        return lambda state: keras.set_optimizer(model, state)
    if not callable(getattr(model, "load_state_dict", None)):
        raise InvalidError(f"an object of type {type(model).__qualname__} has no load_state_dict")
    return lambda state: model.load_state_dict(state)


def leaves(tree: Any) -> Iterator[Any]:
    """The values in the dicts, lists and tuples of a tree."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


def identity(value: Any) -> tuple[Any, ...]:
    """Equal for two tensors with the same memory."""
    if _by_type[type(value)] is of_torch:
        return of_torch.identity(value)
    return (id(value),)


def sharded_like(part: Any, state: Any) -> dict[str, Any]:
    """The tensors of a saved state (a tree with names in place of tensors) that are distributed in
    `part`, each with a tensor of the same layout."""
    if not _has("torch") or is_model(part):
        return {}
    found: dict[str, Any] = {}
    _match(state_of(part), state, found)
    pairs = zip(part, state, strict=False) if _is_list_of_states(part) else [(part, state)]
    for one, of in pairs:
        if of_torch.is_optimizer(one) and isinstance(of, dict):
            of_torch.match_optimizer(one, of, found)
    return {name: value for name, value in found.items() if is_distributed(value)}


def _match(mine: Any, saved: Any, found: dict[str, Any]) -> None:
    if isinstance(mine, dict) and isinstance(saved, dict):
        for key in saved:
            if key in mine:
                _match(mine[key], saved[key], found)
    elif isinstance(mine, (list, tuple)) and isinstance(saved, (list, tuple)):
        for one, other in zip(mine, saved, strict=False):
            _match(one, other, found)
    elif isinstance(saved, Named) and is_distributed(mine):
        found[saved.name] = mine


@dataclass(frozen=True)
class Named:
    """A placeholder for a tensor in a tree that is decoded before its tensors are read."""

    name: str


def weights(
    model: Any,
    optimizer: Any,
    include_optimizer: bool,
    build: bool,
    stored: list[str] | None = None,
) -> Target:
    """Tensors for `save_weights` and `load_weights`: layers, their weights, then the optimizer.
    `stored` are the names to load, if known."""
    adapter = _model_adapter(model)
    if adapter is None:
        raise InvalidError(
            f"an object of type {type(model).__qualname__} is not a model of a supported framework"
        )
    names, values, done = adapter.weights(model, optimizer, include_optimizer, build, stored)
    return Target(names, values, done=done)


def callback_class() -> type:
    """A Callback for models of Keras 2 and 3; imports Keras."""
    try:
        base = of_keras.callback_class()
    except ModuleNotFoundError as error:
        try:
            base = of_keras2.callback_class()
        except ModuleNotFoundError:
            raise missing(error, "CheckpointCallback") from None
    return type("Callback", (of_keras2.CallbackHooks, base), {})


def start_at(model: Any, epoch: int | None) -> None:
    """Makes training of this Keras model start at this epoch; None: at the epoch passed to
    `fit`."""
    adapter = _model_adapter(model)
    if adapter in (of_keras, of_keras2):
        adapter.start_at(model, epoch)


# --- random state -------------------------------------------------------------------------------


def rng_state() -> dict[str, Any]:
    """The random states of Python, NumPy and the imported frameworks."""
    state: dict[str, Any] = {}
    for name, adapter in _ADAPTERS:
        if _has(name) and hasattr(adapter, "rng_state"):
            state[name] = adapter.rng_state()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Restores a result of `rng_state`."""
    for name, adapter in _ADAPTERS:
        if _has(name) and name in state:
            adapter.set_rng_state(state[name])

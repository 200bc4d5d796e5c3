"""torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import _core
from ..errors import InvalidError, MismatchError, UnsupportedError
from .allocate import Fresh
from .dtypes import BYTES, NAMES
from .torch_snapshot import lazy_clones

# Elements narrower than a byte have no fixed layout in torch, apart from the packed fp4.
_NARROW = ("int4", "uint4", "int2", "uint2")
_tables: dict[str, dict[Any, Any]] = {}
Done = Callable[[list[int], dict[int, Any]], None]
_WRAPPERS = {
    "DistributedDataParallel": "module.",
    "DataParallel": "module.",
    "OptimizedModule": "_orig_mod.",
}

# torch has no read-only tensors: views of a mapping are private, and writing to them changes no
# file.
PRIVATE_VIEWS = True


def need() -> Any:
    """torch, imported if necessary."""
    import torch

    return torch


def _dtypes() -> dict[Any, int]:
    if "codes" not in _tables:
        torch = sys.modules["torch"]
        found = {name: getattr(torch, name, None) for name in NAMES if name not in _NARROW}
        codes = {
            dtype: NAMES[name] for name, dtype in found.items() if isinstance(dtype, torch.dtype)
        }
        _tables["dtypes"] = {code: dtype for dtype, code in codes.items()}
        _tables["codes"] = codes  # last: another thread asks for it first
    return _tables["codes"]


def dtype_of(code: int) -> Any:
    """The torch dtype of a number."""
    _dtypes()
    if code not in _tables["dtypes"]:
        from .dtypes import name_of

        raise UnsupportedError(f"torch has no dtype {name_of(code)}")
    return _tables["dtypes"][code]


def code_of(dtype: Any) -> int:
    """The number of a torch dtype."""
    code = _dtypes().get(dtype)
    if code is None:
        raise UnsupportedError(f"unknown dtype {dtype}")
    return code


def codes() -> dict[Any, int]:
    """The number of each dtype that torch has."""
    return _dtypes()


def takes(kind: type) -> bool:
    """Whether this adapter reads tensors of this type."""
    return issubclass(kind, sys.modules["torch"].Tensor)


def is_parameter(value: Any) -> bool:
    """Whether an optimizer changes it and data-parallel training keeps it equal."""
    return isinstance(value, sys.modules["torch"].nn.Parameter)


# --- reading ------------------------------------------------------------------------------------


def _const_address() -> Callable[[Any], int]:
    """The address of a tensor, for reading: data_ptr() of a copy-on-write tensor ends the
    sharing."""
    torch = sys.modules["torch"]
    if hasattr(torch.Tensor, "const_data_ptr"):
        found: Callable[[Any], int] = torch.Tensor.const_data_ptr
        return found
    storage = getattr(torch._C, "_data_address", None)
    if storage is None:
        pointer: Callable[[Any], int] = torch.Tensor.data_ptr
        return pointer
    return lambda value: int(storage(value)) + value.storage_offset() * value.element_size()


def _register() -> None:
    torch = sys.modules["torch"]
    tensor = torch.Tensor
    reader = _core.Reader(
        _dtypes(),
        _const_address(),
        tensor.data_ptr,
        tensor.is_contiguous,
        tensor.stride,
        lambda value: value.is_neg() or value.is_conj(),
        "is_cpu",
        tensor.numel,
        getattr(torch._C, "_increment_version", torch.autograd.graph.increment_version),
        getattr(tensor, "__dlpack_c_exchange_api__", None),
    )
    for kind in (tensor, torch.nn.Parameter):
        _core.set_reader(kind, reader)
    _tables["registered"] = dict.fromkeys((tensor, torch.nn.Parameter), reader)


def registered() -> Any:
    """The types that the core reads itself."""
    if "registered" not in _tables:
        _register()
    return _tables["registered"]


def describe(value: Any, name: str, writable: bool) -> Any:
    """The tensor in a form that the core can read."""
    torch = sys.modules["torch"]
    if "registered" not in _tables:
        _register()
        plain = value.is_cpu and not (value.is_neg() or value.is_conj())
        if plain and type(value) in _tables["registered"]:
            return value
    _refuse(value, name)
    if value.numel() == 0:
        return (value, 0, _dtypes()[value.dtype], tuple(value.shape), None)
    if type(value) not in _tables["registered"]:
        if torch.utils._python_dispatch.is_traceable_wrapper_subclass(value):
            raise UnsupportedError(
                f"'{name}' is a {type(value).__qualname__}, which stores its values in "
                "other tensors"
            )
        return value.detach().as_subclass(torch.Tensor)
    if writable and not value.is_cpu:
        raise UnsupportedError(
            f"'{name}' is on {value.device}, which cannot be filled directly (pass a "
            "tensor on the CPU and copy it)"
        )
    if writable:
        raise UnsupportedError(f"'{name}' is a view that computes its values (conj, neg)")
    return _to_host(value.detach()).resolve_conj().resolve_neg()


_PINNED_BYTES = 1 << 20  # below this a block of pinned memory costs more than it saves


def _to_host(value: Any) -> Any:
    """A copy in host memory. torch keeps pinned blocks for reuse, so a training run allocates pages
    once."""
    torch = sys.modules["torch"]
    if value.is_cuda and value.numel() * value.element_size() >= _PINNED_BYTES:
        try:
            copy = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        except RuntimeError:  # no more memory may be pinned
            return value.cpu()
        return copy.copy_(value)
    return value.cpu()


def _refuse(value: Any, name: str) -> None:
    torch = sys.modules["torch"]
    if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
        raise InvalidError(f"'{name}' is not initialized (run the model once first)")
    if value.is_nested:
        raise UnsupportedError(f"'{name}' is a nested tensor (store its components)")
    if value.is_meta:
        raise InvalidError(f"'{name}' is on the meta device and has no values")
    if value.is_quantized:
        raise UnsupportedError(
            f"'{name}' is quantised with dtype {value.dtype} (store its int_repr(), "
            "scale and zero point)"
        )
    if value.layout is not torch.strided:
        raise UnsupportedError(
            f"'{name}' has layout {value.layout} (store its indices and values, or to_dense())"
        )
    if value.dtype not in _dtypes():
        raise UnsupportedError(f"'{name}' has dtype {value.dtype}, which cannot be stored")


_COPIED_BYTES = 2048  # below this a copy costs less than a clone


def hold(batch: _core.Batch, values: list[Any], places: list[int], flags: bytearray) -> None:
    """Copy-on-write clones, where they are safe."""
    address = _const_address()
    addresses, sizes = batch.addresses(), batch.sizes()
    mine = [i for i in places if values[i].is_cpu]  # the others are copies, or read at once
    for i in mine:
        flags[i] = 1
    large = [i for i in mine if sizes[i] >= _COPIED_BYTES]
    for i, held in zip(large, lazy_clones([values[i] for i in large]), strict=True):
        if held is not None and address(held) == addresses[i]:
            batch.hold(i, held)
            flags[i] = 0


# --- filling ------------------------------------------------------------------------------------


class _Taker:
    """Copies values from host memory into a tensor that is not in host memory."""

    def __init__(self, value: Any, name: str) -> None:
        if value.dtype not in _dtypes():
            raise UnsupportedError(f"'{name}' has dtype {value.dtype}, which cannot be stored")
        self.value, self.code, self.shape = value, _dtypes()[value.dtype], tuple(value.shape)
        self.mapped: bool = value.is_meta  # it has no memory yet: a mapping will do
        self.taken: Any = None

    def take(self, fresh: Fresh) -> None:
        torch = sys.modules["torch"]
        tensor = _from_fresh(fresh)
        if self.mapped:  # the model's finisher puts it into its place
            self.taken = tensor
            return
        with torch.no_grad():
            self.value.copy_(tensor)


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """The tensors that are not in host memory."""
    return {i: _Taker(values[i], names[i]) for i in places if not values[i].is_cpu}


def cast(value: Any, fresh: Fresh) -> None:
    """Copies values of a different dtype."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        value.copy_(_from_fresh(fresh))


def written(values: list[Any]) -> None:
    """Notifies autograd that the tensors were written without its knowledge."""
    if values:
        sys.modules["torch"].autograd.graph.increment_version(values)


def _from_fresh(fresh: Fresh) -> Any:
    torch = sys.modules["torch"]
    dtype = dtype_of(fresh.code)
    if fresh.bytes == 0:
        return torch.empty(fresh.shape, dtype=dtype)
    if fresh.memory.device >= 0:
        made = fresh.memory.tensor(registered()[torch.Tensor], fresh.code, fresh.shape)
        if made is not None:
            return made
        # As bytes: old versions know fewer dtypes by DLPack.
        capsule = fresh.memory.dlpack(NAMES["uint8"], (fresh.bytes,))
        return torch.utils.dlpack.from_dlpack(capsule).view(dtype).view(fresh.shape)
    return torch.frombuffer(fresh.memory, dtype=dtype, count=fresh.bytes // BYTES[fresh.code]).view(
        fresh.shape
    )


def empty(code: int, shape: tuple[int, ...], device: Any = None) -> Any:
    """Memory for a result: on a GPU if the result is requested there, because the core fills it
    there."""
    torch = sys.modules["torch"]
    if device is None or torch.device(device).type != "cuda":
        device = "cpu"
    return torch.empty(shape, dtype=dtype_of(code), device=device)


def result(memory: Any, device: Any) -> Any:
    """The result of `empty`, or a Fresh over a mapping, as a tensor for the user."""
    tensor = _from_fresh(memory) if isinstance(memory, Fresh) else memory
    return tensor if device is None else tensor.to(device)


# --- models -------------------------------------------------------------------------------------


def is_model(model: Any) -> bool:
    """Whether it is a module."""
    torch = sys.modules["torch"]
    return hasattr(torch, "nn") and isinstance(model, torch.nn.Module)


def state(model: Any) -> dict[str, Any]:
    """The module's state_dict, by the names without wrappers."""
    states = model.state_dict(keep_vars=True)
    prefixes = []
    for path, module in model.named_modules():
        word = _WRAPPERS.get(type(module).__name__)
        if word is not None and type(module).__module__.startswith("torch."):
            prefixes.append((f"{path}." if path else "") + word)
    if not prefixes:
        return dict(states)
    return {_unwrapped(key, prefixes): value for key, value in states.items()}


def _unwrapped(key: str, prefixes: list[str]) -> str:
    for prefix in reversed(prefixes):  # the innermost first, so that the outer paths still fit
        if key.startswith(prefix):
            word = prefix.rsplit(".", 2)[-2]
            key = prefix[: -len(word) - 1] + key[len(prefix) :]
    return key


def finisher(model: Any, names: list[str], values: list[Any]) -> tuple[Done, Callable[[Any], None]]:
    """The function to call when the values have been read: for the tensors, and for the plain
    values among them. `names` are those of `state`, or below one that holds a tree."""
    own = {id(value) for value in (*model.parameters(), *model.buffers())}
    known = dict(zip(state(model), model.state_dict(keep_vars=True), strict=True))
    keys = [known.get(name) for name in names]

    def done(filled: list[int], takers: dict[int, Any]) -> None:
        written([values[i] for i in filled if not values[i].is_meta])
        meta = {keys[i]: takers[i] for i in filled if keys[i] and i in takers and takers[i].mapped}
        if meta:
            mine = {id(taker.value): taker for taker in meta.values()}
            pairs = zip(keys, values, strict=True)  # tied ones too, of which one name was filled
            _assign(model, {key: mine[id(v)] for key, v in pairs if key and id(v) in mine})
        # A state_dict hook may return tensors that are not the module's own. Those in the tree of
        # an extra state are passed on with it, to `plain`.
        foreign = {
            keys[i]: values[i]
            for i in filled
            if keys[i] and id(values[i]) not in own and keys[i] not in meta
        }
        if foreign:
            model.load_state_dict(foreign, strict=False)

    def plain(tree: Any) -> None:
        saved = tree if isinstance(tree, dict) else {}
        stored = {key: saved[name] for name, key in known.items() if name in saved}
        for path, module in model.named_modules():
            key = f"{path}._extra_state" if path else "_extra_state"
            if key in stored:
                module.set_extra_state(stored[key])

    return done, plain


def _assign(model: Any, meta: dict[str, _Taker]) -> None:
    """Assigns memory to parameters that had none; tied ones stay tied."""
    torch = sys.modules["torch"]
    made: dict[int, Any] = {}
    for taker in meta.values():
        tensor = taker.taken
        if isinstance(taker.value, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, requires_grad=taker.value.requires_grad)
        made.setdefault(id(taker.value), tensor)
    model.load_state_dict(
        {key: made[id(t.value)] for key, t in meta.items()}, strict=False, assign=True
    )


# --- optimizers ---------------------------------------------------------------------------------


def is_optimizer(model: Any) -> bool:
    """Whether it is a torch optimizer."""
    torch = sys.modules["torch"]
    return hasattr(torch, "optim") and isinstance(model, torch.optim.Optimizer)


def check_optimizer(optimizer: Any, state: Any) -> None:
    """Raises if the optimizer cannot accept this state."""
    if not isinstance(state, dict) or not {"state", "param_groups"} <= set(state):
        raise MismatchError("the stored value is not the state of a torch optimizer")
    groups, saved = optimizer.param_groups, state["param_groups"]
    if len(groups) != len(saved):
        raise MismatchError(
            f"the optimizer has {len(groups)} parameter groups, but the stored one has {len(saved)}"
        )
    for i, (group, other) in enumerate(zip(groups, saved, strict=True)):
        if len(group["params"]) != len(other["params"]):
            raise MismatchError(
                f"parameter group {i} has {len(group['params'])} parameters, but the "
                f"stored one has {len(other['params'])}"
            )


def set_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Like load_state_dict, but every value is set unchanged: torch would cast it to its
    parameter's dtype."""
    check_optimizer(optimizer, state)
    if type(optimizer).__module__.startswith("accelerate."):  # it only looks like an optimizer
        optimizer = optimizer.optimizer
    groups, saved = optimizer.param_groups, state["param_groups"]
    params = {
        number: param
        for group, other in zip(groups, saved, strict=True)
        for number, param in zip(other["params"], group["params"], strict=True)
    }
    states: Any = type(optimizer.state)(dict) if hasattr(optimizer.state, "default_factory") else {}
    for number, values in state["state"].items():
        param = params.get(number, number)
        states[param] = _on_device(param, values)
    merged = [
        {**other, "params": group["params"]} for group, other in zip(groups, saved, strict=True)
    ]
    for group, other in zip(merged, groups, strict=True):
        if "param_names" in other:
            group["param_names"] = other["param_names"]
    optimizer.__setstate__({"state": states, "param_groups": merged})


def _on_device(param: Any, values: Any) -> Any:
    torch = sys.modules["torch"]
    if isinstance(values, dict):
        return {
            key: value if key == "step" else _on_device(param, value)
            for key, value in values.items()
        }
    if isinstance(values, torch.Tensor) and isinstance(param, torch.Tensor):
        return values.to(param.device)
    return values


def build_optimizer(optimizer: Any, wanted: list[Any]) -> None:
    """Creates the state of these parameters, as a step with zero gradients and rates does."""
    torch = sys.modules["torch"]
    if not wanted:
        return
    params = [param for group in optimizer.param_groups for param in group["params"]]
    grads = [p.grad for p in params]
    rates = [group.get("lr") for group in optimizer.param_groups]
    for param in params:
        param.grad = None
    for param in wanted:
        param.grad = torch.zeros_like(param)
    for group in optimizer.param_groups:
        if "lr" in group:
            group["lr"] = (
                torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
            )
    try:
        optimizer.step(closure=None)
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if "lr" in group:
                group["lr"] = rate
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad


class _Weights:
    """Tensors in order, and how plain numbers among them are restored."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.values: list[Any] = []
        self.put_back: list[Callable[[], None]] = []

    def add(self, name: str, value: Any) -> None:
        self.names.append(name)
        self.values.append(value)

    def add_state(self, name: str, holder: Any, key: Any) -> None:
        """Adds tensors unchanged and numbers as tensors of a fixed size; other values (None, str)
        belong to the code."""
        torch = sys.modules["torch"]
        value = holder[key]
        if isinstance(value, torch.Tensor):
            self.add(name, value)
        elif isinstance(value, (bool, int, float)):
            kind = (
                torch.bool
                if isinstance(value, bool)
                else torch.int64
                if isinstance(value, int)
                else torch.float64
            )
            tensor = torch.tensor(value, dtype=kind)
            self.add(name, tensor)
            self.put_back.append(lambda: holder.__setitem__(key, tensor.item()))
        elif isinstance(value, (list, tuple)):
            items = list(value)
            for i in range(len(items)):
                self.add_state(f"{name}.{i}", items, i)
            self.put_back.append(lambda: holder.__setitem__(key, type(value)(items)))


def weights(
    model: Any,
    optimizer: Any,
    include_optimizer: bool,
    build: bool,
    stored: list[str] | None,
) -> tuple[list[str], list[Any], Done]:
    """The module's tensors, then the optimizer's: its state by parameter, then the numbers of its
    groups."""
    torch = sys.modules["torch"]
    states = state(model)
    all_values = list(states.values())
    found = _Weights()
    places = [i for i, value in enumerate(all_values) if isinstance(value, torch.Tensor)]
    for name, value in states.items():
        if isinstance(value, torch.Tensor):
            found.add(name, value)
    if optimizer is not None and include_optimizer:
        _add_optimizer(optimizer, found, build, stored)
    landed, _ = finisher(model, list(states), all_values)

    def done(filled: list[int], takers: dict[int, Any]) -> None:
        landed(
            [places[i] for i in filled if i < len(places)],
            {places[i]: t for i, t in takers.items() if i < len(places)},
        )
        written([found.values[i] for i in filled if i >= len(places)])
        for put_back in found.put_back:
            put_back()

    return found.names, found.values, done


def _add_optimizer(optimizer: Any, found: _Weights, build: bool, stored: list[str] | None) -> None:
    """A parameter has a state once it had a gradient: if it is known which parameters had one, the
    others have no state afterwards."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    known = range(len(params)) if stored is None else _numbers(stored)
    lacking = [p for i, p in enumerate(params) if i in known and not optimizer.state.get(p)]
    if build and stored is not None:
        build_optimizer(optimizer, lacking)
    elif build and not optimizer.state:
        build_optimizer(optimizer, [p for p in lacking if p.requires_grad])
    for i, param in enumerate(params):
        if i not in known:
            found.put_back.append(partial(optimizer.state.pop, param, None))
            continue
        for key in optimizer.state.get(param, {}):
            found.add_state(f"optimizer.state.{i}.{key}", optimizer.state[param], key)
    for i, group in enumerate(optimizer.param_groups):
        for key in group:
            if key not in ("params", "param_names"):
                found.add_state(f"optimizer.param_groups.{i}.{key}", group, key)


def _numbers(stored: list[str]) -> set[int]:
    """The numbers of the parameters that have a state."""
    parts = [name.split(".") for name in stored if name.startswith("optimizer.state.")]
    return {int(part[2]) for part in parts if len(part) > 3 and part[2].isdigit()}


def match_optimizer(optimizer: Any, state: Any, found: dict[str, Any]) -> None:
    """Adds the parameter for each tensor of a saved state that has its parameter's size: an
    optimizer that has not stepped yet has no state that shows it."""
    groups, saved = optimizer.param_groups, state.get("param_groups", [])
    numbers = [n for other in saved for n in other.get("params", [])]
    params = [param for group in groups for param in group["params"]]
    for number, param in zip(numbers, params, strict=False):
        values = state.get("state", {}).get(number, {})
        for key, value in values.items() if isinstance(values, dict) else ():
            if key != "step" and hasattr(value, "name"):
                found.setdefault(value.name, param)


def identity(value: Any) -> tuple[Any, ...]:
    """Equal for two tensors with the same memory."""
    if value.numel() == 0 or value.is_meta:
        return (id(value),)
    return (_const_address()(value), value.dtype, tuple(value.shape), value.stride())


# --- random state -------------------------------------------------------------------------------


def rng_state() -> dict[str, Any]:
    """The generators of the CPU and of the GPUs in use."""
    torch = sys.modules["torch"]
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Restores a result of `rng_state`."""
    torch = sys.modules["torch"]
    torch.set_rng_state(torch.as_tensor(state["cpu"], dtype=torch.uint8))
    if "cuda" in state and torch.cuda.is_available():
        for device, one in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(torch.as_tensor(one), device)

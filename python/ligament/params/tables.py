"""Converts the table arguments of a server into the C library's form. No handles here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidError

LENGTH_MOST = 2**31
_OPTIMIZERS = ("none", "sgd", "adagrad", "rowwise_adagrad", "adam")
_RATES = {"none": 0.0, "sgd": 0.01, "adagrad": 0.01, "rowwise_adagrad": 0.01, "adam": 0.001}
_EPSILONS = {"adagrad": 1e-10, "rowwise_adagrad": 1e-10, "adam": 1e-8}
_INITS: dict[str, tuple[int, tuple[tuple[str, float], ...]]] = {
    "zeros": (0, ()),
    "constant": (1, (("value", 0.0),)),
    "uniform": (2, (("low", 0.0), ("high", 1.0))),
    "normal": (3, (("mean", 0.0), ("std", 1.0))),
}
SCHEMES = ("naive", "preloc", "pool", "local")
_DISTRIBUTIONS = ("uniform", "log-uniform")

Optimizer = tuple[int, float, float, float, float, float]
Init = tuple[int, float, float, int]


class Table(NamedTuple):
    """One table, in the order of `_core.Params`."""

    name: str | None
    keys: int
    length: int  # 0: as `lengths` says
    lengths: np.ndarray[Any, Any] | None
    optimizer: Optimizer
    init: Init


def whole(value: Any, what: str, least: int, most: int) -> int:
    """Returns the value if it is an integer."""
    try:
        number = value.__index__()
    except AttributeError:
        raise InvalidError(f"{what} must be an integer, not {value!r:.80}") from None
    if not least <= number <= most:
        raise InvalidError(f"{what} is {number}, expected {least} to {most}")
    return int(number)


def tables(
    value_lengths: Any, num_keys: int | None, optimizer: Any, init: Any, hashed: bool
) -> tuple[Table, ...]:
    """The tables that the arguments of `Server` describe."""
    if isinstance(value_lengths, Mapping):
        shapes = [_shape(name, shape) for name, shape in value_lengths.items()]
        if not shapes:
            raise InvalidError("a server needs at least one table")
    else:
        shapes = [(None, *_unnamed(value_lengths, num_keys))]
    total = sum(keys for _, keys, _, _ in shapes)
    if num_keys is not None and total != num_keys:
        raise InvalidError(f"params.setup declared {num_keys} keys, but value_lengths has {total}")
    if hashed and any(lengths is not None for *_, lengths in shapes):
        raise InvalidError("with hashed keys, all rows of a table must have the same length")
    names = [name for name, *_ in shapes]
    optimizers, inits = _each(optimizer, names, "optimizer"), _each(init, names, "init")
    return tuple(
        Table(*shape, _optimizer(optimizers[shape[0]]), _init(inits[shape[0]])) for shape in shapes
    )


Shape = tuple[str | None, int, int, "np.ndarray[Any, Any] | None"]


def _shape(name: Any, shape: Any) -> Shape:
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidError(f"the name of a table must be a str, not {name!r:.80}")
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != 2:
        raise InvalidError(f"table {name!r} must be (keys, length), not {shape!r:.80}")
    keys = whole(shape[0], f"the number of keys of table {name!r}", 1, 2**63 - 1)
    return (name, *_lengths(shape[1], keys, f"the length of table {name!r}"))


def _unnamed(value_lengths: Any, num_keys: int | None) -> tuple[int, int, Any]:
    if num_keys is None and not _is_many(value_lengths):
        raise InvalidError("unknown number of keys: call params.setup(num_keys, num_threads) first")
    keys = len(value_lengths) if num_keys is None else num_keys
    return _lengths(value_lengths, keys, "value_lengths")


def _is_many(value: Any) -> bool:
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0 and len(value) > 1


def _lengths(given: Any, keys: int, what: str) -> tuple[int, int, Any]:
    """(keys, length, None), or (keys, 0, one length per key) if they differ."""
    if hasattr(given, "__index__") and not _is_many(given):
        return keys, whole(given, what, 1, LENGTH_MOST), None
    array = np.asarray(given).reshape(-1)
    if len(array) != keys and len(array) != 1:
        raise InvalidError(f"{what}: {len(array)} lengths for {keys} keys")
    if array.dtype.kind not in "iuf" or not (
        np.isfinite(array).all() and (array == np.trunc(array)).all()
    ):
        raise InvalidError(f"{what} must be an integer, or one integer per key")
    least, most = int(array.min()), int(array.max())
    if not 1 <= least <= most <= LENGTH_MOST:
        raise InvalidError(f"{what} ranges from {least} to {most}, expected 1 to {LENGTH_MOST}")
    if least == most:
        return keys, least, None
    return keys, 0, np.ascontiguousarray(array, dtype=np.uint32)


def _each(given: Any, names: list[str | None], what: str) -> dict[str | None, Any]:
    """The option of each table: one for all, or by name."""
    if not isinstance(given, Mapping) or isinstance(given.get("name"), str):
        return {name: given for name in names}
    unknown = [name for name in given if name not in names]
    if unknown or names == [None]:
        known = ", ".join(repr(name) for name in names if name) or "no table has a name"
        raise InvalidError(
            f"{what}={dict(given)!r:.200} has neither a 'name' nor names of tables ({known})"
        )
    return {name: given.get(name or "") for name in names}


def _options(given: Any, what: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Options with known names only; missing ones have the value of `known`."""
    unknown = [key for key in given if key not in known and key != "name"]
    if unknown:
        names = ", ".join(known) or "none"
        raise InvalidError(f"{what} {given['name']!r} has no option {unknown[0]!r}; known: {names}")
    return {key: given.get(key, value) for key, value in known.items()}


def _named(given: Any, what: str, known: Sequence[str]) -> dict[str, Any]:
    given = {"name": given} if isinstance(given, str) else given
    if not isinstance(given, Mapping) or "name" not in given:
        raise InvalidError(f"{what} must be a dict with a 'name', not {given!r:.200}")
    if given["name"] not in known:
        raise InvalidError(f"unknown {what} {given['name']!r}: expected one of {', '.join(known)}")
    return dict(given)


def number(value: Any, what: str) -> float:
    """Returns the value if it is a finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not np.isfinite(found):
        raise InvalidError(f"{what} must be a number, not {value!r:.80}")
    return found


def _optimizer(given: Any) -> Optimizer:
    if given is None:
        return (0, 0.0, 0.0, 0.0, 0.0, 0.0)
    given = _named(given, "optimizer", _OPTIMIZERS)
    name = given["name"]
    known: dict[str, Any] = {}
    if name != "none":
        known = {"lr": _RATES[name], "weight_decay": 0.0}
    if name in _EPSILONS:
        known["eps"] = _EPSILONS[name]
    if name == "adam":
        betas = given.pop("betas", (0.9, 0.999))
        try:
            first, second = betas
        except (TypeError, ValueError):
            raise InvalidError(f"betas of adam must be two numbers, not {betas!r:.80}") from None
        known |= {"beta1": first, "beta2": second}
    options = {
        k: number(v, f"{k} of {name}") for k, v in _options(given, "optimizer", known).items()
    }
    return (
        _OPTIMIZERS.index(name),
        options.get("lr", 0.0),
        options.get("eps", 0.0),
        options.get("beta1", 0.0),
        options.get("beta2", 0.0),
        options.get("weight_decay", 0.0),
    )


def _init(given: Any) -> Init:
    if given is None:
        return (0, 0.0, 0.0, 0)
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        given = {"name": "constant", "value": given}
    given = _named(given, "init", [*_INITS, "zero"])
    kind, ends = _INITS["zeros" if given["name"] == "zero" else given["name"]]
    options = _options(given, "init", {**dict(ends), "seed": 0})
    seed = whole(options["seed"], "the seed", 0, 2**64 - 1)
    values = [number(options[key], f"{key} of {given['name']}") for key, _ in ends]
    return (kind, *([*values, 0.0, 0.0][:2]), seed)  # type: ignore[return-value]


def sampling(
    scheme: str, distribution: Any, first: int, last: int
) -> tuple[int, int, np.ndarray[Any, Any] | None]:
    """The numbers of scheme and distribution, and the weights if there are any."""
    if scheme not in SCHEMES:
        raise InvalidError(f"unknown scheme {scheme!r}: expected one of {', '.join(SCHEMES)}")
    if isinstance(distribution, str):
        if distribution not in _DISTRIBUTIONS:
            raise InvalidError(
                f"unknown distribution {distribution!r}: expected 'uniform', 'log-uniform' "
                "or one weight per key"
            )
        return SCHEMES.index(scheme), _DISTRIBUTIONS.index(distribution), None
    weights = np.ascontiguousarray(distribution, dtype=np.float64).reshape(-1)
    if len(weights) != last - first:
        raise InvalidError(f"{len(weights)} weights for the keys {first} to {last - 1}")
    return SCHEMES.index(scheme), len(_DISTRIBUTIONS), weights

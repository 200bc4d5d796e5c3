"""torch's distributed tensors: their local part, and its position."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedError


@dataclass(frozen=True)
class Shard:
    """The box of a tensor that this process holds; an empty one if it holds nothing. `outside`: the
    process does not hold the tensor, which the box of a scalar cannot express."""

    whole: tuple[int, ...]
    start: tuple[int, ...]
    local: Any
    outside: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The box's own shape."""
        return tuple(self.local.shape)

    @property
    def index(self) -> tuple[slice, ...]:
        """The box as an index of the whole."""
        return tuple(slice(a, a + n) for a, n in zip(self.start, self.shape, strict=True))


def _kind() -> Any:
    """DTensor, if it has been imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def shard(value: Any, name: str) -> Shard | None:
    """The local box of a distributed tensor; None for a tensor that is local as a whole."""
    kind = _kind()
    if kind is None or not isinstance(value, kind):
        return None
    whole = tuple(value.shape)
    if any(place.is_partial() for place in value.placements):
        raise UnsupportedError(
            f"'{name}' is a DTensor with partial sums (redistribute it to Shard or Replicate first)"
        )
    if value.device_mesh.get_coordinate() is None:
        nothing = sys.modules["torch"].empty((0,) * len(whole), dtype=value.dtype)
        return Shard(whole, (0,) * len(whole), nothing, outside=True)
    local = local_of(value)
    chunks = value.__create_chunk_list__()
    if len(chunks) != 1 or tuple(chunks[0].sizes) != tuple(local.shape):
        raise UnsupportedError(
            f"'{name}' has placements {value.placements}, whose local part is not one box"
        )
    return Shard(whole, tuple(chunks[0].offsets), local)


def local_of(value: Any) -> Any:
    """The local memory of a distributed tensor."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        return value.to_local()


def laid_out_like(template: Any, local: Any) -> Any:
    """A distributed tensor with the layout of the template, over other local memory."""
    kind = _kind()
    return kind.from_local(
        local.to(local_of(template).device),
        template.device_mesh,
        template.placements,
        run_check=False,
        shape=template.shape,
        stride=template.stride(),
    )


def is_distributed(value: Any) -> bool:
    """Whether it is a distributed tensor."""
    kind = _kind()
    return kind is not None and isinstance(value, kind)

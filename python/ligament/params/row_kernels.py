"""The library's kernels for cached rows: one launch replaces many operations of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from .. import _core
from ..errors import UnsupportedError
from . import row_steps
from .slot_map import DenseSlots

if TYPE_CHECKING:
    from .device_rows import DeviceRows

_KINDS = (row_steps.ADD, row_steps.SGD, row_steps.ADAGRAD)


class Bags(NamedTuple):
    """The bags of ids that are summed."""

    starts: torch.Tensor | None  # the first position of each; None: `size` ids each
    number: int
    size: int
    mean: bool = False
    padding: int | None = None  # the id that counts for nothing

    def first_positions(self, device: torch.device) -> torch.Tensor:
        """`starts`, also for bags of one size."""
        if self.starts is not None:
            return self.starts
        return torch.arange(self.number, device=device) * self.size


NONE = Bags(None, 0, 1)


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class RowKernels:
    """The kernels of one cache."""

    def __init__(self, cache: DeviceRows, slots: DenseSlots, device: int) -> None:
        self._cache = cache
        self._words = torch.full((1,), -1, device=cache.device)
        self._report = torch.full((1,), -1, pin_memory=cache.device.type == "cuda")
        self._sums = cache.values[:0]
        kind, _, eps, _, _, decay = cache.optimizer
        arrays = (slots.slots, cache.used, None if cache.alone else cache.read, cache.leaders)
        rows = (cache.values, cache.state, None if cache.alone else cache.pending, cache.dirty)
        addresses = [_address(one) for one in (*arrays, *rows, self._words, self._report)]
        numbers = (cache.values.shape[1], cache.state.shape[1], kind)
        self._core = _core.DeviceRows(device, *addresses, *numbers, eps, decay)

    def used_by(self, stream: torch.cuda.Stream) -> None:
        """Lets the stream use memory of another one."""
        self._sums.record_stream(stream)

    def find(
        self, ids: torch.Tensor, bound: int, bags: Bags, stream: int
    ) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """The slots; the sums of bags; whether all rows are cached and current."""
        cache, ids = self._cache, ids.contiguous()
        slots = torch.empty_like(ids)
        sums = cache.values.new_empty((bags.number, cache.values.shape[1]))
        found = self._core.find(
            stream,
            ids.data_ptr(),
            slots.data_ptr(),
            ids.numel(),
            bound,
            cache.tick,
            cache.epoch,
            _address(bags.starts),
            bags.number,
            bags.size,
            bags.mean,
            -1 if bags.padding is None else bags.padding,
            sums.data_ptr(),
        )
        return slots, sums, found

    def step(
        self,
        ids: torch.Tensor,
        slots: torch.Tensor,
        grad: torch.Tensor,
        places: row_steps.Places,
        padding: int | None,
        rate: float,
        stream: int,
    ) -> None:
        """One step for each id of the last lookup."""
        if len(self._sums) < ids.numel():
            self._sums = torch.zeros((ids.numel(), grad.shape[1]), device=grad.device)
        ids, grad = ids.contiguous(), grad.contiguous()
        bags, listed = (places, None) if isinstance(places, int) else (1, _listed(places, ids))
        sums, self._sums = self._sums, self._sums[:0]  # after a failure it may not be zeros
        self._core.step(
            stream,
            ids.data_ptr(),
            slots.data_ptr(),
            ids.numel(),
            bags,
            _address(listed),  # `listed` lives until the kernels are queued
            -1 if padding is None else padding,
            grad.data_ptr(),
            sums.data_ptr(),
            rate,
        )
        self._sums = sums


def _listed(places: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor | None:
    return None if places is None else places.to(ids.device, torch.int64).contiguous()


def row_kernels(cache: DeviceRows) -> RowKernels | None:
    """The kernels for a cache; None: torch's operations are used."""
    slots = cache.slot_map
    if not isinstance(slots, DenseSlots) or cache.values.dtype != torch.float32:
        return None
    if cache.owned or cache.optimizer[0] not in _KINDS or (device := _number(cache)) is None:
        return None
    try:
        return RowKernels(cache, slots, device)
    except UnsupportedError:
        return None


def _number(cache: DeviceRows) -> int | None:
    """The number of a CUDA device."""
    return cache.values.get_device() if cache.device.type == "cuda" else None

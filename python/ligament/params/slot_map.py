"""The slot of each cached id, on the device, so that ids there are looked up without the host."""

from __future__ import annotations

from typing import Protocol

import torch

_DENSE_IDS = 1 << 28  # 4 bytes each


class SlotMap(Protocol):
    """From ids to slots; all tensors are on one device."""

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        """The slots as int64; -1 for an id without one, or out of range."""

    def put(self, ids: torch.Tensor, slots: torch.Tensor) -> None:
        """Adds ids, all of them new."""

    def remove(self, ids: torch.Tensor) -> None:
        """Removes ids that have a slot."""

    def clear(self) -> None:
        """Removes all."""

    def replaced(self) -> tuple[torch.Tensor, ...]:
        """Tensors that changes replace."""


class DenseSlots:
    """A map with one element for every possible id, and one for all others."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._count = count
        self.slots = torch.full((count + 1,), -1, dtype=torch.int32, device=device)

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        return self.slots[ids.clamp(-1, self._count)].long()  # index -1 is the last element

    def put(self, ids: torch.Tensor, slots: torch.Tensor) -> None:
        self.slots[ids] = slots.int()

    def remove(self, ids: torch.Tensor) -> None:
        self.slots[ids] = -1

    def clear(self) -> None:
        self.slots.fill_(-1)

    def replaced(self) -> tuple[torch.Tensor, ...]:
        return ()


class SortedSlots:
    """The cached ids in order, for ids from a range that is too large for a table."""

    def __init__(self, device: torch.device) -> None:
        self._ids = torch.empty(0, dtype=torch.int64, device=device)
        self._slots = torch.empty(0, dtype=torch.int64, device=device)

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        if self._ids.numel() == 0:
            return torch.full_like(ids, -1)
        at = torch.searchsorted(self._ids, ids).clamp_(max=self._ids.numel() - 1)
        return torch.where(self._ids[at] == ids, self._slots[at], -1)

    def put(self, ids: torch.Tensor, slots: torch.Tensor) -> None:
        self._ids, order = torch.cat((self._ids, ids)).sort()
        self._slots = torch.cat((self._slots, slots))[order]

    def remove(self, ids: torch.Tensor) -> None:
        kept = torch.ones_like(self._ids, dtype=torch.bool)
        kept[torch.searchsorted(self._ids, ids)] = False
        self._ids, self._slots = self._ids[kept], self._slots[kept]

    def clear(self) -> None:
        self._ids, self._slots = self._ids[:0], self._slots[:0]

    def replaced(self) -> tuple[torch.Tensor, ...]:
        return self._ids, self._slots


def slot_map(limit: int, device: torch.device) -> SlotMap:
    """The map for ids below `limit`."""
    return DenseSlots(limit, device) if limit <= _DENSE_IDS else SortedSlots(device)

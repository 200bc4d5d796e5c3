"""Options of FTPipe's two-dimensional bin packing, which have no effect."""

from __future__ import annotations

from enum import Enum


class ReminderPolicy(Enum):
    """Where what is left of a cluster goes."""

    ToLast = "last"
    ToMin = "min"


class SecondAndOnClusterPolicy(Enum):
    """How clusters after the first are packed."""

    BestFitBinPacking = "best_fit"
    InOrder = "order"
    Reversed = "reversed"

"""Options of FTPipe's two-dimensional bin packing, which have no effect."""

from __future__ import annotations

from enum import Enum


class ReminderPolicy(Enum):
    """Where the remainder of a cluster is placed."""

    ToLast = "last"
    ToMin = "min"


class SecondAndOnClusterPolicy(Enum):
    """How clusters after the first are packed."""

    BestFitBinPacking = "best_fit"
    InOrder = "order"
    Reversed = "reversed"

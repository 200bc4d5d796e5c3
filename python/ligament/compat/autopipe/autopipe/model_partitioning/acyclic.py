"""Options of FTPipe's acyclic method."""

from __future__ import annotations

import enum


class META_ALGORITH(enum.Enum):
    """MULTI_LEVEL is Ligament's method `multilevel`."""

    SINGLE_LEVEL = 1
    MULTI_LEVEL = 2


class ALGORITHM(enum.Enum):
    """Names only: Ligament's `acyclic` has its own moves."""

    SIMPLE_MOVES = 1
    ADVANCED_MOVES = 2
    GLOBAL_MOVES = 3
    FIDUCCIA_MATTHEYSES_MOVES = 4


class Objective(enum.Enum):
    """EDGE_CUT is the smallest cut within `epsilon` of the balanced load."""

    EDGE_CUT = 1
    STAGE_TIME = 2


class Constraint(enum.Enum):
    """TIME. MEMORY is refused."""

    MEMORY = 1
    TIME = 2

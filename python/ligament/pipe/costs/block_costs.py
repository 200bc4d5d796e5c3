"""The cost of one block, measured or estimated."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """One block's cost. `saved_inputs` are the positions of the inputs that are kept for backward,
    `saved_bytes` the other bytes that it keeps."""

    forward_ms: float = 0.0
    backward_ms: float = 0.0
    weight_ms: float = 0.0
    forward_memory: float = 0.0
    backward_memory: float = 0.0
    saved_bytes: float = 0.0
    saved_inputs: list[int] = field(default_factory=list)

"""What is known of one block's cost, measured or estimated."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """One block's cost. `saved_inputs` are positions among the block's inputs that are kept for
    backward, `saved_bytes` what it keeps of its own."""

    forward_ms: float = 0.0
    backward_ms: float = 0.0
    weight_ms: float = 0.0
    forward_memory: float = 0.0
    backward_memory: float = 0.0
    saved_bytes: float = 0.0
    saved_inputs: list[int] = field(default_factory=list)

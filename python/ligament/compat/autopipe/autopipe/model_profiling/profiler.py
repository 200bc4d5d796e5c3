"""The cost of a node."""

from __future__ import annotations

from typing import Any

from ligament.compat.autopipe.autopipe.utils import ExecTimes


class Profile(ExecTimes):
    """Times in milliseconds, sizes in megabytes. Compares as (forward_time, backward_time)."""

    SIZES = (
        "cuda_memory_forward",
        "cuda_memory_backward",
        "size",
        "input_size",
        "output_size",
    )

    def __new__(cls, forward_time: float, backward_time: float, **sizes: float) -> Profile:
        made = super().__new__(cls, forward_time, backward_time)
        made.cuda_memory_forward = sizes.get("cuda_memory_forward", 0.0)
        made.cuda_memory_backward = sizes.get("cuda_memory_backward", 0.0)
        made.size = sizes.get("size", 0.0)
        made.input_size = sizes.get("input_size", 0.0)
        made.output_size = sizes.get("output_size", 0.0)
        return made

    cuda_memory_forward: float
    cuda_memory_backward: float
    size: float
    input_size: float
    output_size: float

    def as_dict(self) -> dict[str, Any]:
        """All fields as a dict."""
        return self._asdict() | {name: getattr(self, name) for name in self.SIZES}

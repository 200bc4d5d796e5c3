"""A task: a model and a sample for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch


class PartitioningTask(ABC):
    """What `python -m autopipe.partition` partitions."""

    def __init__(self, args: Any) -> None:  # noqa: B027 - may be left as it is
        """`args` is what the task's parser returned."""

    @property
    @abstractmethod
    def batch_dim(self) -> int:
        """Which dimension of the sample counts its elements."""

    @abstractmethod
    def get_model(self, args: Any) -> torch.nn.Module:
        """The model."""

    @abstractmethod
    def get_input(self, args: Any, analysis: bool = False) -> Any:
        """The sample: a tensor, a tuple of arguments or a dict of keyword arguments."""

    def register_functions(self) -> None:  # noqa: B027
        """Called before tracing; Ligament needs nothing here."""

    def update_analysis_kwargs(self, args: Any, config: Any, analysis_kwargs: Any) -> Any:
        """Not called: Ligament's report is made from the plan."""
        return analysis_kwargs

    def post_partitioning(  # noqa: B027
        self, args: Any, graph: Any, analysis_result: Any, summary: Any
    ) -> None:
        """Called at the end."""

"""The tasks of `python -m autopipe.partition`: those of an FTPipe checkout, or of any folder
`autopipe/tasks` on the path, each imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from ligament.compat.autopipe.cmd_parser import Parser
from ligament.compat.autopipe.tasks.partitioning_task import PartitioningTask
from ligament.errors import NotFoundError

__all__ = [
    "REGISTRY",
    "Parser",
    "PartitioningTask",
    "get_parser_and_partitioner",
    "register_task",
]

REGISTRY: dict[str, tuple[type[Parser], type[PartitioningTask]]] = {}
OWN = {"vision": "vision_of_models"}


def register_task(
    task_name: str, parser_cls: type[Parser], partitioner_cls: type[PartitioningTask]
) -> None:
    """Called by the file of a task."""
    if task_name in REGISTRY:
        raise ValueError(f"task {task_name!r} is already registered")
    if not issubclass(parser_cls, Parser) or not issubclass(partitioner_cls, PartitioningTask):
        raise TypeError(f"task {task_name!r} needs subclasses of Parser and PartitioningTask")
    REGISTRY[task_name] = parser_cls, partitioner_cls


def get_parser_and_partitioner(task_name: str) -> tuple[Any, Any]:
    """The classes of a task. One of a checkout that needs packages which are not installed is
    replaced by Ligament's of that name, if there is one."""
    reasons = []
    candidates = [f"autopipe.tasks.{task_name}"]
    if task_name in OWN:
        candidates.append(f"ligament.compat.autopipe.tasks.{OWN[task_name]}")
    for module in candidates if task_name not in REGISTRY else ():
        try:
            importlib.import_module(module)
            break
        except ImportError as error:
            reasons.append(str(error))
    if task_name not in REGISTRY:
        raise NotFoundError(
            f"no task {task_name!r}: {'; '.join(reasons)} (put an FTPipe checkout, or a folder "
            "autopipe/tasks with the task's file, on the path)"
        )
    return REGISTRY[task_name]

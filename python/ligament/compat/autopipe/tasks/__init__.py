"""The tasks of `python -m autopipe.partition`: those of an FTPipe checkout, or of any folder
`autopipe/tasks` on the path, each imported on demand."""

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
    """The classes of a task. A task of a checkout that needs packages which are not installed is
    replaced by Ligament's task of that name, if there is one."""
    candidates = [f"autopipe.tasks.{task_name}"]
    if task_name in OWN:
        candidates.append(f"ligament.compat.autopipe.tasks.{OWN[task_name]}")
    failures: list[ImportError] = []
    for module in candidates if task_name not in REGISTRY else ():
        try:
            importlib.import_module(module)
            break
        except ImportError as error:
            failures.append(error)
    if task_name not in REGISTRY:
        raise NotFoundError(_missing(task_name, failures))
    return REGISTRY[task_name]


def _missing(task_name: str, failures: list[ImportError]) -> str:
    """Why there is no such task: no file, a file that cannot be imported, or one that registers
    another name."""
    if not failures:
        return f"autopipe/tasks/{task_name}.py does not register a task {task_name!r}"
    reasons = "; ".join(str(failure) for failure in failures)
    if failures[0].name != f"autopipe.tasks.{task_name}":
        return f"task {task_name!r} cannot be imported: {reasons}"
    return (
        f"no task {task_name!r}: {reasons} (put an FTPipe checkout, or a folder autopipe/tasks "
        "with the task's file, on the path)"
    )

"""Which device runs which stage."""

from __future__ import annotations

from typing import Any

from ligament.errors import InvalidError


def gen_stage_to_device_map(graph: Any) -> list[int]:
    """The device of each stage; devices are numbered in the order of their first stage."""
    devices = {node.stage_id: node.gpu_id for node in graph.nodes}
    if None in devices.values():
        raise InvalidError("nodes have no gpu_id: partition the graph first")
    groups: dict[int, set[int]] = {}
    for stage, device in devices.items():
        groups.setdefault(device, set()).add(stage)
    same = {stage: groups[device] for stage, device in devices.items()}
    return sorted_stage_to_device_map(len(devices), same)


def sorted_stage_to_device_map(
    n_partitions: int, stages_on_same_gpu: dict[int, set[int]]
) -> list[int]:
    """The device of each stage. A stage that is not in the map has a separate device."""
    first = [min(stages_on_same_gpu.get(stage) or {stage}) for stage in range(n_partitions)]
    number = {stage: device for device, stage in enumerate(sorted({*first}))}
    return [number[stage] for stage in first]

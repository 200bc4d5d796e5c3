"""Calls the partitioner in C with a graph and options; no decisions are made here."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ligament import _core
from ligament.errors import InvalidError
from ligament.pipe.graph.blocks import FIGURES, Graph

OPTIMIZERS = {"adam": 3.0, "adamw": 3.0, "sgd": 1.0, "momentum": 2.0, "none": 0.0}
TIES = {"sum": 0, "together": 1}
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY_UNITS = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(slots=True)
class Options:
    """The requested options in plain numbers, as saved with a plan. Lists have one element per
    device."""

    stages: int = 4
    method: str = "auto"
    schedule: str = "1f1b"
    microbatches: int = 8
    optimizer_factor: float = 3.0
    balance: float = 0.0
    ties: str = "sum"
    recompute: bool = False
    device_count: int = 0
    device_names: list[str] | None = None
    speed: list[float] | None = None
    memory: list[float] | None = None
    bandwidth: float = 0.0
    bandwidth_matrix: list[float] | None = None
    latency_ms: float = 0.0
    effort: int = 0
    seed: int = 0

    def as_arguments(self) -> dict[str, Any]:
        """In the form of the C library."""
        found = asdict(self)
        del found["device_names"]
        found["ties"] = TIES[self.ties]
        found["recompute"] = int(self.recompute)
        for key in ("speed", "memory", "bandwidth_matrix"):
            found[key] = array("d", found[key]) if found[key] is not None else None
        return found


def options(
    *,
    stages: int = 4,
    devices: Sequence[Any] | None = None,
    memory_limit: Any = None,
    bandwidth: Any = None,
    optimizer: str | float = "adam",
    balance: float | None = None,
    ties: str = "sum",
    **plain: Any,
) -> Options:
    """Options from user input: names of optimizers, "80G", a bandwidth or a matrix of them,
    devices."""
    made = Options(stages=_count(stages, "stages"), **plain)
    made.microbatches = _count(made.microbatches, "microbatches")
    if not isinstance(made.seed, int) or made.seed < 0:
        raise InvalidError(f"invalid seed {made.seed!r}: expected an integer of at least 0")
    made.optimizer_factor = _optimizer(optimizer)
    if ties not in TIES:
        raise InvalidError(f'invalid ties {ties!r}: expected "sum" or "together"')
    made.ties = ties
    if balance is not None:
        if not isinstance(balance, (int, float)) or not balance >= 1:
            raise InvalidError(f"invalid balance {balance!r}: expected a factor of at least 1")
        made.balance = float(balance)
    _devices(made, devices)
    _memory(made, memory_limit)
    _bandwidth(made, bandwidth)
    return made


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidError(f"invalid {what} {value!r}: expected an integer of at least 1")
    return value


def _optimizer(optimizer: str | float) -> float:
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise InvalidError(
                f"invalid optimizer {optimizer!r}: expected one of {', '.join(OPTIMIZERS)}, "
                "or the bytes of gradient and optimizer state for one byte of parameter"
            )
        return OPTIMIZERS[optimizer]
    if not math.isfinite(optimizer) or optimizer < 0:
        raise InvalidError(f"invalid optimizer {optimizer!r}: a factor must be at least 0")
    return float(optimizer)


def _devices(made: Options, devices: Sequence[Any] | None) -> None:
    if devices is None:
        return
    if isinstance(devices, (str, dict)) or not devices:
        raise InvalidError("devices must be a list with one element per device")
    speeds, memories, names = [], [], []
    for position, device in enumerate(devices):
        if isinstance(device, dict):
            unknown = device.keys() - {"speed", "memory", "device"}
            if unknown:
                raise InvalidError(
                    f"device {position} has unknown keys {sorted(unknown)}: expected speed, "
                    "memory, device"
                )
            speed = float(device.get("speed", 1.0))
            if not math.isfinite(speed) or speed <= 0:
                raise InvalidError(f"invalid speed of device {position}: {speed!r}")
            speeds.append(speed)
            memories.append(_limit(device.get("memory"), f"memory of device {position}"))
            names.append(str(device.get("device", f"device {position}")))
        else:
            speeds.append(1.0)
            memories.append(0.0)
            names.append(str(device))
    made.device_count, made.device_names = len(devices), names
    made.speed = speeds if any(s != 1.0 for s in speeds) else None
    made.memory = memories if any(memories) else None


def _memory(made: Options, limit: Any) -> None:
    if limit is None:
        return
    count = made.device_count or made.stages
    if isinstance(limit, (list, tuple)):
        if made.device_count and len(limit) != made.device_count:
            raise InvalidError(
                f"memory_limit has {len(limit)} elements, but there are {made.device_count} devices"
            )
        count = len(limit)
        limits = [_limit(item, "memory_limit") for item in limit]
    else:
        if made.schedule == "zbv" and not made.device_count:
            count = (made.stages + 1) // 2
        limits = [_limit(limit, "memory_limit")] * count
    made.device_count = count
    own = made.memory or [0.0] * count
    made.memory = [min(a, b) if a and b else a or b for a, b in zip(own, limits, strict=True)]


def _bandwidth(made: Options, bandwidth: Any) -> None:
    if bandwidth is None:
        return
    if isinstance(bandwidth, (int, float, str)):
        made.bandwidth = _limit(bandwidth, "bandwidth")
        return
    rows = [list(row) for row in bandwidth]
    count = made.device_count or len(rows)
    if len(rows) != count or any(len(row) != count for row in rows):
        raise InvalidError(f"bandwidth must be a number or a matrix of {count} x {count}")
    made.device_count = count
    made.bandwidth_matrix = [
        0.0 if i == j else _limit(item, f"bandwidth[{i}][{j}]")
        for i, row in enumerate(rows)
        for j, item in enumerate(row)
    ]


def _limit(value: Any, what: str) -> float:
    """Like `size`, for values for which 0 means unlimited in C. That is None here; 0 is an
    error."""
    found = 0.0 if value is None else size(value, what)
    if value is not None and found == 0:
        raise InvalidError(f"{what} must be greater than 0, or None for no limit")
    return found


def size(value: Any, what: str) -> float:
    """Bytes from a number or a string such as "80G" (10^9), "80Gi" (2^30), "512M"."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]i?)?B?\s*", value, re.IGNORECASE)
        if not match:
            raise InvalidError(
                f"invalid {what} {value!r}: expected a number of bytes, or a text such as "
                '"80G" or "80Gi"'
            )
        unit = (match[2] or "").upper()
        return float(match[1]) * (BINARY_UNITS.get(unit) or UNITS[unit])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidError(f"{what} is {value!r}, not a number of bytes")
    if not math.isfinite(value) or value < 0:
        raise InvalidError(f"{what} is {value!r}: it must be at least 0")
    return float(value)


def arrays(graph: Graph) -> dict[str, Any]:
    """The graph in the form of lig_pipe_graph."""
    nodes, edges = graph.nodes, graph.edges
    found: dict[str, Any] = {"node_count": len(nodes), "edge_count": len(edges)}
    found["name"] = [node.name.replace("\0", " ") for node in nodes]
    for key in FIGURES:
        found[key] = array("d", (getattr(node, key) for node in nodes))
    if not any(found["weight_ms"]):
        found["weight_ms"] = None  # not given: the C library assumes half of backward
    for tie in graph.ties:
        for index in tie.nodes:
            found["parameter_bytes"][index] = max(0.0, found["parameter_bytes"][index] - tie.bytes)
    numbers: dict[tuple[int, str], int] = {}
    found["edge_from"] = array("I", (e.source for e in edges))
    found["edge_to"] = array("I", (e.target for e in edges))
    found["edge_bytes"] = array("d", (e.bytes for e in edges))
    found["edge_value"] = array(
        "I", (numbers.setdefault((e.source, e.value), len(numbers)) for e in edges)
    )
    group = array("i", [-1] * len(nodes))
    for number, members in enumerate(graph.groups):
        for index in members:
            group[index] = number
    found["group"] = group if graph.groups else None
    found["tie_count"] = len(graph.ties)
    found["tie_bytes"] = array("d", (tie.bytes for tie in graph.ties))
    begin = array("I", [0])
    users = array("I")
    for tie in graph.ties:
        users.extend(tie.nodes)
        begin.append(len(users))
    found["tie_begin"], found["tie_node"], found["tie_use_count"] = begin, users, len(users)
    if not graph.ties:
        found["tie_begin"] = found["tie_node"] = None
    return found


def solve(graph: Graph, wanted: Options) -> dict[str, Any]:
    """Partitions; returns the result of the C library as a dict."""
    answer: dict[str, Any] = _core.pipe_partition(arrays(graph), wanted.as_arguments())
    return answer


def judge(
    graph: Graph, wanted: Options, stage: list[int], stage_device: list[int]
) -> dict[str, Any]:
    """Evaluates an existing assignment."""
    plan = {
        "stage": array("I", stage),
        "stage_count": len(stage_device),
        "stage_device": array("I", stage_device),
    }
    answer: dict[str, Any] = _core.pipe_measure(arrays(graph), wanted.as_arguments(), plan)
    return answer


def timeline(stages: dict[str, Any], schedule: str, microbatches: int) -> dict[str, Any]:
    """One simulated step."""
    given: dict[str, Any] = {
        k: array("d", v) for k, v in stages.items() if isinstance(v, list) and k != "device"
    }
    given |= {"device": array("I", stages["device"]), "stage_count": len(stages["device"])}
    given |= {"device_count": stages["device_count"], "tie_ms": stages["tie_ms"]}
    made: dict[str, Any] = _core.pipe_simulate(
        given, schedule, _count(microbatches, "microbatches")
    )
    return made


def partition(
    graph: Graph | dict[str, Any] | str | Path,
    stages: int,
    method: str = "auto",
    balance: float | None = None,
    memory_limit: Any = None,
    schedule: str = "1f1b",
    microbatches: int = 8,
    seed: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """The partitioner alone. `graph` is a Graph, the JSON object, its text, or the path of one.
    `more`: devices, bandwidth, optimizer, recompute, ties, latency_ms, effort. Returns a dict:
    stage and device of each node, bottleneck_ms, lower_bound_ms, cut_bytes, step_ms, method, seed,
    and further figures."""
    if isinstance(graph, (str, Path)):
        text = str(graph)
        try:
            if isinstance(graph, Path) or not text.lstrip().startswith("{"):
                text = Path(graph).read_text("utf-8")
            graph = json.loads(text)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InvalidError(f"{graph!s:.80} is not valid JSON: {error}") from None
    wanted = options(
        stages=stages,
        method=method,
        balance=balance,
        memory_limit=memory_limit,
        schedule=schedule,
        microbatches=microbatches,
        seed=seed,
        **more,
    )
    return solve(Graph.from_json(graph), wanted)

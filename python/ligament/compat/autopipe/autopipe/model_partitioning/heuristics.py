"""FTPipe's weight functions: the cost of a node and of an edge, in milliseconds times a factor."""

from __future__ import annotations

from typing import Any

import torch

from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Node, NodeTypes
from ligament.compat.autopipe.autopipe.utils import flatten

NOT_SENDABLE = (torch.device, torch.dtype, str, slice)
SCALARS = (int, bool, float, torch.Size, type(None))
SCALAR_BYTES = 4
BYTES_PER_MS = 1e6  # at 1 GB/s
FLOOR = 1e-3


def get_weight_functions(args: Any, verbose: bool = True) -> tuple[Any, Any]:
    """The weight functions selected by the command-line arguments."""
    factor = args.weight_mult_factor
    node: Any
    if args.auto_infer_node_bwd_to_fwd_ratio:
        node = NodeWeightFunctionWithRatioAutoInfer(MULT_FACTOR=factor)
    else:
        node = NodeWeightFunction(bwd_to_fwd_ratio=args.bwd_to_fwd_ratio, MULT_FACTOR=factor)
    edge = EdgeWeightFunction(
        args.bw,
        bwd_to_fwd_ratio=0,
        MULT_FACTOR=factor,
        penalty=args.edge_penalty,
        penalize_non_tensors=args.penalize_non_tensors,
    )
    if verbose:
        print(f"-I- using heuristics {type(node).__name__} , {type(edge).__name__}")
    return node, edge


class NodeWeightFunction:
    """forward + ratio * backward; a negative ratio is backward alone, 0 forward alone."""

    def __init__(self, bwd_to_fwd_ratio: float = -1, MULT_FACTOR: float = 1e4) -> None:
        self.ratio = bwd_to_fwd_ratio
        self.MULT_FACTOR = MULT_FACTOR

    def __call__(self, node: Node) -> float:
        times = node.weight
        if self.ratio < 0:
            return float(self.MULT_FACTOR * times.backward_time)
        return float(self.MULT_FACTOR * (times.forward_time + self.ratio * times.backward_time))


class NodeWeightFunctionWithRatioAutoInfer:
    """Forward and backward, each weighted by its own share."""

    def __init__(self, MULT_FACTOR: float = 1e4) -> None:
        self.MULT_FACTOR = MULT_FACTOR

    def __call__(self, node: Node) -> float:
        forward, backward = node.weight.forward_time, node.weight.backward_time
        total = forward + backward
        return float(self.MULT_FACTOR * (forward**2 + backward**2) / total) if total else 0.0


class EdgeWeightFunction:
    """The time of sending a value: forward alone (ratio 0), its gradient alone (below 0) or both. A
    value that cannot be sent costs `penalty`."""

    GPU_MEMORY_BW = 550

    def __init__(
        self,
        bw_GBps: float,
        bwd_to_fwd_ratio: float = -1,
        MULT_FACTOR: float = 1e4,
        penalty: float = 1e7,
        penalize_non_tensors: bool = False,
        ensure_positive: bool = True,
    ) -> None:
        self.bw = bw_GBps
        self.ratio = bwd_to_fwd_ratio
        self.MULT_FACTOR = MULT_FACTOR
        self.penalty = penalty
        self.penalize_non_tensors = penalize_non_tensors
        self.ensure_positive = ensure_positive

    def __call__(self, u: Node, v: Node, non_contig_penalty: bool = False) -> float:
        same_gpu = u.gpu_id is not None and u.gpu_id == v.gpu_id
        if u.compound_edge_weights and self.ratio <= 0:  # a merged node's are known
            share = self.bw / self.GPU_MEMORY_BW if same_gpu else 1.0
            return u.compound_edge_weights[v.id] * share
        bandwidth = self.GPU_MEMORY_BW if same_gpu else self.bw
        return self._floor(self._cost(u, v, bandwidth, non_contig_penalty))

    def _cost(self, u: Node, v: Node, bandwidth: float, non_contig_penalty: bool) -> float:
        plain = u.type is NodeTypes.CONSTANT or u.value_type in SCALARS
        if u.value_type in NOT_SENDABLE or (plain and self.penalize_non_tensors):
            return self.penalty
        forward = float(SCALAR_BYTES if plain else tensor_bytes(u))
        backward = 0.0 if plain or not (u.req_grad and v.req_grad) else forward
        if self.ratio < 0:
            volume = backward
        elif self.ratio > 0:
            volume = forward + backward
        else:
            copied = non_contig_penalty and not u.is_contiguous
            volume = forward * (1 + bandwidth / self.GPU_MEMORY_BW if copied else 1)
        return self.MULT_FACTOR * volume / (BYTES_PER_MS * bandwidth)

    def _floor(self, cost: float) -> float:
        return max(FLOOR, cost) if self.ensure_positive else cost


class NodeMemoryEstimator:
    """Bytes of a node's parameters, times a factor for the optimizer, and of its activations."""

    THRESHOLD = 11e9

    def __init__(self, optimizer_multiply: float = 1) -> None:
        self.optimizer_multiply = optimizer_multiply

    def __call__(self, node: Node) -> float:
        return 4 * node.num_parameters * self.optimizer_multiply + node.max_memory_bytes


def tensor_bytes(node: Node) -> int:
    """The bytes of all outputs of a node."""
    pairs = zip(flatten(node.tensor_shape), flatten(node.tensor_dtype), strict=True)
    return sum(
        shape.numel() * dtype.itemsize
        for shape, dtype in pairs
        if isinstance(shape, torch.Size) and isinstance(dtype, torch.dtype)
    )

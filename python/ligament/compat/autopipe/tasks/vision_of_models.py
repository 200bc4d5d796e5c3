"""The task `vision`, based on a checkout's definitions of models. FTPipe's own task needs timm,
SciPy and an old version of transformers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from ligament.compat.autopipe.cmd_parser import Parser
from ligament.compat.autopipe.tasks import register_task
from ligament.compat.autopipe.tasks.partitioning_task import PartitioningTask

definitions: Any = importlib.import_module("models.normal.vision_models")


def _wide(depth: int, classes: int, width: int, drop: float = 0.0) -> Callable[[], Any]:
    return lambda: definitions.WideResNet(
        depth=depth, num_classes=classes, widen_factor=width, drop_rate=drop
    )


def _residual(*layers: int) -> Callable[[], Any]:
    kinds = importlib.import_module("models.normal.vision_models.ResNet")
    return lambda: kinds.ResNet(block=kinds.Bottleneck, layers=list(layers), num_classes=1000)


def _cells(layers: int, classes: int) -> Callable[[], Any]:
    return lambda: definitions.amoebanetd(num_layers=layers, num_filters=512, num_classes=classes)


MODELS: dict[str, Callable[[], Any]] = {
    "wrn_16x4": _wide(16, 10, 4),
    "wrn_16x4_c10": _wide(16, 10, 4),
    "wrn_16x4_c100": _wide(16, 100, 4),
    "wrn_28x10_c10": _wide(28, 10, 10),
    "wrn_28x10_c10_dr03": _wide(28, 10, 10, 0.3),
    "wrn_28x10_c100": _wide(28, 100, 10),
    "wrn_28x10_c100_dr03": _wide(28, 100, 10, 0.3),
    "resnet50_imagenet": _residual(3, 4, 6, 3),
    "resnet101_imagenet": _residual(3, 4, 23, 3),
    "amoebanet_4x512_c10": _cells(4, 10),
    "amoebanet_8x512_c100": _cells(8, 100),
    "vgg16_bn": lambda: definitions.vgg16_bn(),
}


class VisionParser(Parser):
    """With the model's name and the size of images."""

    def _add_model_args(self, group: Any) -> None:
        group.add_argument("--model", choices=list(MODELS), default="wrn_16x4")

    def _add_data_args(self, group: Any) -> None:
        group.add_argument("--crop", type=int, default=32, help="width and height of images")

    def _default_values(self) -> dict[str, Any]:
        return {"n_iter": 100}

    def _auto_file_name(self, args: Any) -> str:
        bandwidth = str(args.bw).replace(".", "_")
        method = (
            "virtual_stages" if args.partitioning_method == "2dbin" else args.partitioning_method
        )
        kind = "_async" if args.async_pipeline else ""
        name = f"{args.output_file}{args.model}c{args.crop}"
        return f"{name}_{args.n_partitions}p_bw{bandwidth}{kind}_{method}"


class VisionTask(PartitioningTask):
    """Random images."""

    @property
    def batch_dim(self) -> int:
        return 0

    def get_model(self, args: Any) -> torch.nn.Module:
        model: torch.nn.Module = MODELS[args.model]()
        return model.train()

    def get_input(self, args: Any, analysis: bool = False) -> Any:
        count = args.analysis_batch_size if analysis else args.partitioning_batch_size
        return torch.randn(count, 3, args.crop, args.crop)


register_task("vision", VisionParser, VisionTask)

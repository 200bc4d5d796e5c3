# The base of the written partitions. Its classes and functions are copied into every written file,
# so they use torch alone.

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import nn


class Partition(nn.Module):
    """A stage as FTPipe's runtime creates and calls it: it is created from the layers and tensors
    of the model by their scopes, and called with the values that its configuration lists."""

    STAGE: Any = None
    LAYER_SCOPES: list[str] = []
    TENSORS: list[str] = []
    TAKES: list[str] = []
    GIVES: list[str] = []

    def __init__(self, layers: dict[str, Any], tensors: dict[str, Any], device: Any = None) -> None:
        super().__init__()
        state = {name_of(scope): tensor for scope, tensor in tensors.items()}
        for scope, layer in layers.items():
            inner = (layer.named_parameters, layer.named_buffers)
            for name, tensor in chain(*(call(remove_duplicate=False) for call in inner)):
                state[f"{name_of(scope)}.{name}"] = tensor
        blocks = {name_of(scope): layer for scope, layer in layers.items()}
        self.stage = self.STAGE(state, blocks, device)
        self.device = self.stage._device
        if device is not None:
            self.to(device)

    def forward(self, *args: Any) -> tuple[Any, ...]:
        values = dict(zip(self.TAKES, args, strict=True))
        made = self.stage(*(values.get(name) for name in self.stage.INPUTS))
        values.update(zip(self.stage.OUTPUTS, made, strict=True))
        return tuple(values[name] for name in self.GIVES)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """With the names of the model."""
        return self.stage.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """With the names of the model."""
        return self.stage.load_state_dict(state_dict, *args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """With the names of the model."""
        return self.stage.named_parameters(*args, **kwargs)  # type: ignore[no-any-return]

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """With the names of the model."""
        found = self.stage.named_buffers(*args, **kwargs)
        return ((name, buffer) for name, buffer in found if name != "_home")

    def to(self, *args: Any, **kwargs: Any) -> Any:
        super().to(*args, **kwargs)
        self.device = self.stage._device
        return self


def name_of(scope: str) -> str:
    """Model/Linear[a]/Parameter[weight] is a.weight."""
    return ".".join(re.findall(r"\[([^\]]*)\]", scope))


def switch_batch_size(config: dict[str, Any], batch_size: int) -> None:
    """Changes the shapes of all batched values."""
    dim = config["batch_dim"]
    tables = [config["model_inputs"], config["model_outputs"]]
    tables += [stage[key] for stage in config["stages"].values() for key in ("inputs", "outputs")]
    for value in chain(*(table.values() for table in tables)):
        if value["is_batched"]:
            shape = list(value["shape"])
            shape[dim] = batch_size
            value["shape"] = torch.Size(shape)

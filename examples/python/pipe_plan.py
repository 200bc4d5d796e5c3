"""Partitions a small transformer into pipeline stages, checks that they compute the same bits,
writes them as Python and draws them.

    python examples/python/pipe_plan.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from ligament.pipe import Plan, pipe_model
from torch import nn


class Small(nn.Module):
    """Embedding, four layers, and a head that shares the embedding's weights."""

    def __init__(self, words: int = 100, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(words)))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    batch = torch.randint(0, 100, (2, 16))
    model = Small()

    # Traces the model with one micro-batch, measures each block, and partitions.
    plan = pipe_model(model, (batch,), stages=3, profile=folder / "profile.json")
    print(plan.report())

    # Compares outputs and gradients with the original's, bit for bit.
    result = plan.check()
    print(f"checked {result.outputs} output and {result.gradients} gradients")

    # Writes the stages as a file that imports only torch, a drawing, and the plan itself.
    print("written:", plan.write(folder / "stages.py"))
    print("drawn:  ", plan.draw(folder / "plan.html"))
    plan.save(folder / "plan.json")
    again = Plan.load(folder / "plan.json", model, (batch,))
    assert torch.equal(again.run(batch), model(batch))

    # Simulates other schedules without planning again.
    for schedule in ("gpipe", "1f1b", "zb-h1"):
        line = plan.simulate(schedule, microbatches=16)
        print(f"{schedule:>8}: {line.step_ms:8.3f} ms a step, bubble {line.bubble:.1%}")


if __name__ == "__main__":
    main()

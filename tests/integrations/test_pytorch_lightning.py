"""The same integration serves the package under its other name, in a process without the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from warm_python import WarmPython

CODE = """
import logging, warnings
warnings.simplefilter("ignore")
import pytorch_lightning as pl, torch
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
from ligament.checkpoint.lightning import CheckpointIO

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(epochs, **options):
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, plugins=[CheckpointIO("store")],
        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(4, 2)), **options)
    return trainer

fit(1).save_checkpoint("a.ckpt")
print(fit(2, ckpt_path="a.ckpt").global_step)
"""


def test_pytorch_lightning(warm_torch: WarmPython, tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    done = warm_torch.run("-c", CODE, cwd=tmp_path)
    assert done.stdout.split() == ["8"], done.stderr[-4000:]

"""Lightning's Trainer keeps its checkpoints in a store."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import ligament
import pytest

torch = pytest.importorskip("torch")
pl = pytest.importorskip("lightning.pytorch")

from ligament.checkpoint.lightning import CheckpointIO  # noqa: E402


class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer, self.drop = torch.nn.Linear(4, width), torch.nn.Dropout(0.5)

    def training_step(self, batch: Any, index: int) -> Any:
        loss = self.drop(self.layer(batch[0])).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def fit(epochs: int, io: CheckpointIO, callbacks: Any = (), **options: Any) -> tuple[Any, Any]:
    pl.seed_everything(0, verbose=False)
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, plugins=[io], callbacks=list(callbacks),
    )  # fmt: skip
    net = Net()
    trainer.fit(net, torch.utils.data.DataLoader(data, 4), **options)
    return net, trainer


@pytest.mark.parametrize("wait", [True, False])
def test_a_trainer_saves_and_goes_on(tmp_path: Path, wait: bool) -> None:
    keep = pl.callbacks.ModelCheckpoint("ck", monitor="loss", save_top_k=2, save_last=True)
    io = CheckpointIO("store", wait=wait)
    net, trainer = fit(3, io, [keep])
    io.store.close()
    with ligament.Store("store", "r") as store:
        names = sorted(store)
        assert len(names) == 3 and names == sorted(f"ck/{p.name}" for p in Path("ck").iterdir())
        saved = store.load("ck/last.ckpt", framework="torch")
        assert torch.equal(saved["state_dict"]["layer.weight"], net.layer.weight)
        assert saved["hyper_parameters"] == {"width": 4} and "loss" in store["ck/last.ckpt"].metrics
    assert Path("ck/last.ckpt").read_text() == f"{io.store.uri}#ck/last.ckpt\n"

    again = pl.callbacks.ModelCheckpoint("ck", monitor="loss", save_top_k=2, save_last=True)
    _, late = fit(4, CheckpointIO("store"), [again], ckpt_path="last", weights_only=True)
    assert (late.current_epoch, late.global_step) == (4, 16)
    assert again.best_model_path and late.optimizers[0].state_dict()["state"][0]["step"] == 16


def test_loads_what_was_saved_bit_for_bit(tmp_path: Path) -> None:
    io = CheckpointIO("store")
    net, trainer = fit(2, io, [pl.callbacks.ModelCheckpoint("ck")])
    trainer.save_checkpoint("deep/x.ckpt")
    other, late = fit(2, CheckpointIO("store"), ckpt_path=str(tmp_path / "deep/x.ckpt"))
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(trainer.optimizers, late.optimizers, strict=True):
        for i, state in a.state_dict()["state"].items():
            for key, value in state.items():
                assert torch.equal(value, b.state_dict()["state"][i][key])


def test_what_is_not_there_and_what_cannot_be_kept(tmp_path: Path) -> None:
    io = CheckpointIO("store")
    with pytest.raises(FileNotFoundError, match="no model 'x.ckpt'"):
        io.load_checkpoint("x.ckpt")
    Path("old.ckpt").write_bytes(b"PK\xff")
    with pytest.raises(FileNotFoundError, match="ligament.convert"):
        io.load_checkpoint("old.ckpt")
    with pytest.raises(TypeError, match="storage_options"):
        io.save_checkpoint({}, "x.ckpt", storage_options={})
    with pytest.raises(ligament.InvalidError, match=r"\['hyper_parameters'\]\['net'\]"):
        io.save_checkpoint({"hyper_parameters": {"net": torch.nn.ReLU()}}, "x.ckpt")
    assert not Path("x.ckpt").exists() and len(io.store) == 0
    io.remove_checkpoint("x.ckpt")
    io.save_checkpoint({"w": torch.ones(2), "t": (1, [torch.zeros(1)])}, "x.ckpt")
    back = io.load_checkpoint("x.ckpt", map_location="cpu")
    assert torch.equal(back["w"], torch.ones(2)) and back["t"][0] == 1
    assert io.load_checkpoint("x.ckpt", map_location={"cpu": "meta"})["w"].is_meta
    io.remove_checkpoint("x.ckpt")
    assert not Path("x.ckpt").exists() and len(io.store) == 0


def test_jobs_in_two_folders_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io = CheckpointIO(tmp_path / "store")
    for number, job in enumerate("ab"):
        (tmp_path / job).mkdir()
        monkeypatch.chdir(tmp_path / job)
        for _ in range(2):  # the second time in the place of the first
            io.save_checkpoint({"w": torch.tensor(number)}, "ck/x.ckpt")
    assert len(io.store) == 2
    for number, job in enumerate("ab"):
        monkeypatch.chdir(tmp_path / job)
        assert io.load_checkpoint("ck/x.ckpt")["w"] == number
    io.remove_checkpoint("ck/x.ckpt")
    Path("ck/x.ckpt").unlink(missing_ok=True)
    io.remove_checkpoint("ck/x.ckpt")  # nothing of ours: the other job's stays
    assert io.load_checkpoint(tmp_path / "a/ck/x.ckpt")["w"] == 0


def test_runs_share_a_store(tmp_path: Path, holder: Any) -> None:
    nets = {}
    for run in ("a", "b"):
        keep = pl.callbacks.ModelCheckpoint(f"ck-{run}", save_last=True)
        nets[run] = fit(ord(run) - 95, CheckpointIO("store", run=run), [keep])[0]
    with ligament.Store("store", "r") as store:
        assert {name.split("/")[0] for name in store} == {"a", "b"}
        for run, net in nets.items():
            saved = store.load(f"{run}/ck-{run}/last.ckpt", framework="torch")
            assert torch.equal(saved["state_dict"]["layer.weight"], net.layer.weight)
    io = CheckpointIO("store", run="a")
    assert io.load_checkpoint("ck-a/last.ckpt")["epoch"] == 1
    their = holder(Path("store"), "a")
    with pytest.raises(ligament.BusyError, match=f"run 'a' .*{their}"):
        io.save_checkpoint({"w": torch.ones(1)}, "x.ckpt")
    CheckpointIO("store").save_checkpoint({"w": torch.ones(1)}, "x.ckpt")


def test_a_model_is_made_from_a_checkpoint(tmp_path: Path) -> None:
    keep = pl.callbacks.ModelCheckpoint("ck", save_last=True)
    io = CheckpointIO("store")
    net, trainer = fit(2, io, [keep])
    io.store.close()
    for path in (keep.best_model_path, Path("ck/last.ckpt")):
        again = Net.load_from_checkpoint(path, map_location="cpu")
        assert torch.equal(again.layer.weight, net.layer.weight)
        assert dict(again.hparams) == {"width": 4}
    with pytest.raises(RuntimeError, match="size mismatch"):
        Net.load_from_checkpoint("ck/last.ckpt", width=5)
    torch.save(trainer._checkpoint_connector.dump_checkpoint(), "plain.ckpt")  # as ever
    again = Net.load_from_checkpoint("plain.ckpt", weights_only=False)
    assert torch.equal(again.layer.weight, net.layer.weight)
    ligament.Store("store").retire("ck/last.ckpt")
    with pytest.raises(ligament.NotFoundError, match=r"ck/last\.ckpt"):
        Net.load_from_checkpoint("ck/last.ckpt")

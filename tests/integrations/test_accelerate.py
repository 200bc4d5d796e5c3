"""Accelerate's save_state and load_state through a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ligament
import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from ligament.checkpoint.accelerate import register  # noqa: E402


def made(seed: int) -> tuple[Any, ...]:
    accelerate.utils.set_seed(seed)
    project = accelerate.utils.ProjectConfiguration(
        project_dir="p", automatic_checkpoint_naming=True, total_limit=2
    )
    accelerator = accelerate.Accelerator(cpu=True, project_config=project)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4))
    loader = torch.utils.data.DataLoader(data, 4)
    return accelerator, *accelerator.prepare(net, optimizer, schedule, loader)


def train(accelerator: Any, net: Any, optimizer: Any, schedule: Any, loader: Any) -> None:
    for (x,) in loader:
        optimizer.zero_grad()
        accelerator.backward(net(x).square().mean())
        optimizer.step()
        schedule.step()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_training_goes_on_bit_for_bit() -> None:
    first = made(0)
    hooks = register(first[0], "store")
    for _ in range(3):
        train(*first)
        first[0].save_state()
    folder = "p/checkpoints/checkpoint_2"
    assert sorted(os.listdir(folder)) == ["ligament.txt", "random_states_0.pkl"]
    with ligament.Store("store", "r") as store:
        assert list(store) == ["p/checkpoints/checkpoint_1", folder]  # total_limit
    train(*first)

    late = made(5)
    register(late[0], "store")
    late[0].load_state(folder)
    train(*late)
    accelerator, net, optimizer, schedule, _ = first
    assert all(torch.equal(v, late[1].state_dict()[k]) for k, v in net.state_dict().items())
    for i, values in optimizer.state_dict()["state"].items():
        mine = late[2].state_dict()["state"][i]
        assert all(torch.equal(value, mine[key]) for key, value in values.items())
    assert schedule.state_dict() == late[3].state_dict()

    hooks.remove()
    accelerator.save_state()
    assert "optimizer.bin" in os.listdir("p/checkpoints/checkpoint_3")
    late[0].load_state("p/checkpoints/checkpoint_3")  # written without the hooks
    os.mkdir("other")
    accelerator, *_ = made(1)
    register(accelerator, "store")
    accelerator._schedulers.clear()
    with pytest.raises(ligament.MismatchError, match="1 schedulers, but the accelerator has 0"):
        accelerator.load_state(folder)


def test_jobs_in_two_folders_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    for job in "ab":
        (tmp_path / job).mkdir()
        monkeypatch.chdir(tmp_path / job)
        one = made(ord(job))
        register(one[0], tmp_path / "store")
        for _ in range(2):
            train(*one)
            one[0].save_state()
        weights.append(one[1].state_dict())
    with ligament.Store(tmp_path / "store", "r") as store:
        assert len(store) == 4  # total_limit is each job's
    monkeypatch.chdir(tmp_path / "a")
    late = made(5)
    register(late[0], tmp_path / "store")
    late[0].load_state("p/checkpoints/checkpoint_1")
    assert all(torch.equal(v, weights[0][name]) for name, v in late[1].state_dict().items())


def test_what_goes_past_the_hooks_is_refused() -> None:
    class Sharded:
        distributed_type = accelerate.DistributedType.FSDP

    with pytest.raises(ligament.UnsupportedError, match="FSDP"):
        register(Sharded(), "store")


def test_runs_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Any) -> None:
    weights = {}
    for run in "ab":
        (tmp_path / run).mkdir()
        monkeypatch.chdir(tmp_path / run)
        one = made(ord(run))
        register(one[0], tmp_path / "store", run=run)
        for _ in range(3):
            train(*one)
            one[0].save_state()
        weights[run] = one[1].state_dict()
    with ligament.Store(tmp_path / "store", "r") as store:  # total_limit is each run's
        assert sorted(store) == [f"{r}/p/checkpoints/checkpoint_{n}" for r in "ab" for n in (1, 2)]
    for run, saved in weights.items():
        monkeypatch.chdir(tmp_path / run)
        late = made(5)
        register(late[0], tmp_path / "store", run=run)
        late[0].load_state("p/checkpoints/checkpoint_2")
        assert all(torch.equal(v, saved[name]) for name, v in late[1].state_dict().items())
    their = holder(tmp_path / "store", "c")
    accelerator = made(1)[0]
    register(accelerator, tmp_path / "store", run="c")
    accelerator.project_configuration.automatic_checkpoint_naming = False
    with pytest.raises(ligament.BusyError, match=f"run 'c' .*{their}"):
        accelerator.save_state("x")

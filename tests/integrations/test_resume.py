"""A run that was interrupted and restored computes what it would have without the interruption."""

from __future__ import annotations

import logging
import pathlib
import random
import re
from typing import Any

import ligament
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ligament.checkpoint import Checkpointer  # noqa: E402

README = pathlib.Path(__file__).parents[2] / "README.md"
ROWS, BATCH, STEPS = 20, 4, 13  # five batches an epoch: steps end in the middle of the third


class Rows(torch.utils.data.Dataset[Any]):
    """Numbered rows."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, at: int) -> Any:
        return torch.full((8,), float(at))


def loader(workers: int) -> Any:
    data = pytest.importorskip("torchdata.stateful_dataloader")
    return data.StatefulDataLoader(Rows(), batch_size=BATCH, shuffle=True, num_workers=workers)


def train(folder: pathlib.Path, seed: int, stop: int, workers: int) -> list[float]:
    """What a process does that trains until step `stop`, from where the last one ended; its losses
    depend on every generator, on the order of the rows and on where in the epoch it is."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    batches, losses, step = loader(workers), [], 0
    with Checkpointer(folder) as ck:
        at = ck.restore(model=model, optimizer=optimizer, loader=batches)
        step = at.step if at else 0
        while step < stop:
            for batch in batches:
                step += 1
                noise = random.random() + np.random.rand()
                loss = (model(batch + noise)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                ck.save(step, model=model, optimizer=optimizer, loader=batches, wait=False)
                if step == stop:
                    break
    return losses


@pytest.mark.parametrize("workers", [0, 1])
def test_an_interrupted_epoch_continues_bit_for_bit(tmp_path: pathlib.Path, workers: int) -> None:
    whole = train(tmp_path / "whole", 1, STEPS, workers)
    parts = [
        loss
        for seed, stop in enumerate((3, 5, 8, STEPS))  # in an epoch, at its end, in the next
        for loss in train(tmp_path / "parts", seed or 1, stop, workers)
    ]
    assert parts == whole


def test_a_loader_that_was_saved_before_its_first_batch(tmp_path: pathlib.Path) -> None:
    torch.manual_seed(3)
    first, second = loader(0), loader(0)
    with Checkpointer(tmp_path) as ck:
        ck.save(0, loader=first)
        want = [*first, torch.rand(2)]
        torch.manual_seed(4)
        ck.restore(loader=second)
        assert all(map(torch.equal, want, [*second, torch.rand(2)]))


def test_the_loop_of_the_readme_continues_bit_for_bit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    code = next(block for block in blocks if "with Checkpointer(" in block)
    assert "rng=" not in code and "range(at.step + 1 if at else 0, 10)" in code

    def run(folder: str, seed: int, stop: int) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        torch.manual_seed(seed)
        exec(code.replace(", 10)", f", {stop})"), {})

    run("whole", 1, 10)
    run("parts", 1, 4)
    run("parts", 2, 10)
    whole, parts = (
        ligament.Store(tmp_path / folder / "training", "r") for folder in ("whole", "parts")
    )
    names = [model.name for model in whole.models()]
    assert len(names) >= 3 and names == [model.name for model in parts.models()]
    for name in names:
        assert whole[name].metrics == parts[name].metrics
        for key in ("weight", "bias"):
            one, other = (store.load(name)["model"][key] for store in (whole, parts))
            assert np.array_equal(one, other)


def test_random_states_are_kept_by_default() -> None:
    with Checkpointer("mem:") as ck:
        ck.save(1, extra={})
        after = torch.rand(3)
        ck.restore(rng=False)
        assert not torch.equal(torch.rand(3), after)
        ck.restore()
        assert torch.equal(torch.rand(3), after)
        ck.save(2, extra={}, rng=False)
        assert ck.store["step-000000000002"].tensors == {}


def test_a_loader_without_a_state_is_refused() -> None:
    plain = torch.utils.data.DataLoader(Rows())
    with (
        Checkpointer("mem:") as ck,
        pytest.raises(ligament.InvalidError, match="'loader' is a torch DataLoader.*torchdata"),
    ):
        ck.save(1, loader=plain)


def test_the_same_number_of_processes_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Checkpointer("mem:") as ck, caplog.at_level(logging.WARNING, "ligament"):
        ck.save(1, extra={})
        ck.restore()
        assert not caplog.records

"""The Trainer of transformers saves into a store and resumes from it, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ligament
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from ligament.checkpoint.transformers import Callback  # noqa: E402

TEXT = [{"input_ids": torch.arange(i, i + 8) % 50} for i in range(24)]
DATA = [{**item, "labels": item["input_ids"]} for item in TEXT]


class Cut(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def trainer(*callbacks: Any, seed: int = 0, **options: Any) -> Any:
    transformers.logging.set_verbosity_error()
    transformers.set_seed(seed)
    config = transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=16, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    given: dict[str, Any] = {"max_steps": 9, "save_strategy": "steps", "save_steps": 2} | options
    args = transformers.TrainingArguments(
        "out", per_device_train_batch_size=4, report_to=[], use_cpu=True, learning_rate=1e-2,
        disable_tqdm=True, logging_strategy="no", **given,
    )  # fmt: skip
    return transformers.Trainer(
        transformers.GPT2LMHeadModel(config), args, train_dataset=DATA, eval_dataset=DATA[:4],
        callbacks=list(callbacks),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def state(one: Any) -> Any:
    return (
        one.model.state_dict(),
        one.optimizer.state_dict()["state"],
        one.lr_scheduler.state_dict(),
    )


@pytest.mark.parametrize(("save", "cut"), [(2, 5), (6, 7)])  # within an epoch, and at its end
def test_goes_on_at_the_step_reached(save: int, cut: int) -> None:
    whole = trainer(save_strategy="no")
    whole.train()
    first = trainer(Callback("runs"), Cut(cut), save_steps=save)
    with pytest.raises(KeyboardInterrupt):
        first.train()
    assert not list(Path("out").glob("*"))  # the Trainer writes nothing
    callback = Callback("runs", wait=False)
    late = trainer(callback, seed=7, save_steps=save)
    late.train(resume_from_checkpoint=callback.resume())
    (model, optimizer, schedule), (other, moments, its) = state(whole), state(late)
    assert schedule == its and late.state.global_step == 9
    assert all(torch.equal(value, other[name]) for name, value in model.items())
    for i, values in optimizer.items():
        assert all(torch.equal(value, moments[i][name]) for name, value in values.items())


def test_metrics_best_and_keep() -> None:
    callback = Callback("runs", wait=False)
    one = trainer(
        callback, max_steps=6, eval_strategy="steps", eval_steps=2, save_total_limit=1,
        load_best_model_at_end=True, metric_for_best_model="loss", greater_is_better=True,
    )  # fmt: skip
    one.train()
    ck = callback.checkpointer
    assert ck.latest() == 6 and ck.best() in ck.steps() and len(ck.steps()) <= 2
    best = ck.store.load(f"step-{ck.best():012d}", tensors=["model.*"], framework="torch")["model"]
    assert all(torch.equal(v, best[name]) for name, v in one.model.state_dict().items())
    saved = ck.store.load(f"step-{6:012d}", tensors=[])
    assert json.loads(saved["extra"]["trainer"])["global_step"] == 6
    assert "eval_loss" in ck.store[f"step-{6:012d}"].metrics


def test_the_best_value_is_that_of_the_step() -> None:
    options = {"metric_for_best_model": "loss", "greater_is_better": False}
    given: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4} | options
    trainer(**given).train()
    own = json.loads(Path("out/checkpoint-4/trainer_state.json").read_text())
    trainer(Callback("runs"), **given).train()
    callback = Callback("runs")
    folder = callback.resume()
    assert folder is not None
    ours = json.loads((Path(folder) / "trainer_state.json").read_text())
    for word in ("best_metric", "best_global_step", "global_step"):
        assert ours[word] == own[word]


class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A module that is not of transformers' own kind."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model

    def forward(self, input_ids: Any, labels: Any) -> Any:
        return self.inner(input_ids=input_ids, labels=labels)


def test_a_plain_module_goes_on() -> None:
    def made(*callbacks: Any) -> Any:
        one = trainer(save_strategy="steps" if callbacks else "no")
        return transformers.Trainer(
            Plain(one.model), one.args, train_dataset=DATA, callbacks=list(callbacks)
        )

    whole = made()
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        made(Callback("runs"), Cut(5)).train()
    callback = Callback("runs")
    late = made(callback)
    late.train(resume_from_checkpoint=callback.resume())
    other = late.model.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in whole.model.state_dict().items())


def test_what_cannot_be_resumed() -> None:
    callback = Callback("runs")
    assert callback.resume() is None
    callback.checkpointer.save(3, model=torch.nn.Linear(1, 1))
    with pytest.raises(ligament.CorruptError, match="not saved by a Trainer"):
        callback.resume()
    with pytest.raises(ligament.NotFoundError, match="no step 4"):
        callback.resume(step=4)

    class Args:
        fsdp, deepspeed = "full_shard", None

    with pytest.raises(ligament.UnsupportedError, match="FSDP"):
        callback.on_init_end(Args(), None, None)


def test_runs_share_a_store(holder: Any) -> None:
    trained = {}
    for seed, run in enumerate(("a", "b", "default")):
        callback = Callback("runs", keep=1, run=run)
        trained[run] = trainer(callback, seed=seed, max_steps=2 * seed + 2)
        trained[run].train()
    with ligament.Store("runs") as store:
        assert sorted(store) == [
            f"{run}step-{n:012d}" for run, n in (("a/", 2), ("b/", 4), ("", 6))
        ]
    callback = Callback("runs", run="b")
    late = trainer(callback, seed=7, max_steps=4)
    late.train(resume_from_checkpoint=callback.resume())
    saved = trained["b"].model.state_dict()
    assert all(torch.equal(v, saved[name]) for name, v in late.model.state_dict().items())
    their = holder(Path("runs"), "a")  # its process has finished training
    with pytest.raises(ligament.BusyError, match=f"run 'a' .*{their}"):
        trainer(Callback("runs", run="a"), max_steps=2).train()

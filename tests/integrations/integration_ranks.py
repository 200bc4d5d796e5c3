"""One of two ranks that torchrun starts: the Trainer of transformers, then Accelerate, each cut off
and gone on with. Prints a line when all is well."""

from __future__ import annotations

import os
import warnings
from typing import Any

warnings.simplefilter("ignore")

import ligament  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from ligament.checkpoint.accelerate import register  # noqa: E402
from ligament.checkpoint.transformers import Callback  # noqa: E402

transformers.logging.set_verbosity_error()
TEXT = [torch.arange(i, i + 8) % 50 for i in range(24)]
DATA = [{"input_ids": item, "labels": item} for item in TEXT]


class Stop(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= 3


def train(place: str, *others: Any, resume: bool = False) -> Any:
    transformers.set_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=16, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    args = transformers.TrainingArguments(
        "out", max_steps=6, per_device_train_batch_size=2, report_to=[], learning_rate=1e-2,
        logging_strategy="no", disable_tqdm=True, use_cpu=True, ddp_backend="gloo", save_steps=2,
    )  # fmt: skip
    callback = Callback(place, wait=False)
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config), args, train_dataset=DATA,
        callbacks=[callback, *others],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=callback.resume() if resume else None)
    assert trainer.state.global_step == (3 if others else 6)
    return trainer.model


def same(a: Any, b: Any) -> bool:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def trainers() -> None:
    whole = train("whole")
    train("runs", Stop())
    assert same(train("runs", resume=True), whole)
    assert not os.path.exists("out") or not os.listdir("out")


def made(seed: int) -> Any:
    torch.manual_seed(seed)
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Linear(4, 4)
    net, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), 1e-2))
    register(accelerator, "store")
    return accelerator, net, optimizer


def steps(accelerator: Any, net: Any, optimizer: Any) -> None:
    for _ in range(2):
        optimizer.zero_grad()
        accelerator.backward(net(torch.ones(2, 4)).square().mean())
        optimizer.step()


def accelerators() -> None:
    first, late = made(0), made(1)
    steps(*first)
    first[0].save_state("ck")
    assert os.path.exists("ck/ligament.txt")
    steps(*first)
    late[0].load_state("ck")
    steps(*late)
    assert same(first[1], late[1]) and first[0].num_processes == 2
    refused(first[0])


def refused(accelerator: Any) -> None:
    """All ranks hear that the main one could not save."""
    main = accelerator.is_main_process
    os.makedirs("full", exist_ok=True)
    if main:
        os.makedirs("full/ligament.txt")  # in the way of the pointer
    try:
        accelerator.save_state("full")
    except (OSError, ligament.Error) as error:
        assert main or "the main process failed to save full" in str(error)
    else:
        raise AssertionError("a failed save went unnoticed")


trainers()
accelerators()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
print("all is well", flush=True)
# Not through the interpreter's end: a thread of gloo may still let go of a tensor, and torch
# aborts when it does so then (pytorch issue 190489).
os._exit(0)

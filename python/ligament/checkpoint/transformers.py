"""The Trainer of transformers saves into a store and resumes from it.

callback = Callback("runs", run="bert-a", keep=3)
trainer = Trainer(..., callbacks=[callback])
trainer.train(resume_from_checkpoint=callback.resume())
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import struct
import tempfile
from collections.abc import Mapping
from typing import Any

from ..errors import missing

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise missing(error, "ligament.checkpoint.transformers") from None

from .. import tensors
from ..errors import CorruptError, NotFoundError, UnsupportedError
from ..store import Store
from . import runs
from .checkpointer import Checkpointer

# What the Trainer requires in a folder to accept it as a checkpoint. The callback fills the model,
# so the file contains no tensors.
_STATE, _WEIGHTS = "trainer_state.json", "model.safetensors"
_NO_TENSORS = struct.pack("<Q", 2) + b"{}"


class Callback(TrainerCallback):
    """Saves when the Trainer would; the Trainer writes no folder itself. `keep` defaults to
    `save_total_limit`, and `best` (metric, "min" or "max") to `metric_for_best_model`. `wait=False`
    saves in the background. `run` is the name of the run; from its first save until training ends,
    this process is its only writer."""

    def __init__(
        self,
        uri: str | os.PathLike[str] | Store,
        keep: int | None = None,
        best: tuple[str, str] | None = None,
        wait: bool = True,
        *,
        run: str = runs.DEFAULT,
    ) -> None:
        self.run = runs.check(run)
        self.store = uri if isinstance(uri, Store) else Store(uri)
        # For queries only; training has one for all its ranks.
        self.checkpointer = Checkpointer(self.store, keep, best, run=run, distributed=False)
        self._policy, self.wait = (keep, best), wait
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._from: int | None = None  # the step from which training continues
        self._rng: Any = None
        self._pending = False
        self._saved: int | None = None

    def resume(self, step: int | None = None) -> str | None:
        """The argument of `Trainer.train(resume_from_checkpoint=...)`: a folder with the Trainer's
        state at the newest step, or at `step`. None if there is no checkpoint yet."""
        ck = self.checkpointer
        ck.wait()
        self._from = ck.latest() if step is None else step
        if self._from is None:
            return None
        if self._from not in ck.steps():
            raise NotFoundError(
                f"there is no step {step} of run {self.run!r} in {ck.store.uri}; "
                f"there are {ck.steps()}"
            )
        plain = ck.store.load(runs.name_of(self.run, self._from), tensors=[])
        text = (plain.get("extra") or {}).get("trainer")
        if not isinstance(text, str):
            raise CorruptError(f"step {self._from} of {ck.store.uri} was not saved by a Trainer")
        self._folder = tempfile.TemporaryDirectory(prefix=f"ligament-{self._from}-")
        with open(os.path.join(self._folder.name, _STATE), "w", encoding="utf-8") as out:
            out.write(text)
        with open(os.path.join(self._folder.name, _WEIGHTS), "wb") as weights:
            weights.write(_NO_TENSORS)
        logging.getLogger("transformers.trainer").addFilter(_no_weights)
        return self._folder.name

    # --- what the Trainer calls -----------------------------------------------------------------

    def on_init_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Refuses unsupported configurations before training."""
        model = objects.get("model")
        if model is not None and not hasattr(model, "_keys_to_ignore_on_save"):
            # The folder of `resume` has no weights; the Trainer then uses this attribute, which
            # only transformers' own models have.
            model._keys_to_ignore_on_save = None
        if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None):
            raise UnsupportedError(
                "FSDP and DeepSpeed use their own checkpoint code in the Trainer (use "
                "ligament.checkpoint.dcp or Checkpointer with them)"
            )

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Restores model, optimizer and schedule when training resumes."""
        self.on_init_end(args, state, control)
        self._pending, self._saved = False, None
        keep, best = self._policy
        self.checkpointer = Checkpointer(
            self.store, keep or args.save_total_limit, best or _best_of(args), run=self.run
        )
        if self._folder is None or state.global_step != self._from:
            return
        logging.getLogger("transformers.trainer").removeFilter(_no_weights)
        before = tensors.rng_state()  # the Trainer still skips data with it
        self.checkpointer.restore(step=self._from, **_parts(objects))
        self._rng = tensors.rng_state()
        tensors.set_rng_state(before)
        self._folder.cleanup()
        self._folder = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Between two epochs, the order of the next epoch's data has not been drawn yet."""
        if self._rng is not None and float(state.epoch or 0).is_integer():
            self._restore_rng()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Within an epoch, the Trainer has already skipped the used data."""
        if self._rng is not None:
            self._restore_rng()

    def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> Any:
        """Saves instead of the Trainer; after the evaluation, if there is one."""
        if control.should_save:
            control.should_save = False
            self._pending = control.should_evaluate
            if not self._pending:
                self._save(args, state, objects, {})
        return control

    on_epoch_end = on_step_end

    def on_evaluate(
        self,
        args: Any,
        state: Any,
        control: Any,
        metrics: Mapping[str, Any] | None = None,
        **objects: Any,
    ) -> None:
        """Stores the values with the checkpoint of this step."""
        if self._pending:
            self._pending = False
            self._save(args, state, objects, metrics or {})

    def on_save(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Also saves what the Trainer saved by its own rule (`save_strategy="best"`)."""
        if self._saved != state.global_step:
            self._save(args, state, objects, {})

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Waits for a save in the background and releases the run; loads the best model if the
        Trainer is configured to."""
        ck = self.checkpointer
        ck.close()
        if args.load_best_model_at_end and state.best_model_checkpoint is None:
            best = ck.best() if (self._policy[1] or _best_of(args)) else None
            if best is not None:
                ck.restore(model=objects["model"], step=best, rng=False)

    # --------------------------------------------------------------------------------------------

    def _save(
        self, args: Any, state: Any, objects: Mapping[str, Any], metrics: Mapping[str, Any]
    ) -> None:
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, (int, float))}
        self.checkpointer.save(
            state.global_step,
            rng=True,
            extra={"trainer": json.dumps(_with_best(args, state, numbers))},
            metrics=numbers,
            wait=self.wait,
            progress=False,
            **_parts(objects),
        )
        self._saved = state.global_step

    def _restore_rng(self) -> None:
        tensors.set_rng_state(self._rng)
        self._rng = None


def _parts(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": objects["model"],
        "optimizer": objects.get("optimizer"),
        "scheduler": objects.get("lr_scheduler"),
    }


def _best_of(args: Any) -> tuple[str, str] | None:
    metric = args.metric_for_best_model
    if not metric:
        return None
    name = metric if metric.startswith("eval_") else f"eval_{metric}"
    return name, "max" if args.greater_is_better else "min"


def _with_best(args: Any, state: Any, metrics: Mapping[str, float]) -> dict[str, Any]:
    """The Trainer's state with the results of an evaluation, which it records only after this
    callback."""
    said = dataclasses.asdict(state)
    name, mode = _best_of(args) or ("", "")
    if name in metrics:
        value, before = metrics[name], state.best_metric
        if before is None or (value > before if mode == "max" else value < before):
            said |= {"best_metric": value, "best_global_step": state.global_step}
    return said


def _no_weights(record: logging.LogRecord) -> bool:
    """Suppresses the Trainer's warnings: the folder of `resume` contains no weights."""
    return not record.getMessage().startswith("There were missing keys in the checkpoint")

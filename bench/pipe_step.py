#!/usr/bin/env python3
"""How close is the simulated step time to a real pipeline of two processes on this machine?

    .venv/bin/python bench/pipe_step.py                     # six models, 1f1b and gpipe
    .venv/bin/python bench/pipe_step.py --models gpt2 bert --microbatches 4 --steps 5

Each model is profiled by two processes at once (one thread each: two cores that share caches and
memory are slower together than one alone), cut in two by `auto`, and trained for some steps by two
processes over torch's own schedules (gloo). What a transfer costs is measured between the same two.
The plan is the same on both ranks: it is made from one of the two profiles. The figure is
simulated / measured, the median of the steps; the bar is 15 % in the median over the rows. Nothing
else should run meanwhile: two ranks need two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from bars import Bar, show  # noqa: E402

BAR = 0.15
ROWS = 2  # of a micro-batch


def cases() -> dict[str, Any]:
    import torch
    import transformers as tf

    def ids(length: int) -> Any:
        return torch.randint(0, 1000, (ROWS, length))

    def image() -> Any:
        return torch.randn(ROWS, 3, 96, 96)

    small = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
    layers = {"num_hidden_layers": 6}
    words = {"bos_token_id": 0, "eos_token_id": 1, "n_head": 4}
    gpt2 = tf.GPT2Config(**words, vocab_size=4096, n_embd=256, n_layer=6, use_cache=False)
    bert = tf.BertConfig(vocab_size=4096, **small, **layers)
    llama = tf.LlamaConfig(vocab_size=4096, **small, **layers, use_cache=False)
    t5 = tf.T5Config(vocab_size=4096, d_model=256, d_ff=1024, num_layers=4, use_cache=False)
    vit = tf.ViTConfig(image_size=96, **small, **layers)
    resnet = tf.ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 256, 512])
    return {
        "gpt2": lambda: (tf.GPT2LMHeadModel(gpt2), (ids(128),), {}),
        "bert": lambda: (tf.BertForMaskedLM(bert), (ids(128),), {}),
        "llama": lambda: (tf.LlamaForCausalLM(llama), (ids(128),), {}),
        "t5": lambda: (
            tf.T5ForConditionalGeneration(t5),
            (),
            {"input_ids": ids(96), "decoder_input_ids": ids(96)},
        ),
        "vit": lambda: (tf.ViTForImageClassification(vit), (image(),), {}),
        "resnet": lambda: (tf.ResNetForImageClassification(resnet), (image(),), {}),
    }


def make(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, args, kwargs = cases()[name]()
    return model.train(), args, kwargs


def plan_of(name: str, schedule: str, microbatches: int, profile: Path) -> tuple[Any, Any]:
    from ligament.pipe import pipe_model

    model, args, kwargs = make(name)
    rate = profile.with_suffix(".rate")
    bandwidth = float(rate.read_text()) if rate.exists() else None
    plan = pipe_model(
        model, args, kwargs, stages=2, devices=["cpu", "cpu"], schedule=schedule,
        microbatches=microbatches, profile=str(profile), bandwidth=bandwidth, progress=False,
        say=lambda line: None,
    )  # fmt: skip
    return plan, (args, kwargs)


def whole(value: Any, microbatches: int) -> Any:
    import torch

    return torch.cat([value] * microbatches)


def loss_of(output: Any, target: Any) -> Any:
    return output.logits.square().mean()


def steps_of(given: argparse.Namespace, schedule: str) -> list[float]:
    import torch
    import torch.distributed as dist

    plan, (args, kwargs) = plan_of(given.rank_of, schedule, given.microbatches, given.profile)
    runner = plan.pipeline(loss_fn=loss_of)
    args = tuple(whole(a, given.microbatches) for a in args)
    kwargs = {k: whole(v, given.microbatches) for k, v in kwargs.items()}
    target, times = torch.zeros(ROWS * given.microbatches), []
    for _ in range(given.steps + 2):
        for stage in plan.stages_of(dist.get_rank()):
            stage.zero_grad()
        dist.barrier()
        begin = time.perf_counter()
        runner.step(*args, target=target, **kwargs)
        dist.barrier()
        times.append((time.perf_counter() - begin) * 1e3)
    return times[2:]


def bytes_a_second(rank: int) -> float:
    """The bandwidth of one value that crosses the border, in both directions."""
    import torch
    import torch.distributed as dist

    value, times = torch.zeros(1 << 16), []
    for _ in range(60):
        begin = time.perf_counter()
        for turn in (rank == 0, rank == 1):
            dist.send(value, 1 - rank) if turn else dist.recv(value, 1 - rank)
        times.append(time.perf_counter() - begin)
    return 2 * value.nbytes / statistics.median(times[10:])


def profile_main(given: argparse.Namespace) -> None:
    path = given.profile if given.rank == 0 else given.profile.with_suffix(".other")
    plan_of(given.rank_of, given.schedules[0], given.microbatches, path)
    rate = bytes_a_second(given.rank)
    if given.rank == 0:
        path.with_suffix(".rate").write_text(str(rate))


def rank_main(given: argparse.Namespace) -> int:
    import torch.distributed as dist

    meeting = f"file://{given.meeting}"
    dist.init_process_group("gloo", init_method=meeting, rank=given.rank, world_size=2)
    if given.profile.exists():
        times = {schedule: steps_of(given, schedule) for schedule in given.schedules}
        print(json.dumps(times))
    else:
        profile_main(given)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def both(command: list[str]) -> list[str]:
    """The output of two ranks that run at the same time."""
    ranks = [
        subprocess.Popen([*command, "--rank", str(r)], stdout=subprocess.PIPE, text=True)
        for r in range(2)
    ]
    said = [rank.communicate(timeout=600)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"a rank failed: {command}")
    return said


def measure(name: str, given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    profile = folder / f"{name}.json"
    command = [
        sys.executable, __file__, "--rank-of", name, "--profile", str(profile),
        "--steps", str(given.steps), "--microbatches", str(given.microbatches),
        "--schedules", *given.schedules,
    ]  # fmt: skip
    both([*command, "--meeting", str(folder / f"{name}.first")])
    simulated = {}
    for schedule in given.schedules:
        plan, _ = plan_of(name, schedule, given.microbatches, profile)
        simulated[schedule] = plan.simulate().step_ms
    said = both([*command, "--meeting", str(folder / f"{name}.meet")])
    measured = json.loads(said[0].strip().splitlines()[-1])
    rows = []
    for schedule in given.schedules:
        real = statistics.median(measured[schedule])
        ratio = simulated[schedule] / real
        print(f"{name:>8} {schedule:>8} {simulated[schedule]:>10.1f} {real:>10.1f} {ratio:>8.3f}")
        rows.append({"model": name, "schedule": schedule, "ratio": ratio})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="The simulator against two processes.")
    parser.add_argument("--models", nargs="*", default=list(cases()))
    parser.add_argument("--schedules", nargs="*", default=["1f1b", "gpipe"])
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank", type=int, help="internal, as what follows")
    parser.add_argument("--rank-of")
    parser.add_argument("--meeting")
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    if given.rank is not None:
        return rank_main(given)
    print(f"{'model':>8} {'schedule':>8} {'simulated':>10} {'real ms':>10} {'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="ligament-pipe-") as folder:
        rows = [row for name in given.models for row in measure(name, given, Path(folder))]
    off = statistics.median(abs(row["ratio"] - 1) for row in rows)
    bar = show(
        Bar(
            "simulated step time, median deviation from the real one",
            100 * off,
            100 * BAR,
            unit="%",
        )
    )
    if given.json:
        given.json.write_text(json.dumps({"rows": rows, "bars": [bar.record()]}, indent=1))
    return 0 if bar.met else 1


if __name__ == "__main__":
    raise SystemExit(main())

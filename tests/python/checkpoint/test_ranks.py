"""Checkpoints of several processes, with real torch.distributed jobs over loopback."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ligament.checkpoint import Checkpointer  # noqa: E402

HERE = pathlib.Path(__file__).parent
SECONDS = 180  # a scenario that takes longer hangs

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def zygote() -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "rank_zygote.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None and process.stdin is not None
    assert json.loads(process.stdout.readline()) == "ready"
    yield process
    process.stdin.close()
    process.wait()


@pytest.fixture
def run(zygote: subprocess.Popen[str], tmp_path: pathlib.Path) -> Run:
    """run(scenario, ranks, **arguments) -> what each rank answers."""

    def call(scenario: str, ranks: int, job: bool = True, **arguments: Any) -> list[dict[str, Any]]:
        assert zygote.stdin is not None and zygote.stdout is not None
        request = {
            "scenario": scenario,
            "folder": str(tmp_path),
            "ranks": ranks,
            "arguments": arguments,
            "seconds": SECONDS,
            "job": job,
        }
        print(json.dumps(request), file=zygote.stdin, flush=True)
        answers: list[dict[str, Any]] = json.loads(zygote.stdout.readline())
        return answers

    return call


def results(answers: list[dict[str, Any]]) -> list[Any]:
    """Of ranks that all did well."""
    assert all("result" in answer for answer in answers), answers
    return [answer["result"] for answer in answers]


def failures(answers: list[dict[str, Any]]) -> list[str]:
    """Of ranks that all failed, and in time."""
    assert all("error" in answer for answer in answers), answers
    return [f"{answer['error']}: {answer['text']}" for answer in answers]


# --- saved on some, restored on others ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("wait", [True, False])
def test_two_four_one(run: Run, kind: str, wait: bool) -> None:
    for answer in results(run("save", 2, kind=kind, wait=wait)):
        assert answer["steps"] == [1, 2]
        assert answer["metrics"] == {"loss": 1.0}
        assert answer["problems"] == []
    for ranks in (2, 4, 1):
        for rank, answer in enumerate(results(run("restore", ranks, kind=kind))):
            assert answer["step"] == 2
            assert answer["extra"] == {"epoch": 2}
            assert answer["differing"] == []
            assert answer["kinds"] == (["DTensor", "Tensor"] if kind == "fsdp" else ["Tensor"])
            if rank < 2:
                assert answer["seed"] == 200 + rank
            assert answer["loader"] == [2, rank if ranks == 2 else 0]
    (answer,) = results(run("restore", 1, job=False, kind="plain", stepped=True))
    assert answer["differing"] == []


@pytest.mark.parametrize(
    ("saved", "ranks", "restored", "others"),
    [("hsdp", 4, "tp", 2), ("tp", 2, "fsdp", 4), ("2d", 4, "ddp", 2), ("ddp", 2, "2d", 4)],
)
def test_other_layouts(run: Run, saved: str, ranks: int, restored: str, others: int) -> None:
    results(run("save", ranks, kind=saved))
    for answer in results(run("restore", others, kind=restored, stepped=True)):
        assert answer["differing"] == []


def test_odd_tensors(run: Run) -> None:
    for answer in results(run("odd_tensors", 3)):
        assert answer["wrong"] == []
        assert answer["tied"] == [True, True]
        assert answer["problems"] == []
    (answer,) = results(run("odd_tensors", 1))
    assert answer["wrong"] == []


def test_buffers_are_those_of_one_rank(run: Run) -> None:
    for rank, answer in enumerate(results(run("buffers", 3))):
        assert answer == {"differing": [], "differed": rank > 0, "extra": [0.0]}


def test_the_history_of_a_run_of_ranks(run: Run) -> None:
    for answer in results(run("history", 2)):
        want = [[step, {"loss": float(step), "last": float(step)}] for step in range(4)]
        assert answer == {"steps": [3], "history": want}


def test_every_rank_continues_bit_for_bit(run: Run) -> None:
    pytest.importorskip("torchdata")
    folders = {"whole": [(1, 8)], "parts": [(1, 3), (5, 8)]}
    losses: dict[str, list[list[float]]] = {name: [[], []] for name in folders}
    for name, parts in folders.items():
        for seed, stop in parts:
            answers = results(run("resume", 2, name=name, seed=seed, stop=stop))
            for rank, answer in enumerate(answers):
                losses[name][rank] += answer["losses"]
                assert answer["warnings"] == []
    assert losses["whole"] == losses["parts"] and losses["whole"][0] != losses["whole"][1]
    for ranks in (1, 3):
        answers = results(run("resume", ranks, name="whole", seed=1, stop=8))
        told = [answer["warnings"] for answer in answers]
        assert all(not one for one in told[1:])
        assert len(told[0]) == 1 and f"saved by 2 ranks and is restored by {ranks}" in told[0][0]


@pytest.mark.parametrize("wait", [True, False])
def test_the_state_of_a_loader_is_each_ranks_own(run: Run, wait: bool) -> None:
    kept = [f"ranks.{r}.{part}" for r in (1, 2) for part in ("loader.generator", "part.seen")]
    for ranks in (3, 2, 1):  # saved by the first
        for rank, answer in enumerate(results(run("loader_with_tensors", ranks, wait=wait))):
            owner = rank if ranks == 3 else 0
            assert answer == {"at": [2, owner], "seed": owner, "problems": [], "kept": kept}


def test_a_rank_outside_of_a_mesh_writes_nothing_of_it(run: Run) -> None:
    for answer in results(run("held_by_some", 3)):
        assert answer == {f"{kind}{i}": [i + 1.0] for i in range(8) for kind in ("scalar", "rows")}


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_fine_tune_writes_what_changed(run: Run, kind: str) -> None:
    answers = results(run("fine_tune", 2, kind=kind))
    for answer in answers:
        assert answer["own"] == answer["changed"]
    # The packs' frames and the manifest come on top; for so small a model they weigh more than 1 %.
    assert answers[0]["grown"] < answers[0]["changed"] * 1.01 + (64 << 10)


def test_several_checkpointers(run: Run) -> None:
    for answer in results(run("many", 3)):
        assert answer["steps"] == [[4, 5], [4, 5]]
        assert answer["values"] == [[[5.0], 0], [[5.0], 1]]


def test_rank_0_is_the_writer_of_a_run(run: Run, tmp_path: pathlib.Path) -> None:
    with Checkpointer(tmp_path / "store", run="c") as ck:
        ck.save(1, model={"w": torch.zeros(2, dtype=torch.int64)})
        ck.store.retire("c/step-000000000001")
        first, second = results(run("runs", 2))
    for answer in (first, second):
        assert answer["steps"] == {"a": [2], "b": [2], "c": []}
        assert answer["from"] == ["b", 2, [100, 100]] and answer["nothing"] is None
        assert f"process {os.getpid()} on " in answer["busy"]
        assert answer["writers"] == sorted([first["pid"], first["pid"], os.getpid()])


def test_a_rank_that_is_slow_to_hear_of_a_save(run: Run) -> None:
    for answer in results(run("slow_to_hear", 2)):
        assert answer == {"steps": [1, 2, 3]}


@pytest.mark.parametrize("how", ["stage", "stages", "marked", "wrapped"])
def test_every_rank_holds_another_part(run: Run, how: str) -> None:
    for answer in results(run("halves", 2, how=how)):
        assert answer["differing"] == []
    (answer,) = results(run("both_halves", 1, job=False))
    assert answer["differing"] == []
    assert answer["moments"] == pytest.approx([0.1, 0.1, 0.2, 0.2])


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("no model", "parameter 0 of 'optimizer' has different values on ranks 0 and 1 (if"),
        ("plain", "'model.weight' has different values on ranks 0 and 1 (if"),
        ("names", "rank 1 passes 'model.1.weight', 'model.1.bias', which rank 0 does not (if"),
    ],
)
def test_a_part_that_is_not_marked_is_refused(run: Run, how: str, sentence: str) -> None:
    for told in failures(run("halves", 2, how=how)):
        assert sentence in told and "as pipeline stages" in told


# --- what goes wrong ----------------------------------------------------------------------------

PHASES = [
    (victim, f"{when} {what}")
    for victim, places in ((1, "have plan write part"), (0, "have answer part join"))
    for what in places.split()
    for when in ("before", "after")
] + [(1, "before done")]


LATER = [(1, "before part"), (1, "before done"), (0, "before join"), (0, "after join")]


@pytest.mark.parametrize(
    ("victim", "at", "wait"), [(*p, True) for p in PHASES] + [(*p, False) for p in LATER]
)
def test_a_rank_is_killed(run: Run, victim: int, at: str, wait: bool) -> None:
    answers = run("killed", 2, victim=victim, at=at, wait=wait)
    assert answers[victim].get("signal") == 9, answers
    other = answers[1 - victim]
    if "result" in other:  # the victim's part was in, or the commit done, when it died
        assert at in ("after part", "before done"), answers
    else:
        assert other["error"] in ("PeerError", "NotFoundError"), other
        assert f"rank {victim}" in other["text"] or "is gone" in other["text"], other
    (left,) = results(run("after_death", 1, job=False))
    committed = "result" in other or at == "after join"
    assert left["steps"] == [f"step-{step:012d}" for step in ((1, 2) if committed else (1,))]
    assert left["equal"] == [True, True]
    assert left["problems"] == []


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_is_killed_with_a_known_plan(run: Run, victim: int) -> None:
    answers = run("killed", 2, victim=victim, at="before have", wait=False, again=True)
    assert answers[victim].get("signal") == 9, answers
    assert answers[1 - victim]["error"] == "PeerError", answers
    assert f"rank {victim} is lost: " in answers[1 - victim]["text"], answers
    (left,) = results(run("after_death", 1, job=False))
    assert left["steps"] == ["step-000000000001"]
    assert left["equal"] == [True, True]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("extra name", "rank 1 passes 'model.more', which rank 0 does not"),
        ("missing name", "rank 0 passes 'model.r', which rank 1 does not"),
        ("order", "the same tensors in a different order"),
        ("shape", "'model.r' is torch.float32 [6] on rank 0 and torch.float32 [5] on rank 1"),
        ("dtype", "'model.r' is torch.int64 [4] on rank 0 and torch.int32 [4] on rank 1"),
        ("whole", "'model.w' is a whole tensor on rank 1 and distributed on rank 0"),
        ("object", "tree['model']['r'] is of type builtins.object"),
        ("step", "rank 0 calls save 'step-000000000002', rank 1 calls save 'step-000000000003'"),
        ("restore", "rank 0 calls save 'step-000000000002', rank 1 calls restore"),
        ("partial", "partial sums"),
        ("overlap", "cover the same elements"),
        ("gap", "cover 21 of 24 elements"),
        ("full", "rank 1"),
        ("another store", "another store"),
        ("unreachable", "/file"),
        ("snapshot", "snapshot='odd'"),
    ],
)
def test_a_rank_does_otherwise(run: Run, how: str, sentence: str) -> None:
    told = failures(run("wrong", 3 if how == "unreachable" else 2, how=how))
    for one in told:
        assert sentence in one or (how == "full" and "File too large" in one), told
    if how not in ("another store", "unreachable"):
        assert results(run("steps", 1, job=False)) == [[1]]


def test_a_rank_never_comes(run: Run) -> None:
    first, second, third = run("wrong", 3, how="never")
    assert second == {"result": {"steps": [1]}}
    for answer in (first, third):
        assert answer["error"] in ("TimeoutError", "PeerError"), answer
        assert "rank 1" in answer["text"]
    assert results(run("steps", 1, job=False)) == [[1]]


def test_a_failed_save_is_no_obstacle(run: Run) -> None:
    for answer in results(run("recovers", 2)):
        assert answer["failed"] == [2, 4, 6]
        assert answer["steps"] == [1, 3, 5]


@pytest.mark.parametrize("victim", [0, 1])
def test_what_goes_wrong_early_is_said_on_all(run: Run, victim: int) -> None:
    answers = results(run("one_rank_fails", 2, victim=victim))
    words = ["no state yet", "", "no state yet", "step=-4", "the background", "the background", ""]
    words += ["the name of a metric must be a str"]
    for rank, answer in enumerate(answers):
        told = answer["told"]
        if rank != victim:  # what it received itself
            assert [told.pop(6), told.pop(4)] == ["the background"] * 2
        assert len(told) == len(words)
        for word, text in zip(words, told, strict=True):
            assert word in text and bool(word) == bool(text), answers
        assert 2 in answer["steps"] and 8 in answer["steps"]
        assert not {1, 3, 4, 6, 9} & set(answer["steps"])


def test_boxes_change_on_some_ranks(run: Run) -> None:
    for answer in results(run("other_boxes", 3)):
        assert [step for step, _ in answer["told"]] == [2, 5]
        assert all("save again" in text for _, text in answer["told"])
        assert answer["steps"] == [0, 1, 3, 4, 6]
        assert answer["wrong"] == []


def test_a_rank_that_gave_up_is_not_committed_for(run: Run) -> None:
    first, second = results(run("impatient", 2))
    assert first == {"told": "rank 1: rank 0 did not commit", "steps": [1]}
    assert second["told"] == "rank 0 did not commit"


def test_rank_0_stays_until_all_have_heard(run: Run) -> None:
    for answer in results(run("rank_0_serves", 2, job=False, well=True)):
        assert answer == {"steps": [1]}
    for text in failures(run("rank_0_serves", 2, job=False, well=False)):
        assert "is of type builtins.object" in text


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_is_interrupted(run: Run, victim: int) -> None:
    for rank, answer in enumerate(results(run("interrupted", 2, victim=victim))):
        word = "KeyboardInterrupt: " if rank == victim else "Error: "
        assert all(text.startswith(word) for text in answer["told"]), answer
        assert all("KeyboardInterrupt" in text for text in answer["told"]), answer
        assert answer["steps"] == [100, 101, 102, 103, 104]
        assert answer["problems"] == []


def test_a_rank_cannot_restore(run: Run) -> None:
    for answer in results(run("restore_fails", 2)):
        assert answer["first"] is None
        assert (
            "'model.weight' has shape (3, 3), but the stored shape is (2, 3)" in answer["told"][0]
        )
        assert answer["told"][1] == ""


@pytest.mark.parametrize("how", ["SIGTERM", "SIGUSR1"])
def test_preempted_at_the_same_step(run: Run, how: str) -> None:
    answers = results(run("preempted", 3, how=how))
    assert {answer["step"] for answer in answers} == {answers[0]["step"]}
    assert 5 <= answers[0]["step"] <= 8
    assert [len(answer["called"]) for answer in answers] == [0, 0, int(how == "SIGTERM")]
    assert all(answer["later"] == [True] * 3 for answer in answers)


def test_nothing_is_under_way_after_the_last_question(run: Run) -> None:
    assert results(run("asked_to_the_end", 3)) == [True] * 3


def test_the_job_begins_later(run: Run) -> None:
    for answer in results(run("late_job", 3, job=False)):
        assert answer["writers"] == [0, 1, 2]  # each rank wrote one of what all have

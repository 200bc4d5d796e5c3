"""torch.distributed.checkpoint through a store: saved on some ranks, loaded on others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ligament
import pytest
from warm_python import WarmPython

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from ligament.checkpoint.dcp import StorageReader, StorageWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def ranks(python: WarmPython, what: str, world: int, folder: Path) -> None:
    program = Path(__file__).with_name("dcp_ranks.py")
    started = [python.start(program, what, rank, world, folder) for rank in range(world)]
    done = [one.wait(240) for one in started]
    said = done[0].stderr[-3000:] + done[-1].stderr[-3000:]
    assert [one.returncode for one in done] == [0] * world, said


def test_two_ranks_save_and_three_load(warm_torch: WarmPython, tmp_path: Path) -> None:
    """Saved at once, saved in the background, and a save that fails on one rank, which leaves what
    was there."""
    ranks(warm_torch, "save", 2, tmp_path)
    want = torch.load(tmp_path / "want.pt", weights_only=True)
    with ligament.Store(tmp_path / "store") as store:
        assert sorted(store) == ["last", "late", "none", "run", "some"]
        assert store["run"].tags == {"door": "dcp"} and store.load("none") == {}
        for name in ("late", "run"):
            whole = store.load(name, framework="torch")  # tensors, not shards of them
            for key, value in want.items():
                assert torch.equal(whole[key.removeprefix(".")], value), key
        assert store.check().problems == []
    ranks(warm_torch, "load", 3, tmp_path)


# --- in one process -----------------------------------------------------------------------------


def state(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        "model": {"w": torch.randn(40, 30), "b": torch.randn(3, dtype=torch.bfloat16)},
        "empty": torch.zeros(0, 4), "zero": torch.tensor(float(seed)), "step": seed,
        "list": [torch.ones(2) * seed, "text", None],
    }  # fmt: skip


def load(store: Any, into: Any, name: str = "s") -> Any:
    dcp.load(into, checkpoint_id=name, storage_reader=StorageReader(store), no_dist=True)
    return into


def save(store: Any, tree: Any, name: str = "s", **options: Any) -> None:
    dcp.save(tree, checkpoint_id=name, storage_writer=StorageWriter(store, **options), no_dist=True)


def same(a: Any, b: Any) -> bool:
    tensors = ("w", "b")
    return (
        all(torch.equal(a["model"][name], b["model"][name]) for name in tensors)
        and torch.equal(a["zero"], b["zero"])
        and (a["step"], a["list"][1:]) == (b["step"], b["list"][1:])
        and torch.equal(a["list"][0], b["list"][0])
    )


def test_a_state_comes_back_in_place(files: ligament.Store) -> None:
    save(files, state(1))
    target = state(2)
    weights, address = target["model"]["w"], target["model"]["w"].data_ptr()
    load(files, target)
    assert same(target, state(1)) and target["model"]["w"] is weights
    assert weights.data_ptr() == address and weights._version > 0
    opaque = files.load("s")["step"]  # what the planner pickled is bytes to us
    assert opaque.dtype == "uint8" and bytes(opaque[:2]) == b"PK"


def test_other_dtypes_layouts_and_parts(files: ligament.Store) -> None:
    save(files, state(1))
    turned = {"model": {"w": torch.zeros(30, 40, dtype=torch.float64).T}}
    load(files, turned)
    assert torch.equal(turned["model"]["w"], state(1)["model"]["w"].double())
    with pytest.raises(dcp.CheckpointException, match="no model 'none'"):
        load(files, turned, "none")
    with pytest.raises(dcp.CheckpointException, match="(?s)ize mismatch|Missing key"):
        load(files, {"model": {"w": torch.zeros(3)}})


def test_any_model_can_be_loaded(files: ligament.Store) -> None:
    model = torch.nn.Linear(4, 3)
    files.save("plain", model)
    target = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    load(files, target, "plain")
    assert all(torch.equal(v, target[name]) for name, v in model.state_dict().items())


def test_what_is_saved_is_the_state_at_the_call(files: ligament.Store) -> None:
    writer, going = StorageWriter(files), threading.Event()

    class Slow(StorageWriter):
        def write_data(self, plan: Any, planner: Any) -> Any:
            going.wait(60)
            return super().write_data(plan, planner)

    tree = state(1)
    # async_save wants a process group of one.
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        writer = Slow(files)
        future = dcp.async_save(tree, checkpoint_id="s", storage_writer=writer)
        address = tree["model"]["w"].data_ptr()
        tree["model"]["w"].add_(1)
        tree["list"][0].mul_(0)
        tree["step"] = 5
        going.set()
        future.result()
    finally:
        torch.distributed.destroy_process_group()
    assert address and same(load(files, state(2)), state(1))


def test_names_and_replacing(files: ligament.Store) -> None:
    dcp.save(state(1), storage_writer=StorageWriter(files, name="given"), no_dist=True)
    save(files, state(2), "given")
    assert same(load(files, state(3), "given"), state(2))
    with pytest.raises(dcp.CheckpointException, match="model 'given' already exists"):
        save(files, state(3), "given", replace=False)
    with pytest.raises(dcp.CheckpointException, match="no model name"):
        dcp.save(state(1), storage_writer=StorageWriter(files), no_dist=True)
    assert same(load(files, state(3), "given"), state(2)) and list(files) == ["given"]


def test_a_state_without_entries(files: ligament.Store) -> None:
    save(files, {"x": torch.ones(2)}, "e")
    save(files, {}, "e")
    into: dict[str, Any] = {}
    assert load(files, into, "e") == {} and files.load("e") == {}
    assert files["e"].tags == {"door": "dcp"}
    with pytest.raises(dcp.CheckpointException, match="Missing key"):
        load(files, {"x": torch.ones(2)}, "e")


def test_storage_meta(files: ligament.Store) -> None:
    writer, reader = StorageWriter(files, "m"), StorageReader(files, "m")
    dcp.save(state(1), storage_writer=writer, no_dist=True)
    metadata = reader.read_metadata()
    assert metadata.version == dcp.filesystem.CURRENT_DCP_VERSION
    meta = metadata.storage_meta
    assert (
        meta.checkpoint_id == "m"
        and meta.save_id == writer.save_id == writer.storage_meta().save_id
    )
    assert meta.load_id == reader.load_id and meta.modules == []
    before = (writer.save_id, reader.load_id)
    writer.reset("n")
    reader.reset("m")
    assert before[0] != writer.save_id and before[1] != reader.load_id
    assert reader.read_metadata().storage_meta.save_id == before[0]
    files.save("plain", torch.nn.Linear(2, 2))
    reader.reset("plain")
    meta = reader.read_metadata().storage_meta
    assert (meta.checkpoint_id, meta.save_id, meta.load_id) == ("plain", None, reader.load_id)


def test_an_existing_checkpoint_is_refused_before_anything_is_written(
    files: ligament.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(files, state(1), "s", replace=False)
    with pytest.raises(dcp.CheckpointException, match="Checkpoint already exists") as failure:
        save(files, state(2), "s", replace=False)
    assert all(isinstance(one[0], FileExistsError) for one in failure.value.failures.values())
    # Another job may save between the check and the commit.
    monkeypatch.setattr(StorageWriter, "prepare_local_plan", lambda self, plan: plan)
    for tree in (state(2), {}):
        with pytest.raises(dcp.CheckpointException, match="Checkpoint already exists"):
            save(files, tree, "s", replace=False)
    assert same(load(files, state(3)), state(1))


def test_a_save_without_collectives_is_refused(files: ligament.Store) -> None:
    with pytest.raises(ligament.InvalidError, match="use_collectives=False"):
        dcp.save(
            state(1), checkpoint_id="s", storage_writer=StorageWriter(files),
            use_collectives=False, no_dist=True,
        )  # fmt: skip
    assert len(files) == 0


def test_what_two_ranks_plan_to_write_is_written_once(files: ligament.Store) -> None:
    planner = dcp.DefaultSavePlanner()
    planner.set_up_planner(state(1), is_coordinator=True)
    plans = StorageWriter(files).prepare_global_plan([planner.create_local_plan()] * 2)
    assert all(place is not None for place in plans[0].storage_data)
    assert set(plans[1].storage_data) == {None}


def test_planner_data_must_be_plain(files: ligament.Store) -> None:
    class Odd(dcp.DefaultSavePlanner):  # type: ignore[misc, name-defined]
        def create_global_plan(self, plans: Any) -> Any:
            made, metadata = super().create_global_plan(plans)
            metadata.planner_data = {"x": object()}
            return made, metadata

    with pytest.raises(dcp.CheckpointException, match="is of type builtins.object"):
        dcp.save(
            state(1), checkpoint_id="s", storage_writer=StorageWriter(files), planner=Odd(),
            no_dist=True,
        )  # fmt: skip
    assert len(files) == 0


def test_runs_share_a_store(tmp_path: Path, holder: Any) -> None:
    where, trees = tmp_path / "store", {"a": state(1), "b/c": state(2), None: state(3)}
    for run, tree in trees.items():
        save(where, tree, "step-10", run=run)
    with ligament.Store(where, "r") as store:
        assert sorted(store) == ["a/step-10", "b/c/step-10", "step-10"]
        for run, tree in trees.items():
            into = state(9)
            reader = StorageReader(store, run=run)
            dcp.load(into, checkpoint_id="step-10", storage_reader=reader, no_dist=True)
            assert same(into, tree)
    their = holder(where, "d")
    with pytest.raises(dcp.api.CheckpointException, match=f"run 'd' .*{their}"):
        save(where, state(4), "step-10", run="d")
    assert holder(where, "a")  # no save is under way: another process can have the run
    with pytest.raises(ligament.InvalidError, match="empty"):
        StorageWriter(where, run="")

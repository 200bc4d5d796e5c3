"""The integrations on two ranks, in the environment that torchrun makes: one checkpoint."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import ligament
import pytest
from warm_python import WarmPython


def test_two_ranks(warm_torch: WarmPython, tmp_path: Path) -> None:
    for name in ("torch", "transformers", "accelerate"):
        pytest.importorskip(name)
    program = Path(__file__).with_name("integration_ranks.py")
    with socket.socket() as place:  # bound and not listened on: kept from others
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(place.getsockname()[1])}
        group |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        started = [
            warm_torch.start(
                program, cwd=tmp_path, env={**os.environ, **group, "RANK": rank, "LOCAL_RANK": rank}
            )
            for rank in "01"
        ]
        done = [one.wait(280) for one in started]
    assert all(one.stdout.endswith("all is well\n") for one in done), (
        done[0].stderr + done[1].stderr
    )
    with ligament.Store(tmp_path / "runs", "r") as store:
        assert [model.name[-1] for model in store.models()] == ["2", "4", "6"]
        assert store.check().problems == []

"""A store that root and its owner use."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from ligament import Store

OWNER = 12345


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
def test_what_root_makes_in_a_store_belongs_to_the_owner_of_its_folder(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.mkdir()
    os.chown(place, OWNER, OWNER)
    with Store(f"{place}?log=16KiB") as store:  # with checkpoints, and several segments
        for number in range(8):
            store.save(f"small-{number}", {"w": np.full(1000, float(number))})
        store.save("large", {"w": np.arange(1 << 14)})
        view = store.load("large", map=True)
        made = [place / name for name in ("log", "packs", "leases")] + list(place.rglob("*"))
        assert any("checkpoint" in path.name for path in made)
        assert {path.stat().st_uid for path in made} == {OWNER}, "root locks the owner out"
        del view


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
def test_a_file_that_root_did_not_make_keeps_its_owner(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.mkdir()
    os.chown(place, OWNER, OWNER)
    Store(place).close()
    (place / "index.mdb").unlink()
    (place / "secret").write_text("root's")
    os.link(place / "secret", place / "index.mdb")
    Store(place).close()
    assert (place / "secret").stat().st_uid == 0

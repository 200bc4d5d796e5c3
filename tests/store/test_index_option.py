"""The option index= of a file store."""

from __future__ import annotations

from pathlib import Path

import ligament
import numpy as np
import pytest
from ligament import Store


def test_it_is_refused_where_it_has_no_effect(tmp_path: Path) -> None:
    for share in ("", "&share=local", "&mode=r"):
        with pytest.raises(ligament.InvalidError, match="requires share=network"):
            Store(f"{tmp_path / 'store'}?index={tmp_path / 'index'}{share}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("index", ["file", "missing/folder", "store", "store/index"])
def test_a_folder_that_cannot_be_used_leaves_no_store(tmp_path: Path, index: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ligament.Error, match=f"{tmp_path}/{index}"):
        Store(f"{tmp_path / 'store'}?share=network&index={tmp_path / index}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_it_must_not_lie_in_the_store(tmp_path: Path) -> None:
    place = f"{tmp_path / 'store'}?share=network&index="
    with Store(f"{place}{tmp_path / 'index'}") as store:
        store.save("a", {"w": np.ones(4)})
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for inside in ("store", "store/packs", "link/index"):
        with pytest.raises(ligament.InvalidError, match="is inside the store"):
            Store(f"{place}{tmp_path / inside}")
    assert not (tmp_path / "store/index").exists()
    with Store(f"{tmp_path / 'store'}?index={tmp_path / 'index'}") as store:  # is shared by now
        assert store.check().problems == []
